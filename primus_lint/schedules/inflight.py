"""How many micro-batches a rank keeps for backward, counted on its event list.

A chunk of a micro-batch is *alive* from its forward to its backward. With a split backward it is then *pending* until
its weight gradient has run: the inputs and output gradients of its linear layers stay. A whole backward written as a
fused B and W leaves nothing pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from primus_lint.tuples import NamedTuple

from ..formula import maximum
from .events import Event, rank_schedule, schedule


class Load(NamedTuple):
    """What a rank holds while an event runs: micro-batches per chunk, the event's own among them."""

    kind: str  # "F", "B" or "W"
    chunk: int  # of the event
    alive: tuple[int, ...]  # [chunk]
    pending: tuple[int, ...]  # [chunk]


class Peak(NamedTuple):
    """The largest load of a rank, and the first event at which it is reached."""

    value: Any  # chunks, or the unit of the weights
    position: int  # of the event in the rank's list
    event: Event
    alive: tuple[int, ...]  # [chunk]
    pending: tuple[int, ...]  # [chunk]


class Counts(NamedTuple):
    """Largest numbers of chunks of micro-batches on a rank; the three need not fall together."""

    alive: int
    pending: int
    total: int  # of alive + pending


def loads(events: Sequence[Event]) -> Iterator[Load]:
    """The load at every event of one rank's list."""
    chunks = 1 + max(event.chunk for event in events)
    alive = [0] * chunks
    pending = [0] * chunks
    whole_backward = False  # the W at hand belongs to a B that it is fused with
    split = _has_weight(events)
    for kind, _, _, chunk, fused in events:
        if kind == "F":
            alive[chunk] += 1
        yield Load(kind, chunk, tuple(alive), tuple(pending))
        if kind == "B":
            alive[chunk] -= 1
            whole_backward = fused
            if split and not fused:
                pending[chunk] += 1
        elif kind == "W":
            if not whole_backward:
                pending[chunk] -= 1
            whole_backward = False


def _has_weight(events: Sequence[Event]) -> bool:
    return events[-1].kind == "W"  # a split schedule ends with one on every rank


def counts(events: Sequence[Event]) -> Counts:
    """Largest alive, pending and alive + pending chunks of one rank."""
    alive = pending = total = 0
    most = [0, 0, 0]
    split = _has_weight(events)
    whole_backward = False
    for kind, _, _, _, fused in events:
        if kind == "F":
            alive += 1
            total += 1
            if alive > most[0]:
                most[0] = alive
            if total > most[2]:
                most[2] = total
        elif kind == "B":
            alive -= 1
            whole_backward = fused
            if split and not fused:
                pending += 1
                if pending > most[1]:
                    most[1] = pending
            else:
                total -= 1
        else:
            if not whole_backward:
                pending -= 1
                total -= 1
            whole_backward = False
    return Counts(*most)


def peak(events: Sequence[Event]) -> Peak:
    """The largest alive + pending of one rank, all chunks counted alike."""
    chunks = 1 + max(event.chunk for event in events)
    return weighted_peak(events, [1] * chunks)


def weighted_peak(
    events: Sequence[Event],
    weights: Sequence[Any],
    pending_weights: Sequence[Any] | None = None,
    extra: dict[str, Sequence[Any]] | None = None,
) -> Peak:
    """The largest weighted load of one rank.

    `weights`, `pending_weights`: [chunk], what one alive or pending micro-batch of that chunk takes (pending: the same
    by default). `extra["F"]`, `extra["B"]`, `extra["W"]`: [chunk], what the event itself takes while it runs.
    """
    pending_weights = weights if pending_weights is None else pending_weights
    zero = [0] * len(weights)
    extra = extra or {}
    extra_of = {kind: extra.get(kind, zero) for kind in "FBW"}
    best: Peak | None = None
    for position, load in enumerate(loads(events)):
        value = weigh(load, weights, pending_weights) + extra_of[load.kind][load.chunk]
        if best is None or value > best.value:
            best = Peak(value, position, events[position], load.alive, load.pending)
    assert best is not None
    return best


