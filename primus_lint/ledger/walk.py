"""A run of one rank in time: what is allocated after each thing that happens, and what crosses a limit first.

The order is that of the program: states, the events of the first iteration (before the optimizer has its moments), its
step, the events of the second iteration, and the moments of `later`. One recipe, Python integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.ledger import allocator, peak, sharding, states
from primus_lint.ledger.build import chunks_of
from primus_lint.ledger.result import PERSISTENT, STATIC
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.stage_activations import Activations
from primus_lint.schedules import Event, rank_schedule
from primus_lint.schedules.inflight import fewer_microbatches, loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Run
    from primus_lint.ledger.result import Ledger, RankMemory

WORDS = {"F": "forward", "B": "backward", "W": "weight gradient"}
BUILT, FIRST, STEP, STEADY, LATER = range(5)  # phases of a run


class Point(NamedTuple):
    """`item` of `size` bytes came at `moment` of a phase; then `allocated` bytes were allocated."""

    phase: int
    moment: str
    item: str
    size: int
    allocated: int


class Crossing(NamedTuple):
    """The item with which a rank first needs more than the device shows. `surely`: by the low estimate already."""

    rank: RankMemory
    point: Point
    before_bytes: int
    after_bytes: int
    surely: bool


def events_of(run: Run, pp_rank: int) -> list[Event]:
    """The events of a rank in order; of a long step only as many micro-batches as hold every load. Forwards that run beside
    backwards (`overlap_moe_expert_parallel_comm`) come one after the other, as `inflight.loads` has them."""
    pp, vpp, m = run.parallel.pp, run.parallel.vpp, run.batch.num_microbatches or 1
    kind, group = run.schedule.kind, run.parallel.microbatch_group_size
    if kind == "none" or pp == 1:
        chunks = [Event("F", 0, 0, chunk) for chunk in range(vpp)]
        return chunks + [Event("B", 0, 0, chunk) for chunk in reversed(range(vpp))]
    if kind == "zb-heuristic":
        from primus_lint.ledger.inflight import planned_events

        return planned_events(run, m)[pp_rank]
    few = fewer_microbatches(kind, pp, m, vpp, group)
    return rank_schedule(kind, pp, pp_rank, few, vpp, group)


def words(run: Run, event: Event, alive: int) -> str:
    """An event as people say it."""
    chunk = f" in chunk {event.chunk}" if run.parallel.vpp > 1 else ""
    flying = f", {alive} in flight" if run.parallel.pp > 1 else ""
    return f"{WORDS[event.kind]} of micro-batch {event.microbatch + 1}{chunk}{flying}"


def walk(run: Run, rank: RankMemory) -> Iterator[Point]:
    """Everything that happens to a rank of `ledger(run)`, in order."""
    sizes = Sizes(run)
    chunks = chunks_of(run, rank.pp_rank)
    stage = states.stage(sizes, rank.pp_rank, chunks)
    static = {name: item.bytes for name, item in rank.items.items() if item.group == STATIC}
    moments = {name: size for name, size in static.items() if name.startswith("optimizer moment")}
    held = {name: item.bytes for name, item in rank.items.items() if item.group == PERSISTENT}
    coming = {name: size for name, size in static.items() if name.startswith("gradients ")}
    if not sharding.coming_gradients_bytes(sizes, 1):
        coming = {}
    allocated = 0
    building = {name: size for name, size in static.items() if not name.startswith("optimizer ") and name not in coming}
    for name, size in building.items():
        allocated += size
        yield Point(BUILT, "construction", name, size, allocated)
    twice = rank.moments["construction"]
    yield Point(BUILT, "construction", "weights before they move into their buffer", twice - allocated, twice)
    for name, size in static.items():
        if name not in building and name not in moments and name not in coming:
            allocated += size
            yield Point(BUILT, "construction of the optimizer", name, size, allocated)
    for name, size in held.items():
        allocated += size
        yield Point(FIRST, "first iteration", name, size, allocated)
    for name, size in coming.items():
        allocated += size
        yield Point(FIRST, "first iteration", name, size, allocated)
    yield from _iteration(run, sizes, rank, stage, allocated, FIRST)
    for name, size in moments.items():
        allocated += size
        yield Point(STEP, "first optimizer step", name, size, allocated)
    yield from _iteration(run, sizes, rank, stage, allocated, STEADY)
    for name, total in rank.moments.items():
        if name not in (peak.MOMENT, "construction"):
            yield Point(LATER, name, f"what the {name} needs", total - rank.steady_allocated_bytes, total)


def _iteration(run: Run, sizes: Sizes, rank: RankMemory, stage: states.Stage, base: int, phase: int) -> Iterator[Point]:
    """The events of one iteration on top of what is there all the time."""
    chunks = chunks_of(run, rank.pp_rank)
    activations = Activations(sizes)
    kept = [activations.chunk(chunk) for chunk in chunks]
    weights = peak.beside_pool(sizes, chunks, activations, peak.weights(sizes, chunks, activations, stage))
    absent = rank.items.get("gradients not made yet")
    base += peak.moving_bytes(sizes, chunks) - peak.retained_bytes(sizes, chunks, activations)
    base += 0 if absent is None else absent.bytes
    name = "iteration 1" if phase == FIRST else "iteration 2"
    events = events_of(run, rank.pp_rank)
    if run.parallel.pp == 1 or run.schedule.kind == "none":
        found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for index in range(len(events)):
            ready = min(index + 1, run.parallel.vpp)
            found.append((tuple(int(chunk < ready) for chunk in range(run.parallel.vpp)), (0,) * run.parallel.vpp))
    else:
        found = [(load.alive, load.pending) for load in loads(events)]
    for event, (alive, pending) in zip(events, found, strict=True):
        flying = sum(alive)
        moment = f"{name}, {words(run, event, flying)}"
        total = base
        for chunk, count in enumerate(alive):
            total += count * weights.alive[chunk] + pending[chunk] * weights.pending[chunk]
        if event.kind == "F":
            now = total - weights.alive[event.chunk]
            for part, (size, _) in kept[event.chunk].parts.items():
                now += size
                if size:
                    yield Point(phase, moment, f"activations {part}", size, now)
        extra = {"F": weights.forward, "B": weights.backward}.get(event.kind)
        working = 0 if extra is None else extra[event.chunk]
        yield Point(phase, moment, f"what the {WORDS[event.kind]} needs for the moment", working, total + working)


def event_words(run: Run, rank: RankMemory) -> str:
    """The event of forward and backward at which a rank allocates most."""
    best = max((point for point in walk(run, rank) if point.phase == STEADY), key=lambda point: point.allocated)
    return best.moment.partition(", ")[2]


def peak_words(run: Run, rank: RankMemory) -> str:
    """The event or moment at which a rank allocates most."""
    return event_words(run, rank) if rank.peak_moment == peak.MOMENT else rank.peak_moment


def first_over(run: Run, ledger: Ledger, capacity_bytes: int) -> Crossing | None:
    """The first thing in a run that needs more than the device shows: on the rank that meets it earliest, by the low
    estimate if that crosses anywhere, else by the high one. None when even the high estimate fits."""
    for surely in (True, False):
        found = [_over(run, rank, capacity_bytes, surely) for rank in ledger.ranks]
        crossings = [crossing for crossing in found if crossing is not None]
        if crossings:
            return min(crossings, key=lambda crossing: (crossing.point.phase, -crossing.rank.device_low_bytes))
    return None


def _over(run: Run, rank: RankMemory, capacity_bytes: int, surely: bool) -> Crossing | None:
    sizes = Sizes(run)
    outside = rank.device_low_bytes - max(rank.moments.values())
    steady = rank.total(STATIC, PERSISTENT)
    if not surely:
        outside = rank.device_high_bytes - rank.peak_reserved_bytes

    def device(allocated: int) -> int:
        reserved = allocated if surely else max(int(allocator.reserved(sizes, steady, allocated)), allocated)
        return int(outside) + reserved

    for point in walk(run, rank):
        after = device(point.allocated)
        if after > capacity_bytes:
            return Crossing(rank, point, device(point.allocated - point.size), after, surely)
    return None


def kept_tensors(run: Run, pp_rank: int) -> dict[str, dict[str, Any]]:
    """Part of the model -> tensor -> bytes kept for one micro-batch: one layer of each kind of a rank (before full
    recomputation), and what its ends keep."""
    from primus_lint.ledger import head, params
    from primus_lint.ledger.activations.kind import kind_of
    from primus_lint.ledger.activations.layer import kept_selective

    sizes = Sizes(run)
    chunks = chunks_of(run, pp_rank)
    out: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(kind_of(run, layer) for chunk in chunks for layer in chunk.layers):
        name = ("one MoE layer" if kind.moe else "one dense layer") + (" in FP8" if kind.low else "")
        out[name] = kept_selective(sizes, kind)
    if any(chunk.embedding for chunk in chunks):
        out["the embedding"] = head.embedding(sizes)
    if any(params.final_norm_here(sizes, chunk) for chunk in chunks):
        out["the final norm"] = head.final_norm(sizes)
    if any(chunk.loss for chunk in chunks):
        out["output layer and loss"] = head.loss(sizes)
    return {name: {tensor: size for tensor, size in part.items() if size} for name, part in out.items()}
