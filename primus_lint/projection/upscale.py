"""Layers that were measured, carried to the recipe's degrees.

A layer measured at (tp', ep', cp', micro-batch', sequence') took T seconds, of which C are collectives (0 when they were
left out). The model says A' seconds of compute for it there, and A at the recipe's own degrees. The recipe's layer then
computes for
    A * (T - C) / A'
which is T itself at the degrees that were measured, and elsewhere what the model says of the difference. Collectives,
recomputation, schedule, gradient reduction and optimizer are added by the projection as for any other layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.formula import is_scalar, log2, minimum, where
from primus_lint.ir.record import replace
from primus_lint.measure.plan import DEGREES, layer_shape
from primus_lint.projection import cost, shapes
from primus_lint.projection.compute import Block, Context
from primus_lint.projection.placement import place

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.ir.run import Run
    from primus_lint.measure.records import Measurement
    from primus_lint.projection.cost import Cost
    from primus_lint.projection.layers import Layer
    from primus_lint.projection.project import Projection

EXACT, CARRIED = "measured layer", "measured layer, carried"
MEASURED_NOTE = "measured:"
TIMED = cost.COMPUTE | {cost.HOST}  # the classes that a measured layer holds
ADDED = {
    cost.RECOMPUTE: "recomputation", cost.CONTENTION: "compute slowed by communication", cost.STRAGGLER: "slowest device",
    cost.TP: "tensor-parallel collectives", cost.CP: "context-parallel exchange", cost.EP: "expert dispatch and combine",
    cost.FSDP: "gathers and reductions of sharded weights", cost.PP: "sends between stages", cost.BUBBLE: "pipeline waits",
    cost.DP: "gradient reduction and parameter gathering", cost.OPTIMIZER: "optimizer step",
}  # fmt: skip


class Factor(NamedTuple):
    """What to multiply modelled compute with, forward, input gradient and weight gradient; and how sure that is."""

    forward: Any
    backward: Any
    weight: Any
    distance: Any  # in log2 of the degrees; 0: measured as it is
    spread: Any


def layer(context: Context, moe: bool, build: Callable[[Context, bool], Layer]) -> Layer:
    """A decoder layer of a kind: as `build` models it, with its compute as it was measured."""
    kind = "moe_layer" if moe else "dense_layer"
    before = _tiers(context)
    built = build(context, moe)
    factor = _factor(context, kind, lambda other: build(other, moe).block)
    if factor is not None:
        _apply(context, kind, built.block, factor, before)
        _scale(built.again, factor.forward, factor)
    return built


def end(context: Context, kind: str, build: Callable[[Context], Block | None]) -> Block | None:
    """The embedding or the head, as `build` models it, with its compute as it was measured."""
    before = _tiers(context)
    block = build(context)
    if block is None:
        return None
    factor = _factor(context, kind, build)
    if factor is not None:
        _apply(context, kind, block, factor, before)
    return block


def account(projection: Projection) -> list[str]:
    """What was measured and what was added to it, in words; what was calibrated on published runs."""
    if not any(note.startswith(MEASURED_NOTE) for note in projection.notes):
        return list(projection.notes)
    added = [
        f"{words} ({', '.join(projection.tiers.get(kind, ())) or 'computed'})"
        for kind, words in ADDED.items()
        if projection.breakdown_s.get(kind, 0.0) > 0
    ]
    return [*projection.notes, f"added: {', '.join(added)}"]


def _tiers(context: Context) -> dict[str, set[str]]:
    if context.device.measured is None:
        return {}
    return {kind: set(names) for kind, names in context.device.tiers.items()}


def _factor(context: Context, kind: str, build: Callable[[Context], Block | None]) -> Factor | None:
    """The factor of the nearest measured layer of the same model facts and number format; None without one."""
    device = context.device
    if device.measured is None or kind not in device.measured.layers:
        return None
    dtype = "fp8" if context.fp8 else context.run.precision.params_dtype
    wanted = layer_shape(context.run, kind)
    best: Factor | None = None
    nearest: Measurement | None = None
    for (shape_dtype, _), rows in _by_shape(device.measured.layers[kind]).items():
        shape = next(iter(rows.values())).shape
        if shape_dtype != dtype or not _same_facts(shape, wanted) or "forward" not in rows or "backward" not in rows:
            continue
        modelled = _modelled(context, shape, build)
        found = None if modelled is None else _compare(rows, modelled, _distance(shape, wanted))
        if found is None:
            continue
        if best is None:
            best, nearest = found, rows["forward"]
            continue
        closer = found.distance < best.distance
        if closer is True:
            best, nearest = found, rows["forward"]
        elif closer is not False:
            best = Factor(*(where(closer, new, old) for new, old in zip(found, best, strict=True)))
    if best is not None and nearest is not None and is_scalar(best.distance):
        _note(context, kind, nearest, best.distance)
    return best


def _by_shape(rows: list[Measurement]) -> dict[tuple[str, str], dict[str, Measurement]]:
    found: dict[tuple[str, str], dict[str, Measurement]] = {}
    for row in rows:
        found.setdefault((row.dtype, repr(sorted(row.shape.items()))), {})[row.layout] = row
    return found


def _same_facts(shape: dict[str, Any], wanted: dict[str, Any]) -> bool:
    ignored = {*DEGREES, "num_experts", "communication"}
    return all(shape.get(key) == wanted.get(key) for key in {*shape, *wanted} - ignored)


def _distance(shape: dict[str, Any], wanted: dict[str, Any]) -> Any:
    """How far the degrees lie apart: the sum of |log2| of their ratios; of the experts, of their number on a rank."""
    total: Any = 0.0
    for key in DEGREES:
        if key in wanted and key in shape and key != "ep":
            own, other = wanted[key], shape[key]
            if key == "sequence_parallel":
                own, other = own + 1, other + 1
            total = total + abs(log2(own / other))
    if "num_experts" in shape and "num_experts" in wanted:
        total = total + abs(log2(wanted["num_experts"] / wanted["ep"] / (shape["num_experts"] / shape["ep"])))
    return total


def _modelled(context: Context, shape: dict[str, Any], build: Callable[[Context], Block | None]) -> Block | None:
    """The block as the model has it at the measured degrees, without calibration."""
    device, run = context.device, at_degrees(context.run, shape)
    tiers, learned, notes, in_situ = device.tiers, device.learned, device.notes, device.in_situ
    device.tiers, device.learned, device.notes, device.in_situ = {}, None, [], {}
    try:
        held = shapes.tokens(run)
        routed = None if run.model.moe is None else shapes.routing(run.model.moe, run.parallel, held)
        where_ = place(run.parallel, device.domain_gpus)
        return build(Context(run, device, where_, held, routed, context.fp8))
    finally:
        device.tiers, device.learned, device.notes, device.in_situ = tiers, learned, notes, in_situ


def at_degrees(run: Run, shape: dict[str, Any]) -> Run:
    """The recipe at the degrees that a layer was measured at."""
    parallel = replace(
        run.parallel,
        tp=shape["tp"],
        cp=shape["cp"],
        ep=shape.get("ep", 1),
        etp=shape.get("etp", 1),
        sequence_parallel=bool(shape["sequence_parallel"]),
    )
    batch = replace(run.batch, micro_batch_size=shape["micro_batch_size"], seq_length=shape["seq_length"])
    model = run.model
    if model.moe is not None and "num_experts" in shape:
        model = replace(model, moe=replace(model.moe, num_experts=shape["num_experts"]))
    return replace(run, parallel=parallel, batch=batch, model=model)


def _compare(rows: dict[str, Measurement], block: Block, distance: Any) -> Factor | None:
    """Measured over modelled seconds of a block; None when the model's collectives alone take longer."""
    forward_s, backward_s = rows["forward"].median_s, rows["backward"].median_s
    if rows["forward"].shape.get("communication"):
        forward_s -= _others(block.forward)
        backward_s -= _others(block.backward) + _others(block.weight)
    there, back, weight = (part.of(TIMED) for part in (block.forward, block.backward, block.weight))
    if min(forward_s, backward_s) <= 0 or min(there, back) <= 0:
        return None
    spread = max(rows["forward"].spread, rows["backward"].spread)
    dgrad = rows.get("dgrad")
    if dgrad is not None and weight > 0 and dgrad.median_s < backward_s:
        return Factor(
            forward_s / there, dgrad.median_s / back, (backward_s - dgrad.median_s) / weight, distance, spread
        )
    both = backward_s / (back + weight)
    return Factor(forward_s / there, both, both, distance, spread)


