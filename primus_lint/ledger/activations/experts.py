"""Dispatch and routed experts: tensors kept for backward by one layer and micro-batch.

Balanced routing: a rank's experts see T*K*ETP token rows. Hot experts scale the `experts.*` terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import as_int, ceil_div, minimum, round_up, where
from primus_lint.ledger.activations.kind import recipe
from primus_lint.ledger.activations.quantize import BLOCK, MX_BLOCK, linear_input, quantized
from primus_lint.ledger.activations.router import capacity_rows, logit_bytes, of_2026
from primus_lint.ledger.primus import mega_moe, variable

if TYPE_CHECKING:
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def rows(sizes: Sizes) -> Any:
    """Token rows that the experts of a rank see: T*K*ETP when balanced, bounded by a capacity factor.

    With Primus's sync-free stage 3 the buffer has the worst case whatever the load: EP*ETP times the balanced rows.
    """
    run = sizes.run
    moe = run.model.moe
    assert moe is not None
    balanced = sizes.T * sizes.K * sizes.etp
    if moe.capacity_factor is not None:
        bounded = capacity_rows(sizes, moe.capacity_factor) * sizes.E * sizes.etp
        return bounded if moe.pad_to_capacity else minimum(balanced, bounded)
    if run.kernels.sync_free_moe_stage >= 3:
        return balanced * sizes.ep
    return balanced


def padded_rows(sizes: Sizes, kind: Kind) -> Any:
    """Rows after padding each expert's share for FP8 kernels (16; 32 for mxfp8 and FP4), balanced."""
    plain = rows(sizes)
    if not kind.low:
        return plain
    multiple = 32 if recipe(sizes.run) in ("mxfp8", "nvfp4", "mxfp4") else 16
    return sizes.local_experts * round_up(ceil_div(plain, sizes.local_experts), multiple)


def dispatch(sizes: Sizes) -> Tensors:
    """Permutation of tokens: probabilities, mask and row indices (or the fused kernel's row map)."""
    run = sizes.run
    moe = run.model.moe
    assert moe is not None
    T, E, K = sizes.T, sizes.E, sizes.K
    probs = logit_bytes(sizes, moe)
    if moe.dispatcher == "flex":
        return _deepep(sizes)
    if moe.permute_fusion:
        several = where(sizes.local_experts > 1, 1, 0)
        out: Tensors = {"dispatch.row_map": 4 * T * (2 * E + 1)}
        if moe.dispatcher == "alltoall":
            out["dispatch.chunk_maps"] = 2 * 4 * rows(sizes) * as_int(several)
        return out
    seen = sizes.etp if moe.dispatcher == "allgather" else 1  # gathered over the expert-tensor ranks
    if of_2026(sizes) and not moe.pad_to_capacity:
        return {"dispatch.sorted": T * E * seen * 8, "dispatch.index": T * K * seen * 8}
    return {
        "dispatch.probs": T * E * seen * probs,
        "dispatch.mask": T * E * seen,
        "dispatch.index": T * K * seen * 8,
    }


def also_held_bytes(sizes: Sizes, tensors: Tensors) -> Any:
    """Of a layer's kept tensors, what its token dispatcher holds as attributes as well: the row mapping, the gathered
    probabilities of the local experts (all-gather), the top-k indices (DeepEP), the map of the fused router (all-to-all)."""
    moe = sizes.run.model.moe
    if moe is None or not holds_metadata(sizes):
        return 0
    names = {"allgather": ("experts.probs",), "flex": ("dispatch.topk_index",)}.get(moe.dispatcher, ())
    out: Any = 0
    for name in ("dispatch.index", "dispatch.row_map", *names):
        out = out + tensors.get(name, 0)
    if moe.dispatcher == "alltoall" and "router.map" in tensors:
        out = out + sizes.T * sizes.E
    return out


def holds_metadata(sizes: Sizes) -> bool:
    """Whether the dispatchers keep anything past the combination: Primus-Turbo's do not, MegaMoE has none."""
    return not (sizes.run.kernels.turbo_deepep or mega_moe(sizes.run))


