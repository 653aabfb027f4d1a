"""Moments of a run at which the peak can lie besides forward and backward, as bytes above the steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.ledger import checkpoint, evaluation, transients
from primus_lint.ledger.muon import MUON, layer_wise, working_bytes

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

GRADIENT_NORM, STEP, GATHER = "gradient norm", "optimizer step", "parameter all-gather"
EVALUATION, SAVE = "evaluation", "checkpoint save"


def moments(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage, owned: Any) -> dict[str, Any]:
    """Name -> bytes above the steady state. On a grid only those that can be more than nothing.

    Batch ramp-up is none of them: with fewer micro-batches of the same size no schedule holds more (tests/schedules).
    """
    out: dict[str, Any] = {}
    zeros = sizes.run.args.get("log_num_zeros_in_grad")
    if sizes.scalar or zeros:
        out[GRADIENT_NORM] = _largest(stage) if zeros else 0
    muon = sizes.run.optimizer.name in MUON
    out[STEP] = working_bytes(sizes, stage) if muon else transients.optimizer_step_bytes(sizes, owned)
    if layer_wise(sizes):
        out[GATHER] = gather_bytes(sizes, stage)
    elif sizes.scalar and sizes.run.optimizer.sharding == "distributed":
        out[GATHER] = 0  # in place, into the parameter buffer
    if sizes.scalar and evaluation.evaluates(sizes.run):
        out[EVALUATION] = evaluation.forward_bytes(sizes, chunks)
    if checkpoint.saves(sizes.run):
        saving = checkpoint.device_bytes(sizes, stage, owned)
        if sizes.scalar or not isinstance(saving, int):
            out[SAVE] = saving
    return out


def gather_bytes(sizes: Sizes, stage: Stage) -> Any:
    """Layer-wise optimizers hand out whole parameters: updated ones come back in one list of flat copies, of the dense
    grid, then of the expert grid, beside the flat copy of the rank's own (Megatron-Core `allgather_params`)."""
    out: Any = 0
    for grid, group in ((stage.dense, sizes.dpcp), (stage.expert, sizes.edp)):
        several = 1 if group is None else (group > 1) * 1
        out = maximum(out, several * (grid.real + grid.real // maximum(group or 1, 1)) * sizes.e)
    return out


def _largest(stage: Stage) -> Any:
    """Elements of the largest parameter: counting zeros makes a byte of each."""
    out: Any = 0
    for chunk in stage.segments:
        for segment in chunk:
            for param in segment.params:
                out = maximum(out, param.numel)
    return out
