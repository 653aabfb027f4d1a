"""The smallest number of whole nodes at which some recipe of the space fits.

Sizes are looked at in ascending order; those that no grid of degrees can fill, and those whose memory cannot even hold
every weight, gradient and optimizer state once, are passed over. At each size only forms that need least memory are
looked at: one virtual stage (an interleaved rank never holds fewer micro-batches), nothing or everything recomputed,
no overlap buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from primus_lint.rules.functions import divisors
from primus_lint.tune.certificate import MEMORY_TOLERANCE
from primus_lint.tune.grid import Evaluator, Shape
from primus_lint.tune.keys import CP, EP_OVERLAP, GRAD_OVERLAP, LAYOUT, MBS, PARAM_OVERLAP, PP, TP, TP_OVERLAP, VPP
from primus_lint.tune.records import Found
from primus_lint.tune.rescore import rescore
from primus_lint.tune.search import unrelated_errors
from primus_lint.tune.space import Base, Pins, Space, axes
from primus_lint.tune.splits import MAX_STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.hardware import Accelerator
    from primus_lint.ir.run import Run
    from primus_lint.subject import Subject

MAX_FACTOR = 64  # how far to look, in multiples of the recipe's own size
EXACT = 16  # candidates at the limit that are scored exactly, at each size
DIVISIBLE = 720_720 << 12  # a size that every degree divides


def smallest_world(
    subject: Subject, accelerator: Accelerator, pins: Pins | None = None, min_headroom: float = 0.0
) -> int | None:
    """GPUs of the smallest larger number of whole nodes at which some recipe of the space fits; None up to MAX_FACTOR
    times the recipe's own size."""
    world, per_node = int(subject.target.world_size or 0), subject.target.gpus_per_node
    capacity = accelerator.visible_hbm_bytes * (1 - min_headroom)
    assert subject.run is not None
    least = held_bytes(subject.run)
    pins = pins or Pins()
    for size in sizes(subject.run, dict(subject.lowered.namespace.given), pins, world, per_node):
        if least / size <= capacity and fits_at(subject.at_world(size), accelerator, pins, capacity):
            return size
    return None


