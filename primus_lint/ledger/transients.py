"""What lives for a moment only, at the moments that can be a rank's peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes


def backward_bytes(sizes: Sizes, moe: bool) -> Any:
    """Gradients and gathered inputs while one layer runs backward, beyond its kept tensors.

    At the MLP: the incoming gradient, its gathered copy, the gradients of fc2's input and of fc1's output.
    At the attention: the gradients of output, q, k and v.
    """
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    incoming = T * h * act
    gathered = S * h * act
    if moe:
        moe_rows = T * sizes.K * sizes.etp
        g = sizes.g // sizes.etp
        inner = moe_rows * (h + (1 + sizes.fc1) * g) * act
    else:
        inner = gathered + S * (sizes.f // sizes.tp) * (1 + sizes.fc1) * act
    attention = gathered + S * (3 * sizes.Aq * sizes.d + 2 * sizes.kq * sizes.d) * act
    return incoming + maximum(inner, attention)


def optimizer_step_bytes(sizes: Sizes, owned: Any) -> Any:
    """Gradients of the owned shard in fp32 when the buffer is not; low-precision moments are raised to fp32."""
    optimizer = sizes.run.optimizer
    out: Any = 0 * owned
    if sizes.grad == 2 and not optimizer.precision_aware:
        out = out + 4 * owned
    return out
