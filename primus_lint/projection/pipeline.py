"""How long the micro-batches of one step take through the pipeline, with the real seconds of every stage.

1F1B, interleaved and GPipe by `schedules.bounds.makespan_lower_s`, which is elementwise and serves one recipe and grids
alike: exact for equal stages, never above the schedule's own makespan, and within a stated few percent of it for unequal
ones. The other kinds run the events of `primus_lint.schedules`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum

if TYPE_CHECKING:
    from primus_lint.schedules.timeline import Order


class Times:
    """Seconds per micro-batch, [rank][chunk]. `backward` is the input gradient (and recomputation) alone, `weight` the
    weight gradient; `link_s` passes between neighbouring ranks and occupies neither."""

    __slots__ = ("backward", "forward", "link_s", "weight")

    def __init__(
        self, forward: list[list[Any]], backward: list[list[Any]], weight: list[list[Any]], link_s: Any
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.weight = weight
        self.link_s = link_s


class Span:
    """Makespan of the micro-batches and busy seconds of every rank."""

    __slots__ = ("busy_s", "makespan_s")

    def __init__(self, makespan_s: Any, busy_s: list[Any]) -> None:
        self.makespan_s = makespan_s
        self.busy_s = busy_s

    @property
    def bubble_fraction(self) -> Any:
        """Share of all ranks' time in which they wait for the pipeline."""
        total: Any = 0.0
        for busy_s in self.busy_s:
            total = total + busy_s
        return 1 - total / (len(self.busy_s) * self.makespan_s)


def busy(times: Times, microbatches: Any) -> list[Any]:
    """Seconds of work of every rank in one step."""
    return [
        microbatches * (_sum(times.forward[rank]) + _sum(times.backward[rank]) + _sum(times.weight[rank]))
        for rank in range(len(times.forward))
    ]


def _sum(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


CLOSED_FORMS = frozenset({"none", "1f1b", "interleaved", "gpipe"})
ROUNDS = 6  # of as many micro-batches as ranks, which are simulated: V schedules take five to settle


def makespan(kind: str, times: Times, microbatches: Any, group: Any = None) -> Span:
    """Span of a schedule of this kind: by formula where there is one, else by simulation. Values may be arrays."""
    if kind in CLOSED_FORMS or len(times.forward) == 1:
        return closed_form(kind, times, microbatches, group)
    return simulated(kind, times, microbatches)


def closed_form(kind: str, times: Times, microbatches: Any, group: Any = None) -> Span:
    """Makespan of a schedule of this kind with these times, by formula. Raises KeyError for kinds without one."""
    work = busy(times, microbatches)
    if len(work) == 1:
        return Span(work[0], work)
    if kind not in CLOSED_FORMS:
        raise KeyError(kind)
    from primus_lint.schedules.bounds import makespan_lower_s

    whole = [[b + w for b, w in zip(*rows, strict=True)] for rows in zip(times.backward, times.weight, strict=True)]
    return Span(makespan_lower_s(kind, microbatches, times.forward, whole, None, times.link_s, group), work)


def simulated(kind: str, times: Times, microbatches: Any) -> Span:
    """Makespan by the event simulation, exact up to ROUNDS rounds of pp micro-batches and carried on linearly beyond.

    Every schedule repeats a pattern once its pipeline is full, so that its makespan grows by a constant per round; the
    last two rounds that are simulated give it, and no rank ends before its own work (random times: within 0.5 %).
    """
    pp, chunks = len(times.forward), len(times.forward[0])
    work = busy(times, microbatches)
    if is_scalar(microbatches) and microbatches <= ROUNDS * pp:
        return Span(_timeline(kind, times, microbatches, chunks), work)
    low = _timeline(kind, times, (ROUNDS - 1) * pp, chunks)
    high = _timeline(kind, times, ROUNDS * pp, chunks)
    span = high + (high - low) * (microbatches - ROUNDS * pp) / pp
    for seconds in work:
        span = maximum(span, seconds)
    return Span(span, work)


def _timeline(kind: str, times: Times, microbatches: int, chunks: int) -> Any:
    from primus_lint.schedules.timeline import makespan

    order = _order(kind, len(times.forward), microbatches, chunks)
    return makespan(order, times.forward, times.backward, times.weight, times.link_s)


@lru_cache(maxsize=32)
def _order(kind: str, pp: int, microbatches: int, chunks: int) -> Order:
    from primus_lint.schedules.events import schedule
    from primus_lint.schedules.timeline import compile_order

    try:
        events = schedule(kind, pp, microbatches, chunks)
    except ValueError:  # numbers with which the schedule does not exist (a rule says so): all forwards first
        kind = "gpipe" if chunks == 1 else "looped-bfs"
        events = schedule(kind, pp, microbatches, chunks)
    return compile_order(kind, events)
