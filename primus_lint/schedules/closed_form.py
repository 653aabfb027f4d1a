"""In-flight counts without an event list: formulas proved equal to the counts of `inflight` in the tests.

Every argument but `kind` and `vpp` may be an integer or an array that broadcasts with the others; `group` is
`microbatch_group_size_per_vp_stage` and must be given as a number (pp by default). Nothing is validated here: for
numbers that `events.schedule` refuses, the results mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..formula import ceil_div, maximum, minimum, where


def warmup(
    kind: str, pp: Any, rank: Any, microbatches: Any, vpp: int = 1, group: Any = None, overlap: Any = False
) -> Any:
    """Forwards before the first forward-backward pair, at most all there are.

    Sources: Megatron-Core `get_pp_rank_microbatches` (1f1b, interleaved) and its schedule without a pipeline (pp = 1);
    arXiv 2401.10241 section 2 (zb-h1: as 1F1B; zb-h2: enough more to fill the bubble before the first backward); torch
    `ScheduleInterleavedZeroBubble` (zb-h1 with chunks: one forward per following rank, interleaved 1F1B runs two).
    """
    group = pp if group is None else group
    following = pp - rank - 1
    if kind == "interleaved":
        count = 2 * following + (vpp - 1) * group + overlap * 1
    elif kind == "zb-h1":
        count = following + (vpp - 1) * group
    elif kind == "zb-h2":
        count = 2 * following
    elif kind == "1f1b":
        count = following
    else:
        raise ValueError(f"{kind} has no warm-up of this form")
    return minimum(microbatches * vpp, where(pp == 1, overlap * 1, count))


def peak_in_flight(
    kind: str, pp: Any, rank: Any, microbatches: Any, vpp: int = 1, group: Any = None, overlap: Any = False
) -> Any:
    """Largest number of chunks of micro-batches that a rank holds: forwarded, and backward (or, where the backward is
    split, weight gradient) not yet run.

    1f1b and interleaved: one more than the warm-up forwards (Megatron-Core `get_pp_rank_microbatches`). zb-h1, zb-h2,
    zbv: pp, 2*pp-1 (arXiv 2401.10241 table 1) and 2*pp half-size chunks. v-half, v-min: the memory of their repeating
    patterns (arXiv 2405.15362). dualpipe(v): DeepSeek's published table. The other terms say that a short step never
    fills these. "zb-heuristic" has no formula: ValueError.
    """
    group = pp if group is None else group
    if kind in ("1f1b", "interleaved"):
        return minimum(microbatches * vpp, warmup(kind, pp, rank, microbatches, vpp, group, overlap) + 1)
    if kind in ("gpipe", "looped-bfs"):
        return microbatches * vpp
    if kind == "zb-h1":
        return minimum(microbatches * vpp, pp + (vpp - 1) * group)
    if kind == "zb-h2":
        return minimum(microbatches, 2 * pp - 1)
    if kind == "dualpipe":
        return pp + 1
    if kind == "dualpipev":
        return 2 * pp + 1
    if kind == "zbv":
        most = 2 * pp
    elif kind == "v-half":
        most = pp + 2 - pp % 2
    elif kind == "v-min":
        most = 2 * ceil_div(pp + 2, 3)
    else:
        raise ValueError(f"no closed form for {kind}")
    return minimum(most, minimum(2 * microbatches, microbatches + rank + 1))


def chunk_count(done: Any, chunk: int, microbatches: Any, vpp: int, group: Any) -> Any:
    """How many of the first `done` forwards are of `chunk` (and of the first `done` backwards, of chunk vpp-1-chunk).

    Groups of `group` micro-batches go through all chunks in turn; the last group may be smaller (Megatron-Core
    `get_schedule_table`).
    """
    full = done // (group * vpp)
    size = minimum(group, microbatches - full * group)
    rest = done - full * group * vpp - chunk * size
    return full * group + minimum(maximum(rest, 0), size)


def composition(
    pp: Any, rank: Any, microbatches: Any, vpp: int, group: Any = None, overlap: Any = False
) -> tuple[Any, ...]:
    """Micro-batches of every chunk that "interleaved" holds when it first holds most, [chunk]."""
    group = pp if group is None else group
    done = peak_in_flight("interleaved", pp, rank, microbatches, vpp, group, overlap)
    return tuple(chunk_count(done, chunk, microbatches, vpp, group) for chunk in range(vpp))


def alive_after_forward(
    forward: Any, pp: Any, rank: Any, microbatches: Any, vpp: int, group: Any = None, overlap: Any = False
) -> tuple[Any, ...]:
    """Micro-batches of every chunk that "interleaved" holds right after its forward number `forward` (0 first)."""
    group = pp if group is None else group
    backwards = maximum(forward - warmup("interleaved", pp, rank, microbatches, vpp, group, overlap), 0)
    return tuple(
        chunk_count(forward + 1, chunk, microbatches, vpp, group)
        - chunk_count(backwards, vpp - 1 - chunk, microbatches, vpp, group)
        for chunk in range(vpp)
    )


def interleaved_weighted_peak(
    weights: Sequence[Any], pp: Any, rank: Any, microbatches: Any, group: Any = None, overlap: Any = False
) -> Any:
    """Largest weighted load of "interleaved" when one micro-batch of chunk c takes `weights[c]` >= 0.

    The load is piecewise linear in time: it bends only where the forwards or the backwards change their chunk. One
    period of the steady state from the first full load on, and the end with its smaller last group, hold every bend.
    """
    vpp = len(weights)
    group = pp if group is None else group
    period = group * vpp
    warm = warmup("interleaved", pp, rank, microbatches, vpp, group, overlap)
    last = microbatches * vpp - 1
    first = minimum(warm, last)
    groups_before_last = (microbatches - 1) // group
    last_start = groups_before_last * period
    last_size = microbatches - groups_before_last * group
    bends = [first]
    for chunk in range(vpp):
        bends.append(first + (chunk * group - 1 - first) % period)
        bends.append(first + (chunk * group + warm - first) % period)
        bends.append(last_start + (chunk + 1) * last_size - 1)
        bends.append(last_start + (chunk + 1) * last_size + warm)
        bends.append(last_start - period + (chunk + 1) * group + warm)
        bends.append(last_start - 2 * period + (chunk + 1) * group + warm)
    best: Any = 0
    for bend in bends:
        forward = minimum(maximum(bend, first), last)
        alive = alive_after_forward(forward, pp, rank, microbatches, vpp, group, overlap)
        load: Any = 0
        for count, weight in zip(alive, weights, strict=True):
            load = load + count * weight
        best = maximum(best, load)
    return best
