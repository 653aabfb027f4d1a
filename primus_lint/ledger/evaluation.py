"""Evaluation: the forward pass of a micro-batch without gradients, while all states stand.

Source: Megatron-LM `evaluate` (the micro-batch of training, or `eval_micro_batch_size`; `forward_only`, no_grad);
Megatron-Core's schedules keep no inputs for a backward then. Nothing outlives its use but the residual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.ledger import head
from primus_lint.ledger.activations.experts import rows
from primus_lint.ledger.transients import head_dimensions

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run
    from primus_lint.ledger.sizes import Sizes


def evaluates(run: Run) -> bool:
    """Whether the job evaluates between its steps."""
    return bool(run.args.get("eval_iters")) and bool(run.args.get("eval_interval"))


def forward_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """The most that one event of the forward pass holds: a layer's attention or MLP, or the loss."""
    run = sizes.run
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    qk, kv = head_dimensions(sizes)
    residual = T * h * act
    normed = S * h * act  # gathered over the tensor ranks under sequence parallelism
    projected = S * (sizes.Aq * qk + kv * (qk + sizes.dv)) * act
    most: Any = residual + normed + projected + S * sizes.Aq * sizes.dv * act
    moe = any(run.model.is_moe_layer(layer) for chunk in chunks for layer in chunk.layers)
    if moe:
        routed, g = rows(sizes) * act, sizes.g // sizes.etp
        most = maximum(most, 2 * residual + routed * (h + g * (sizes.fc1 + 1)))
    else:
        width = S * (sizes.f // sizes.tp) * act
        most = maximum(most, residual + normed + width * (sizes.fc1 + 1))
    if any(chunk.loss for chunk in chunks):
        most = maximum(most, normed + head.logits_bytes(sizes))
    return most * (run.args.get("eval_micro_batch_size") or sizes.mbs) // sizes.mbs
