"""Dense and shared-expert MLP: tensors kept for backward by one layer and micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ledger.activations.norms import statistics_bytes

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def dense(sizes: Sizes) -> Tensors:
    """Pre-MLP norm fused into fc1 (TE LayerNormLinear), activation, fc2."""
    act, T, h = sizes.act, sizes.T, sizes.h
    out: Tensors = {
        "mlp.x": T * h * act,
        "mlp.norm_out": T * h * act,
        "mlp.norm_statistics": statistics_bytes(sizes, T),
    }
    out.update(activation(sizes, "mlp", sizes.S * (sizes.f // sizes.tp)))
    return out


def activation(sizes: Sizes, name: str, elements: Any) -> Tensors:
    """fc1's output and fc2's input; `elements` is the number of elements of fc2's input on this rank.

    Unfused gated activations keep the activated half and the linear half besides fc1's output.
    """
    run, act = sizes.run, sizes.act
    out: Tensors = {f"{name}.fc1_out": elements * sizes.fc1 * act}
    if not run.kernels.bias_activation_fusion:
        if run.model.gated:
            out[f"{name}.activated"] = elements * act
            out[f"{name}.linear"] = elements * act
        elif run.model.linear_bias:
            pass  # the sum with the bias takes the place of fc1's output
    elif run.kernels.fp8_input_store and run.model.gated:
        out[f"{name}.fc1_out"] = elements * sizes.fc1
    out[f"{name}.fc2_in"] = elements * act
    return out


def shared_experts(sizes: Sizes) -> Tensors:
    """Shared experts: fc1's input is the pre-MLP norm's output, kept by the router anyway."""
    if not sizes.shared:
        return {}
    act = sizes.act
    moe = sizes.run.model.moe
    out = activation(sizes, "shared", sizes.S * (sizes.shared // sizes.tp))
    if moe is not None and moe.shared_expert_gate:
        out["shared.output"] = sizes.T * sizes.h * act
        out["shared.gate_score"] = sizes.T * act
    return out
