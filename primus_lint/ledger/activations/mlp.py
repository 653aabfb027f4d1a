"""Dense and shared-expert MLP: tensors kept for backward by one layer and micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger.activations.norms import input_bytes, statistics_bytes
from primus_lint.ledger.activations.quantize import keeps_original, linear_input, quantized

if TYPE_CHECKING:
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def dense(sizes: Sizes, kind: Kind) -> Tensors:
    """Pre-MLP norm (fused into fc1 for TE), fc1, activation, fc2."""
    T, h = sizes.T, sizes.h
    width = sizes.f // sizes.tp
    out: Tensors = {
        "mlp.x": input_bytes(sizes, T, h),
        "mlp.norm_out": linear_input(sizes, kind.low, T, h),
        "mlp.norm_statistics": statistics_bytes(sizes, T),
    }
    out.update(activation(sizes, "mlp", sizes.S * width))
    out["mlp.fc2_in"] = linear_input(sizes, kind.low, sizes.S, width)
    return out


def activation(sizes: Sizes, name: str, elements: Any) -> Tensors:
    """What the activation function keeps; `elements` is the number of its output elements on this rank.

    A fused activation keeps fc1's output (in one byte with `activation_func_fp8_input_store`). Unfused, a gated one
    keeps the activated and the linear half besides; an ungated one keeps its input or output, of the same size.
    """
    run, act = sizes.run, sizes.act
    fused = run.kernels.bias_activation_fusion
    stored = 1 if fused and run.kernels.fp8_input_store and run.model.gated else act
    out: Tensors = {f"{name}.fc1_out": elements * sizes.fc1 * stored}
    if run.model.gated and not fused:
        out[f"{name}.activated"] = elements * act
        out[f"{name}.linear"] = elements * act
    return out


def shared_experts(sizes: Sizes, kind: Kind) -> Tensors:
    """Shared experts: fc1 reads the pre-MLP norm's output, which the router keeps.

    With delayed scaling (and Turbo GEMMs) fc1 keeps its own one-byte copy. With `moe_shared_expert_overlap` fc1's
    input is gathered over the tensor ranks beforehand and kept whole.
    """
    run = sizes.run
    moe = run.model.moe
    if not sizes.shared or moe is None:
        return {}
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    width = sizes.shared // sizes.tp
    out = activation(sizes, "shared", S * width)
    out["shared.fc2_in"] = linear_input(sizes, kind.low, S, width)
    own_copy = kind.low and (not keeps_original(sizes) or run.kernels.turbo_gemm)
    if moe.shared_expert_overlap:
        gathered = quantized(sizes, S, h) if own_copy else S * h * act
        out["shared.fc1_in"] = gathered if own_copy else where(sizes.sp, gathered, 0)
    elif own_copy:
        out["shared.fc1_in"] = quantized(sizes, T, h)
    if moe.shared_expert_gate:
        out["shared.output"] = T * h * act
        out["shared.gate_score"] = T * act
    return out