def _others(part: Cost) -> Any:
    return part.seconds - part.of(TIMED)


def _apply(context: Context, kind: str, block: Block, factor: Factor, before: dict[str, set[str]]) -> None:
    _scale(block.forward, factor.forward, factor)
    _scale(block.backward, factor.backward, factor)
    _scale(block.weight, factor.weight, factor)
    device = context.device
    exact = is_scalar(factor.distance) and factor.distance == 0
    for name in list(device.tiers):
        if name in TIMED:
            device.tiers[name] = before.get(name, set()) | {EXACT if exact else CARRIED}


def _scale(part: Cost, factor: Any, sure: Factor) -> None:
    """Multiply the classes that a layer's time holds. Their spread is the measurement's, and grows to the model's own one
    factor of two away from what was measured."""
    for kind, (seconds, spread) in list(part.parts.items()):
        if kind in TIMED:
            time_s = seconds * factor
            part.parts[kind] = (time_s, time_s * sure.spread + spread * factor * minimum(sure.distance, 1.0))


def _note(context: Context, kind: str, row: Measurement, distance: float) -> None:
    degrees = ", ".join(f"{name} {row.shape[name]}" for name in DEGREES if name in row.shape)
    text = f"{MEASURED_NOTE} {kind.replace('_', ' ')} at {degrees} ({row.stack}, {row.date})"
    if row.shape.get("communication"):
        text += ", its collectives taken off"
    if distance:
        text += ", carried to this recipe's degrees"
    if text not in context.device.notes:
        context.device.notes.append(text)
