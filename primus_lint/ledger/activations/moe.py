"""Mixture of experts: router, dispatch and routed experts, tensors kept for backward by one layer and micro-batch.

Balanced routing: every expert gets T*K*EP*ETP/E tokens. Hot experts scale the `experts.*` terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ledger.activations.mlp import shared_experts
from primus_lint.ledger.activations.norms import statistics_bytes

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def mixture(sizes: Sizes) -> Tensors:
    """Pre-MLP norm (a module of its own), shared experts, router, dispatch, experts."""
    act, T, h = sizes.act, sizes.T, sizes.h
    out: Tensors = {
        "mlp.x": T * h * act,
        "mlp.norm_statistics": statistics_bytes(sizes, T),
        "mlp.norm_out": T * h * act,
    }
    out.update(shared_experts(sizes))
    out.update(router(sizes))
    out.update(dispatch(sizes))
    out.update(experts(sizes))
    return out


def router(sizes: Sizes) -> Tensors:
    """Top-k routing with its scores and the auxiliary loss, unfused (aten operators of megatron-core)."""
    moe = sizes.run.model.moe
    assert moe is not None
    T, E, K = sizes.T, sizes.E, sizes.K
    act = sizes.act
    logits = 4 if moe.router_dtype == "fp32" else 8 if moe.router_dtype == "fp64" else act
    out: Tensors = {}
    if moe.score_function == "softmax":
        out["router.topk_index"] = T * K * 8
        out["router.softmax"] = T * K * 4
        if moe.aux_loss:
            out["router.aux_softmax"] = T * E * 4
            out["router.aux_topk_index"] = T * K * 8
            out["router.aux_counts"] = 8 * E + 4
    else:
        out["router.sigmoid"] = T * E * 4
        out["router.topk_index"] = T * K * 8
        out["router.gathered"] = T * K * logits + T * logits
        if moe.aux_loss:
            out["router.aux_sigmoid"] = T * E * logits + T * logits
            out["router.aux_scores"] = T * E * logits
            out["router.aux_topk_index"] = T * K * 8
            out["router.aux_counts"] = 8 * E + 2
    return out


def rows(sizes: Sizes) -> Any:
    """Token rows that the experts of a rank see under balanced routing: T*K*ETP."""
    return sizes.T * sizes.K * sizes.etp


def dispatch(sizes: Sizes) -> Tensors:
    """Permutation of the tokens of a rank: transposed probabilities, transposed mask, int64 row indices."""
    moe = sizes.run.model.moe
    assert moe is not None
    T, E, K = sizes.T, sizes.E, sizes.K
    probs = 4 if moe.router_dtype in ("fp32", "fp64") else sizes.act
    if moe.permute_fusion:
        return {"dispatch.row_map": 4 * T * (2 * E + 1)}
    return {"dispatch.probs": T * E * probs, "dispatch.mask": T * E, "dispatch.index": T * K * 8}


def experts(sizes: Sizes) -> Tensors:
    """Grouped experts: fc1's input, fc1's output, probabilities per row, fc2's input."""
    run = sizes.run
    moe = run.model.moe
    assert moe is not None
    act = sizes.act
    P = rows(sizes)
    g = sizes.g // sizes.etp
    width = moe.latent_size or sizes.h
    fc1_out = P * sizes.fc1 * g * act
    if run.kernels.fp8_input_store and run.model.gated:
        fc1_out = P * sizes.fc1 * g
    out: Tensors = {
        "experts.fc1_in": P * width * act,
        "experts.fc1_out": fc1_out,
        "experts.probs": P * (4 if moe.router_dtype in ("fp32", "fp64") else act),
        "experts.fc2_in": P * g * act,
    }
    if not run.kernels.bias_activation_fusion and run.model.gated:
        out["experts.activated"] = P * g * act
        out["experts.linear"] = P * g * act
    return out
