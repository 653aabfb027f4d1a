"""How long the micro-batches of one step take through the pipeline, with the real seconds of every stage.

`closed_form` is elementwise and serves one recipe and grids alike; `simulated` runs the events of
`primus_lint.schedules`, for the schedules that have no formula. Tests hold one against the other: equal for equal
stages, and for unequal ones the closed form is a lower bound (1F1B) or within a stated few percent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum, minimum, where

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


CLOSED_FORMS = frozenset({"none", "1f1b", "interleaved", "zb-h1", "gpipe"})


def makespan(kind: str, times: Times, microbatches: Any, group: Any = None) -> Span:
    """Span of a schedule of this kind: by formula where there is one, else by simulation. Values may be arrays."""
    if kind in CLOSED_FORMS or len(times.forward) == 1:
        return closed_form(kind, times, microbatches, group)
    return simulated(kind, times, microbatches)


def closed_form(kind: str, times: Times, microbatches: Any, group: Any = None) -> Span:
    """Makespan of a schedule of this kind with these times, by formula: the slowest rank's work and waits.

    Raises KeyError for kinds without a formula (see CLOSED_FORMS).
    """
    work = busy(times, microbatches)
    if len(work) == 1:
        return Span(work[0], work)
    if kind == "interleaved":
        return Span(_interleaved(times, microbatches, work, len(work) if group is None else group), work)
    if kind not in CLOSED_FORMS:
        raise KeyError(kind)
    return Span(_one_chunk(kind, times, microbatches, work), work)


def simulated(kind: str, times: Times, microbatches: Any) -> Span:
    """Makespan by the event simulation, exact up to 4*pp micro-batches and carried on linearly beyond.

    Every schedule repeats a pattern once its pipeline is full, so that its makespan grows by a constant per round of pp
    micro-batches; two simulations, of 3*pp and 4*pp micro-batches, give it (random times: within 0.5 %).
    """
    pp, chunks = len(times.forward), len(times.forward[0])
    work = busy(times, microbatches)
    if is_scalar(microbatches) and microbatches <= 4 * pp:
        return Span(_timeline(kind, times, microbatches, chunks), work)
    low = _timeline(kind, times, 3 * pp, chunks)
    high = _timeline(kind, times, 4 * pp, chunks)
    return Span(low + (high - low) * (microbatches - 3 * pp) / pp, work)


def _timeline(kind: str, times: Times, microbatches: int, chunks: int) -> Any:
    from primus_lint.schedules.timeline import simulate

    order = _order(kind, len(times.forward), microbatches, chunks)
    return simulate(order, times.forward, times.backward, times.weight, times.link_s).makespan_s


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


def _one_chunk(kind: str, times: Times, microbatches: Any, work: list[Any]) -> Any:
    """1F1B, and its zero-bubble form H1.

    Rank i runs w = p-1-i forwards first, then pairs, then w backwards. Its first forward waits for those before it, and
    its last gradient still passes the ranks before it; between its first forward and first backward the micro-batch
    passes all ranks behind it and back, S_i = sum over j > i of (F_j + B_j), while it has only w forwards to do, and
    likewise before its last backward with w backwards to do. Hence rank i ends not before
        sum over j < i of (F_j + B_j) + m*(F_i + B_i) + max(0, S_i - w*F_i) + max(0, S_i - w*B_i),
    and a micro-batch's way down and back recurs every w+1 micro-batches, which limits the steady state when links are
    slow. With m <= w + 1 all forwards come before all backwards. Equal times give (m + p - 1)(F + B), the known form.
    H1 does weight gradients in its waits: i of them after the last gradient has left, w in the last wait, which leaves
    (p - 1)(F + B - W) of bubble (arXiv 2401.10241).
    """
    pp = len(work)
    split = kind == "zb-h1"
    forward = [row[0] for row in times.forward]
    weight = [row[0] for row in times.weight]
    backward = [row[0] if split else row[0] + times.weight[rank][0] for rank, row in enumerate(times.backward)]
    hop = 2 * times.link_s
    behind: list[Any] = [0.0] * pp
    for rank in range(pp - 2, -1, -1):
        behind[rank] = behind[rank + 1] + forward[rank + 1] + backward[rank + 1] + hop
    best: Any = 0.0
    before: Any = 0.0
    for rank in range(pp):
        left = microbatches if kind == "gpipe" else pp - 1 - rank
        pair = forward[rank] + backward[rank]
        away = behind[rank]
        last = backward[rank] + weight[rank] if split else backward[rank]
        late = rank * weight[rank] if split else 0.0
        waits = maximum(away - left * forward[rank], 0.0) + maximum(away - left * last, 0.0)
        rounds = (microbatches - 1) // (left + 1)
        rest = microbatches - 1 - rounds * (left + 1)
        steady = (rounds + 1) * (pair + away) + where(rounds > 0, rest, 0) * pair
        full = maximum(work[rank] - late + waits, 0.0 if split else steady)
        # no more micro-batches than warm-up forwards and one: all forwards, then all backwards
        more = microbatches - 1
        short = maximum(
            maximum(work[rank], pair + away + more * last), pair + away + more * forward[rank] + more * weight[rank]
        )
        best = maximum(best, before + where(microbatches > left + 1, full, short))
        before = before + pair + hop
    return best


def _interleaved(times: Times, microbatches: Any, work: list[Any], group: Any) -> Any:
    """Interleaved 1F1B (arXiv 2104.04473, Megatron-Core): rank i runs w = 2(p-1-i) + (v-1)g chunk forwards first.

    Its first forward waits for chunk 0 of the ranks before it, and its last gradient leaves through chunk 0 of them.
    Its first backward (of its last chunk) comes after the micro-batch went through every stage from its first chunk
    to the end and back to it; meanwhile it runs w + 1 chunk forwards. Equal times give m*v*(f+b) + (p-1)*(f+b).
    """
    pp, chunks = len(work), len(times.forward[0])
    forward = times.forward
    backward = [
        [b + w for b, w in zip(row, extra, strict=True)]
        for row, extra in zip(times.backward, times.weight, strict=True)
    ]
    link = times.link_s
    all_forward: Any = 0.0
    all_backward: Any = 0.0
    for rank in range(pp):
        all_forward = all_forward + _sum(forward[rank])
        all_backward = all_backward + _sum(backward[rank])
    last_backward: Any = 0.0  # of the last chunks of the ranks behind
    last_forward: Any = 0.0
    for rank in range(pp):
        last_backward = last_backward + backward[rank][-1]
        last_forward = last_forward + forward[rank][-1]
    best: Any = 0.0
    before_f: Any = 0.0
    before_b: Any = 0.0
    total = microbatches * chunks
    for rank in range(pp):
        last_backward = last_backward - backward[rank][-1]
        last_forward = last_forward - forward[rank][-1]
        warm = minimum(2 * (pp - 1 - rank) + (chunks - 1) * group, total - 1)
        mean_f, mean_b = _sum(forward[rank]) / chunks, _sum(backward[rank]) / chunks
        hops = link * ((chunks * pp - 1 - rank) + (pp - 1 - rank))
        down = all_forward - before_f + last_backward + hops  # its first forward starts .. its first backward starts
        back = all_backward - before_b + last_forward + hops  # its last forward ends .. its last backward ends
        waits = maximum(down - (warm + 1) * mean_f, 0.0) + maximum(back - (warm + 1) * mean_b, 0.0)
        best = maximum(best, before_f + before_b + 2 * rank * link + work[rank] + waits)
        before_f = before_f + forward[rank][0]
        before_b = before_b + backward[rank][0]
    return best
