"""The MoE router: tensors kept by top-k selection, scores and auxiliary losses of one layer and micro-batch.

Unfused: the aten operators of megatron-core (`topk_routing_with_score_function`). Fused: TransformerEngine's router
kernels, or those of Primus on ROCm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div

if TYPE_CHECKING:
    from primus_lint.ir.run import MixtureOfExperts
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes

AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")


def of_2026(sizes: Sizes) -> bool:
    """Megatron-Core from 0.19 on: sigmoid scores stay in fp32, and tokens are sorted by one argsort over all experts."""
    return sizes.run.version == "d98e8a64"


def logit_bytes(sizes: Sizes, moe: MixtureOfExperts) -> int:
    """Size of one router logit and probability."""
    return {"fp32": 4, "fp64": 8}.get(moe.router_dtype or "", sizes.act)


def score_bytes(sizes: Sizes, moe: MixtureOfExperts) -> int:
    """Size of one sigmoid score."""
    return 4 if of_2026(sizes) else logit_bytes(sizes, moe)


def auxiliary_losses(moe: MixtureOfExperts) -> list[str]:
    """The load-balancing losses that are computed."""
    return [name for name in moe.load_balancing if name in AUXILIARY] if moe.aux_loss else []


def router(sizes: Sizes) -> Tensors:
    """All tensors of the router except its input (the pre-MLP norm's output)."""
    moe = sizes.run.model.moe
    assert moe is not None
    T, E, K = sizes.T, sizes.E, sizes.K
    each = logit_bytes(sizes, moe)
    out: Tensors = {}
    if moe.z_loss:
        out["router.z_logits"] = T * E * each
        out["router.z_logsumexp"] = T * each + each
    if moe.router_fusion:
        out.update(_fused(sizes, moe))
    else:
        out.update(_softmax(sizes, moe) if moe.score_function == "softmax" else _sigmoid(sizes, moe))
        losses = auxiliary_losses(moe)
        if losses:
            if moe.score_function == "softmax":
                out["router.aux_scores"] = T * E * 4
            else:
                each = score_bytes(sizes, moe)
                out["router.aux_scores"] = T * E * each + T * each
            out["router.aux_topk_index"] = T * K * 8
        for name in losses:
            out[f"router.{name}"] = _loss(sizes, moe, name, 4 if moe.score_function == "softmax" else each)
    if moe.capacity_factor is not None:
        capacity = capacity_rows(sizes, moe.capacity_factor)
        out["router.capacity_index"] = capacity * E * 8
        out["router.capacity_mask"] = T * E
    return out


def _loss(sizes: Sizes, moe: MixtureOfExperts, name: str, scalar: int) -> Any:
    """Token counts per expert (int64; per sequence for seq_aux_loss; an fp32 average for the global one), the loss."""
    if name == "global_aux_loss":
        return 4 * sizes.E + scalar
    return 8 * sizes.E * (sizes.mbs if name == "seq_aux_loss" else 1) + scalar


def _softmax(sizes: Sizes, moe: MixtureOfExperts) -> Tensors:
    """Softmax after top-k over K entries, or before it over all experts."""
    T, E, K = sizes.T, sizes.E, sizes.K
    before = bool(sizes.run.args.get("moe_router_pre_softmax"))
    out: Tensors = {"router.softmax": T * (E if before else K) * 4, "router.topk_index": T * K * 8}
    out.update(_groups(sizes))
    return out


def _sigmoid(sizes: Sizes, moe: MixtureOfExperts) -> Tensors:
    """fp32 sigmoid, top-k, normalisation. With an expert bias the scores are gathered and kept once more."""
    T, E, K = sizes.T, sizes.E, sizes.K
    each = score_bytes(sizes, moe)
    out: Tensors = {"router.sigmoid": T * E * 4, "router.topk_index": T * K * 8}
    if moe.expert_bias and each != 4:
        out["router.scores"] = T * E * each
    if K > 1:
        out["router.normalised"] = T * K * each + T * each
    out.update(_groups(sizes))
    return out


def _groups(sizes: Sizes) -> Tensors:
    """Group-limited top-k: indices of the group scores and of the groups, and the mask of the others."""
    args, T = sizes.run.args, sizes.T
    groups, chosen = args.get("moe_router_num_groups"), args.get("moe_router_group_topk")
    if not groups or not chosen:
        return {}
    return {
        "router.group_score_index": T * groups * (sizes.K // chosen) * 8,
        "router.group_index": T * chosen * 8,
        "router.group_mask": T * sizes.E,
    }


def _fused(sizes: Sizes, moe: MixtureOfExperts) -> Tensors:
    """Fused top-k and auxiliary loss kernels."""
    T, E, K = sizes.T, sizes.E, sizes.K
    each = logit_bytes(sizes, moe)
    if sizes.run.kernels.vendor == "rocm" and sizes.run.framework == "primus-megatron":
        return {
            "router.logits": 4 * T * E, "router.scores": 4 * T * E, "router.topk_index": 8 * T * K,
            "router.probs": 4 * T * E + 4 * T * K, "router.map": 5 * T * E,
        }  # fmt: skip
    out: Tensors = {"router.map": T * E, "router.intermediate": T * E * each}
    if auxiliary_losses(moe):
        out["router.aux_intermediate"] = T * E * each
        out["router.aux_loss"] = 4 + 8 * E + each
    return out


def capacity_rows(sizes: Sizes, factor: float) -> Any:
    """Rows per expert under a capacity factor: ceil(tokens*K/E * factor)."""
    scaled = sizes.T * sizes.K * round(factor * 1_000_000)
    return ceil_div(scaled, sizes.E * 1_000_000)