def weigh(load: Load, weights: Sequence[Any], pending_weights: Sequence[Any]) -> Any:
    """Weight of a load without the event's own extra."""
    value: Any = 0
    for chunk, alive in enumerate(load.alive):
        if alive:
            value = value + alive * weights[chunk]
        if load.pending[chunk]:
            value = value + load.pending[chunk] * pending_weights[chunk]
    return value


def frontier(events: Sequence[Event]) -> tuple[Load, ...]:
    """The few loads of one rank that matter: whatever the (non-negative) weights and extras, the weighted peak is at
    one of them. Left out are loads that another of the same event kind and chunk exceeds everywhere, and those
    between two others on a straight line.
    """
    series: dict[tuple[str, int], list[Load]] = {}
    for load in loads(events):
        line = series.setdefault((load.kind, load.chunk), [])
        if len(line) > 1 and _between(line[-2], line[-1], load):
            line.pop()
        line.append(load)
    kept: list[Load] = []
    for line in series.values():
        front: list[Load] = []
        for load in dict.fromkeys(line):
            if not any(_covers(rival, load) for rival in front):
                front = [rival for rival in front if not _covers(load, rival)]
                front.append(load)
        kept.extend(front)
    return tuple(kept)


def _between(first: Load, middle: Load, last: Load) -> bool:
    """True when the middle one is a point of the straight line from the first to the last load, equal steps apart."""
    return all(
        2 * b == a + c
        for a, b, c in zip(
            first.alive + first.pending, middle.alive + middle.pending, last.alive + last.pending, strict=True
        )
    )


def _covers(load: Load, other: Load) -> bool:
    return all(a >= b for a, b in zip(load.alive + load.pending, other.alive + other.pending, strict=True))


def frontier_peak(
    front: Sequence[Load],
    weights: Sequence[Any],
    pending_weights: Sequence[Any] | None = None,
    extra: dict[str, Sequence[Any]] | None = None,
) -> Any:
    """`weighted_peak(...).value` from a frontier; weights may be arrays that broadcast together."""
    pending_weights = weights if pending_weights is None else pending_weights
    best: Any = 0
    for load in front:
        value = weigh(load, weights, pending_weights)
        if extra and load.kind in extra:
            value = value + extra[load.kind][load.chunk]
        best = maximum(best, value)
    return best


@lru_cache(maxsize=4096)
def rank_frontier(
    kind: str, pp: int, rank: int, microbatches: int, vpp: int = 1, group: int | None = None, overlap: bool = False
) -> tuple[Load, ...]:
    """`frontier` of one rank of a schedule (not "zb-heuristic", whose plan needs costs), in time that does not grow
    with the number of micro-batches. Raises ValueError as `events.schedule` does."""
    if kind == "zb-heuristic":
        raise ValueError("zb-heuristic is planned from costs: take frontier() of its schedule()")
    few = fewer_microbatches(kind, pp, microbatches, vpp, group)
    if kind in ("v-half", "v-min"):
        return frontier(_whole_schedule(kind, pp, few)[rank])
    return frontier(rank_schedule(kind, pp, rank, few, vpp, group, overlap=overlap))


@lru_cache(maxsize=16)
def _whole_schedule(kind: str, pp: int, microbatches: int) -> list[list[Event]]:
    return schedule(kind, pp, microbatches, 2)


def fewer_microbatches(kind: str, pp: int, microbatches: int, vpp: int = 1, group: int | None = None) -> int:
    """A number of micro-batches, not growing with `microbatches`, whose schedule has the same frontier on every rank.

    Schedules repeat once they are full: interleaved ones by groups, DualPipe by pairs, others by single micro-batches.
    (GPipe and its breadth-first form never repeat.) Proved against the event lists in the tests.
    """
    if kind in ("gpipe", "looped-bfs", "zb-heuristic"):
        return microbatches
    if kind == "interleaved" or (kind == "zb-h1" and vpp > 1):
        period = pp if group is None else group
        enough = 4 * period
    else:
        period = 2 if kind == "dualpipe" else 1
        enough = 4 * pp + 2
    if microbatches <= enough:
        return microbatches
    return enough + (microbatches - enough) % period
