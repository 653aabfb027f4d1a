"""How long the micro-batches of one step take through the pipeline, with the real seconds of every stage.

`closed_form` is elementwise and serves one recipe and grids alike; `timeline` is the event simulation of
`primus_lint.schedules` for one recipe. Tests hold one against the other: equal for equal stages, and for unequal ones
the closed form, a lower bound by construction for 1F1B and interleaved schedules, is within a stated few percent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from primus_lint.formula import maximum, minimum


class Times(NamedTuple):
    """Seconds per micro-batch, [rank][chunk]. `backward` is the input gradient (and recomputation) alone, `weight` the
    weight gradient; `link_s` passes between neighbouring ranks and occupies neither."""

    forward: list[list[Any]]
    backward: list[list[Any]]
    weight: list[list[Any]]
    link_s: Any


class Span(NamedTuple):
    """Makespan of the micro-batches and busy seconds of every rank."""

    makespan_s: Any
    busy_s: list[Any]

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


def closed_form(kind: str, times: Times, microbatches: Any, group: Any = None) -> Span:
    """Makespan of a schedule of this kind with these times, by formula: the slowest rank's work and waits."""
    work = busy(times, microbatches)
    if len(work) == 1:
        return Span(work[0], work)
    if kind == "interleaved":
        return Span(_interleaved(times, microbatches, work, len(work) if group is None else group), work)
    if kind in ("1f1b", "zb-h1", "zb-heuristic", "gpipe"):
        return Span(_one_chunk(kind, times, microbatches, work), work)
    return Span(_filled(kind, times, work), work)


def _one_chunk(kind: str, times: Times, microbatches: Any, work: list[Any]) -> Any:
    """1F1B, and its zero-bubble form H1.

    Rank i runs w = p-1-i forwards first, then pairs, then w backwards. Its first forward waits for those before it, and
    its last gradient still passes the ranks before it; between its first forward and first backward the micro-batch
    passes all ranks behind it and back, S_i = sum over j > i of (F_j + B_j), while it has only w forwards to do, and
    likewise before its last backward with w backwards to do. Hence rank i ends not before
        sum over j < i of (F_j + B_j) + m*(F_i + B_i) + max(0, S_i - w*F_i) + max(0, S_i - w*B_i),
    and a micro-batch's way down and back recurs every w+1 micro-batches, which limits the steady state when links are
    slow. Equal times give (m + p - 1)(F + B), the known form. H1 does weight gradients in its waits: i of them after
    the last gradient has left, w in the last wait: (p - 1)(F + B - W) of bubble (arXiv 2401.10241).
    """
    pp = len(work)
    split = kind != "1f1b" and kind != "gpipe"
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
        left = minimum(pp - 1 - rank, microbatches - 1)
        pair = forward[rank] + backward[rank]
        last = backward[rank] + weight[rank] if split else backward[rank]
        waits = maximum(behind[rank] - left * forward[rank], 0.0) + maximum(behind[rank] - left * last, 0.0)
        late = rank * weight[rank] if split else 0.0
        best = maximum(best, before - late + work[rank] + waits)
        if not split:
            rounds = (microbatches - 1) // (left + 1)
            rest = microbatches - 1 - rounds * (left + 1)
            best = maximum(best, before + (rounds + 1) * (pair + behind[rank]) + rest * pair)
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


def _filled(kind: str, times: Times, work: list[Any]) -> Any:
    """Schedules that fill the wait with weight gradients or with the other direction: the slowest rank plus the bubble
    of their published tables for equal stages (ZB-H2 and ZBV: none; V-Half 1/2 and V-Min 2/3 of 1F1B's; DualPipe:
    (p/2 - 1)(F&B + B - 3W) with F&B = F + B), never less than the first forward's and last gradient's way."""
    pp, chunks = len(work), len(times.forward[0])
    count = pp * chunks
    forward, backward, weight = (
        _sum([_sum(row) for row in table]) / count for table in (times.forward, times.backward, times.weight)
    )
    hops = 2 * (pp - 1) * times.link_s
    slowest: Any = 0.0
    for seconds in work:
        slowest = maximum(slowest, seconds)
    if kind in ("dualpipe", "dualpipev"):
        whole = backward + weight
        return slowest + maximum((pp / 2 - 1) * (forward + 2 * whole - 3 * weight), 0.0) + hops
    share = {"v-half": 1 / 2, "v-min": 2 / 3}.get(kind, 0.0)
    ramp = (pp - 1) * forward  # the last rank cannot start before the first forward reaches it
    return slowest + maximum(share * (pp - 1) * (forward + backward + weight) * chunks, ramp) + hops