def sizes(run: Run, given: dict[str, Any], pins: Pins, world: int, per_node: int) -> list[int]:
    """Larger numbers of whole nodes that some degrees fill and whose data-parallel size divides the global batch."""
    at_most = world * MAX_FACTOR
    found = set()
    batch = int(run.batch.global_batch_size or 0)
    stages = [run.parallel.pp] if not pins.allows(PP) else list(range(1, min(run.model.num_layers, MAX_STAGES) + 1))
    # degrees are divisors of the size, so take them at a size that everything divides
    wide = {axis.keys[0]: [row[0] for row in axis.rows] for axis in axes(_at(run, DIVISIBLE), given, pins)}
    for micro in wide[MBS]:
        for dp in divisors(batch // micro) if batch % micro == 0 and batch else []:
            for pp in stages:
                for tp in wide[TP]:
                    for cp in wide[CP]:
                        size = dp * pp * tp * cp
                        if world < size <= at_most and size % per_node == 0:
                            found.add(size)
    return sorted(found)


def _at(run: Run, world: int) -> Run:
    from primus_lint.ir.record import replace

    return replace(run, target=replace(run.target, world_size=world))


def held_bytes(run: Run) -> int:
    """Bytes of all matrices with their gradients and optimizer state, each held once in the whole job (a lower bound)."""
    from primus_lint.ledger.muon import MUON
    from primus_lint.ledger.optimizer import state_bytes
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.projection.flops import mlp_weights, projection_weights

    model, sizes_ = run.model, Sizes(run)
    moe = model.moe
    elements = model.num_layers * projection_weights(model)
    elements += (model.vocab_size or 0) * model.hidden_size * (1 if model.tied_embeddings else 2)
    for layer in range(model.num_layers):
        if moe is not None and model.is_moe_layer(layer):
            elements += moe.num_experts * mlp_weights(model, moe.ffn_hidden_size)
        else:
            elements += mlp_weights(model, model.ffn_hidden_size)
    states = 4 if run.optimizer.name in MUON else state_bytes(sizes_).total
    return int(elements * (sizes_.e + sizes_.grad + states))


def fits_at(subject: Subject, accelerator: Accelerator, pins: Pins, capacity_bytes: float) -> bool:
    """Whether some legal recipe of the space fits at the subject's world size."""
    run = subject.run
    if run is None:
        return False
    excused = unrelated_errors(subject)
    if rescore(subject, capacity_bytes, {}, excused) is not None:
        return True
    evaluator = Evaluator(subject, accelerator, excused)
    frugal = Pins(pins.keys, {**_frugal(evaluator.given, pins), **pins.limits}, pins.unsafe)
    space = Space(run, evaluator.given, accelerator, frugal, {})
    shapes: dict[Any, Shape] = {}
    with np.errstate(all="ignore"):
        for base in space.bases():
            if not _one_stage(base):
                continue
            if base.axes not in shapes:
                shapes[base.axes] = Shape(base.axes, evaluator.given)
            for found in _fitting(evaluator, space, base, shapes[base.axes], capacity_bytes):
                if _confirmed(subject, found, evaluator.given, capacity_bytes, excused):
                    return True
    return False


def _frugal(given: dict[str, Any], pins: Pins) -> dict[str, tuple[Any, ...]]:
    """Limits that leave out what only adds memory."""
    keys = (TP_OVERLAP, GRAD_OVERLAP, PARAM_OVERLAP, EP_OVERLAP)
    return {key: tuple({False, bool(given.get(key))}) for key in keys if pins.allows(key)}


def _one_stage(base: Base) -> bool:
    """Whether a base has one virtual stage."""
    layout = base.keys[LAYOUT]
    if layout is not None:
        from primus_lint.ir.layout import LayoutError, units_of

        try:
            return bool(len(units_of(layout)) == base.keys[PP])
        except LayoutError:
            return False
    return base.keys[VPP] in (None, 1) and not base.keys["num_layers_per_virtual_pipeline_stage"]


def _fitting(evaluator: Evaluator, space: Space, base: Base, shape: Shape, capacity_bytes: float) -> Iterator[Found]:
    """Legal elements of a base that fit (or nearly do), one form of recomputation at a time."""
    for form, axis in space.forms(base):
        granularity, method = form["recompute_granularity"], form["recompute_method"]
        if granularity == "selective" or (granularity == "full" and method == "block" and axis is not None):
            continue
        keys = {**base.keys, **form}
        if axis is not None:
            keys["recompute_num_layers"] = axis.rows[0][0]
        names = evaluator.names(keys, shape.columns)
        legal = evaluator.legal(names, [*evaluator.others, *evaluator.about_forms], shape.valid, _ignore)
        if not legal.any():
            continue
        indices = np.flatnonzero(legal)
        columns = shape.chosen(indices)
        peak = evaluator.bytes(evaluator.run(evaluator.names(keys, columns)), (len(indices), 1))
        if peak is None:
            continue
        good = np.flatnonzero(peak[:, 0] <= capacity_bytes * (1 + MEMORY_TOLERANCE))
        if len(good):
            order = good[np.argsort(peak[good, 0], kind="stable")][:EXACT]
            nothing = np.zeros(len(order))
            yield Found(keys, shape, indices[order], None, nothing, nothing, peak[order, 0])


def _confirmed(
    subject: Subject, found: Found, given: dict[str, Any], capacity_bytes: float, excused: frozenset[str]
) -> bool:
    return any(
        rescore(subject, capacity_bytes, found.changes(position, given), excused) is not None
        for position in range(len(found.indices))
    )


def _ignore(name: str, number: int) -> None:
    """Nothing to count."""
