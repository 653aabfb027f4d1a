"""When every event of a schedule starts and ends: an exact simulation, linear in the number of events.

The order of the events of a rank is fixed, so the order in which start times can be computed does not depend on the
durations: `compile_order` finds it once, `simulate` then takes two additions and a maximum per event. Durations may be
NumPy arrays; one pass then simulates a whole grid of recipes with the same schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..formula import is_scalar, maximum
from .events import Event, schedule, stage_of

Durations = Sequence[Sequence[Any]]  # [rank][chunk], seconds


class Step(NamedTuple):
    """One event, or one fused group, with what it waits for and what it hands on."""

    rank: int
    work: tuple[int, ...]  # per member: index of its duration, (F/B/W * ranks + rank) * chunks + chunk
    inputs: tuple[tuple[int, int], ...]  # (result, rank that computes it)
    results: tuple[int, ...]
    members: tuple[Event, ...]


class Order(NamedTuple):
    """A schedule made ready for `simulate`: its steps, each behind everything it waits for."""

    pp: int
    chunks: int
    results: int
    steps: tuple[Step, ...]


class Timeline(NamedTuple):
    """Result of a simulation, in seconds (or arrays of seconds). Positions are those of the event lists."""

    start_s: list[list[Any]]  # [rank][position]
    end_s: list[list[Any]]  # [rank][position]
    busy_s: list[Any]  # [rank]: sum of its durations
    span_s: list[Any]  # [rank]: from its first start to its last end
    makespan_s: Any  # from the first start of all to the last end of all
    longest_span_s: Any  # what a step costs when the next step starts without waiting for the other ranks

    @property
    def idle_s(self) -> list[Any]:
        """Per rank: the part of the makespan in which it computes nothing."""
        return [self.makespan_s - busy_s for busy_s in self.busy_s]

    @property
    def bubble_fraction(self) -> Any:
        """Idle share of all ranks' time in the makespan, in [0, 1]."""
        return 1 - sum(self.busy_s) / (len(self.busy_s) * self.makespan_s)


def compile_order(kind: str, events: Sequence[Sequence[Event]]) -> Order:
    """Order the events of a schedule of this kind so that each comes behind everything it waits for.

    A forward waits for the forward of the stage before, a backward for its own forward and for the backward of the
    stage behind, a weight gradient for its backward. Raises ValueError when the ranks would wait for each other for
    ever, or when a rank runs a backward before its forward.
    """
    pp = len(events)
    chunks = 1 + max(event.chunk for rank_events in events for event in rank_events)
    microbatches = 1 + max(event.microbatch for rank_events in events for event in rank_events)
    before, behind = _neighbours(kind, pp, chunks)
    block = pp * chunks * microbatches  # result number: 0 for F, 1 for B, times block, plus place and micro-batch
    done = bytearray(2 * block)
    waiting: dict[int, int] = {}  # result -> rank that waits for it
    position = [0] * pp
    ready = deque(range(pp))
    steps: list[Step] = []
    while ready:
        rank = ready.popleft()
        todo = events[rank]
        here = position[rank]
        while here < len(todo):
            step, size = _step_at(todo, here, rank, pp, chunks, microbatches, block, before, behind, done)
            missing = [result for result, _ in step.inputs if not done[result]]
            if missing:
                waiting[missing[0]] = rank
                break
            steps.append(step)
            here += size
            for result in step.results:
                done[result] = 1
                if result in waiting:
                    ready.append(waiting.pop(result))
        position[rank] = here
    stuck = [rank for rank in range(pp) if position[rank] < len(events[rank])]
    if stuck:
        event = events[stuck[0]][position[stuck[0]]]
        raise ValueError(f"deadlock: ranks {stuck} wait for each other, rank {stuck[0]} before {event}")
    return Order(pp, chunks, 2 * block, tuple(steps))


@lru_cache(maxsize=128)
def planned_order(
    kind: str, pp: int, microbatches: int, vpp: int = 1, group: int | None = None, overlap: bool = False
) -> Order:
    """`compile_order` of `events.schedule` with these arguments, kept for the next call."""
    return compile_order(kind, schedule(kind, pp, microbatches, vpp, group, overlap=overlap))


def _neighbours(kind: str, pp: int, chunks: int) -> tuple[list[int], list[int]]:
    """For place rank*chunks+chunk: the place of the stage before and behind it on a micro-batch's way, or -1."""
    before = [-1] * (pp * chunks)
    behind = [-1] * (pp * chunks)
    place_of: dict[tuple[int, int], int] = {}
    for rank in range(pp):
        for chunk in range(chunks):
            route = chunk if kind == "dualpipe" else 0
            place_of[route, stage_of(kind, pp, rank, chunk)] = rank * chunks + chunk
    for (route, stage), place in place_of.items():
        before[place] = place_of.get((route, stage - 1), -1)
        behind[place] = place_of.get((route, stage + 1), -1)
    return before, behind