def _deepep(sizes: Sizes) -> Tensors:
    """DeepEP: top-k indices, the handle (source rows, in-rank mask, send heads) and the fused permutation's row map."""
    T, K, tokens = sizes.T, sizes.K, received(sizes)
    return {
        "dispatch.topk_index": 8 * T * K,
        "dispatch.handle": 4 * tokens + 5 * T * sizes.ep * sizes.etp,
        "dispatch.row_map": 4 * tokens * (2 * sizes.local_experts + 1) + 4,
    }


def received(sizes: Sizes) -> Any:
    """Distinct tokens that a rank receives from DeepEP: T*ranks*(1-(1-1/ranks)^K) for random routing; the worst case,
    T*ranks, from Primus's sync-free stage 2 on."""
    ranks = sizes.ep * sizes.etp
    if sizes.run.kernels.sync_free_moe_stage >= 2:
        return sizes.T * ranks
    return as_int(sizes.T * ranks * (1 - (1 - 1 / ranks) ** sizes.K))


def experts(sizes: Sizes, kind: Kind) -> Tensors:
    """Routed experts: fc1's input, what the activation keeps, probabilities per row, fc2's input."""
    run = sizes.run
    moe = run.model.moe
    assert moe is not None
    act, local = sizes.act, sizes.local_experts
    g = sizes.g // sizes.etp
    width = moe.latent_size or sizes.h
    turbo = run.kernels.turbo_grouped_gemm
    low = kind.low and not run.experts_in_16_bits
    padded = padded_rows(sizes, kind)
    fused = run.kernels.bias_activation_fusion and run.model.gated
    stored = 1 if fused and run.kernels.fp8_input_store else act
    probs = 4 if turbo or run.kernels.turbo_deepep else logit_bytes(sizes, moe)
    out: Tensors = {
        "experts.fc1_in": _grouped_input(sizes, low, padded, width, turbo),
        "experts.fc1_out": padded * sizes.fc1 * g * stored,
        "experts.probs": padded * probs,
        "experts.fc2_in": _grouped_input(sizes, low, padded, g, turbo),
    }
    eager = moe.legacy_grouped_gemm and variable(run, "TORCH_COMPILE_DISABLE") == "1"
    if eager:  # else the product exists inside the compiled graph alone
        out["experts.activated"] = padded * g * act
        out["experts.product"] = padded * g * act
    if not fused and not moe.legacy_grouped_gemm:
        out["experts.product"] = padded * g * act
        if run.model.gated:
            out["experts.activated"] = padded * g * act
            out["experts.linear"] = padded * g * act
    if turbo:
        out["experts.offsets"] = 2 * (16 * local + 8)
        if run.args.get("use_turbo_fused_act_with_probs"):
            out["experts.row_mask"] = 8 * padded
    if moe.latent_size:
        out["latent_experts.fc2_proj_in"] = linear_input(sizes, kind.low, sizes.T, moe.latent_size)
        if kind.low:  # in 16 bits the projection down shares the norm's output
            out["latent_experts.fc1_proj_in"] = quantized(sizes, sizes.T, sizes.h)
    return out


def _grouped_input(sizes: Sizes, low: bool, total_rows: Any, columns: Any, turbo: bool) -> Any:
    """A grouped linear's input: one tensor, or one quantized tensor per local expert. Turbo allocates the worst padding of
    every expert to 128 rows for blocks (and to 128 columns for mxfp8), and one tensor for per-tensor scaling."""
    if not low:
        return total_rows * columns * sizes.act
    local = sizes.local_experts
    if turbo:
        how = recipe(sizes.run)
        blocks = total_rows + BLOCK * local
        if how == "blockwise":
            return blocks * columns + blocks * columns // MX_BLOCK
        if how == "mxfp8":
            elements = round_up(blocks, BLOCK) * round_up(columns, BLOCK)
            return elements + elements // MX_BLOCK
        return quantized(sizes, total_rows, columns)
    return local * quantized(sizes, total_rows // local, columns)