def _step_at(
    todo: Sequence[Event],
    here: int,
    rank: int,
    pp: int,
    chunks: int,
    microbatches: int,
    block: int,
    before: list[int],
    behind: list[int],
    done: bytearray,
) -> tuple[Step, int]:
    """The step that begins at position `here`, and how many events it has."""
    stop = here
    while todo[stop].fused:
        stop += 1
    members = tuple(todo[here : stop + 1])
    work: list[int] = []
    inputs: list[tuple[int, int]] = []
    results: list[int] = []
    for event in members:
        place = rank * chunks + event.chunk
        own = place * microbatches + event.microbatch
        if event.kind == "F":
            code = 0
            results.append(own)
            source = before[place]
            offset = 0
        elif event.kind == "B":
            code = 1
            if not done[own] and own not in results:
                raise ValueError(f"rank {rank} runs {event} before its forward")
            results.append(block + own)
            source = behind[place]
            offset = block
        else:
            code = 2
            if not done[block + own] and block + own not in results:
                raise ValueError(f"rank {rank} runs {event} before its backward")
            source = -1
            offset = 0
        work.append((code * pp + rank) * chunks + event.chunk)
        if source >= 0:
            inputs.append((offset + source * microbatches + event.microbatch, source // chunks))
    return Step(rank, tuple(work), tuple(inputs), tuple(results), members), stop + 1 - here


def simulate(
    order: Order,
    forward_s: Durations,
    backward_s: Durations,
    weight_s: Durations | None = None,
    p2p_s: Any = 0.0,
    fused_s: Callable[[tuple[Event, ...]], Any] | None = None,
) -> Timeline:
    """Start and end of every event when each starts as soon as its rank is free and its inputs are there.

    `forward_s`, `backward_s`, `weight_s`: [rank][chunk] seconds per micro-batch; the backward is the whole one for
    schedules without W. `p2p_s`: seconds between the end of a stage and the arrival of its result on another rank,
    one value or [from rank][to rank]; it occupies neither rank. `fused_s(members)` prices a fused group, by default
    the sum of its members. Values may be arrays that broadcast together.
    """
    pp = order.pp
    start_s: list[list[Any]] = [[] for _ in range(pp)]
    end_s: list[list[Any]] = [[] for _ in range(pp)]
    busy_s: list[Any] = [0.0] * pp
    for step, start, duration, end in _played(order, forward_s, backward_s, weight_s, p2p_s, fused_s):
        start_s[step.rank].extend([start] * len(step.work))
        end_s[step.rank].extend([end] * len(step.work))
        busy_s[step.rank] = busy_s[step.rank] + duration
    span_s = [ends[-1] - starts[0] for starts, ends in zip(start_s, end_s, strict=True)]
    return Timeline(start_s, end_s, busy_s, span_s, _largest([ends[-1] for ends in end_s]), _largest(span_s))


def makespan(
    order: Order, forward_s: Durations, backward_s: Durations, weight_s: Durations | None = None, p2p_s: Any = 0.0
) -> Any:
    """`simulate(...).makespan_s` alone."""
    last: list[Any] = [0.0] * order.pp
    for step, _, _, end in _played(order, forward_s, backward_s, weight_s, p2p_s):
        last[step.rank] = end
    return _largest(last)


def _played(
    order: Order, forward_s: Durations, backward_s: Durations, weight_s: Durations | None, p2p_s: Any,
    fused_s: Callable[[tuple[Event, ...]], Any] | None = None,
) -> Iterator[tuple[Step, Any, Any, Any]]:  # fmt: skip
    """Every step with its start, duration and end, see `simulate`."""
    pp, chunks = order.pp, order.chunks
    weight = weight_s if weight_s is not None else [[0.0] * chunks for _ in range(pp)]
    cost = [
        table[rank][chunk] for table in (forward_s, backward_s, weight) for rank in range(pp) for chunk in range(chunks)
    ]
    link = _links(p2p_s, pp)
    largest: Callable[[Any, Any], Any] = max
    if not is_scalar(*cost, *(value for row in link for value in row)):
        import numpy as np

        largest = np.maximum
    now: list[Any] = [0.0] * pp
    end_of: dict[int, Any] = {}  # results that are still waited for: each by one step
    for step in order.steps:
        rank, work, inputs, results, members = step
        start = now[rank]
        for result, source in inputs:
            end = end_of.pop(result)
            start = largest(start, end if source == rank else end + link[source][rank])
        if len(work) == 1:
            duration = cost[work[0]]
        else:
            duration = sum([cost[index] for index in work]) if fused_s is None else fused_s(members)
        end = now[rank] = start + duration
        for result in results:
            end_of[result] = end
        yield step, start, duration, end


def _largest(values: list[Any]) -> Any:
    most = values[0]
    for value in values[1:]:
        most = maximum(most, value)
    return most


def _links(p2p_s: Any, pp: int) -> list[list[Any]]:
    """Latency [from rank][to rank] from one value or from such a table."""
    if isinstance(p2p_s, (list, tuple)):
        return [list(row) for row in p2p_s]
    return [[p2p_s] * pp for _ in range(pp)]
