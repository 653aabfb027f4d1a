"""Makespan and bubble by formula: exact for equal stages, bounds for unequal ones. Values may be arrays.

The bubble is the time that the rank which takes longest, from its first start to its last end, does not compute: what
a step loses when the next one starts without a barrier, which is how the zero-bubble papers count. For schedules
without split backward this is also the makespan less the work.

Upper bounds use that no start time falls when a duration grows: equal stages as slow as the slowest are slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..formula import ceil_div, is_scalar, maximum, minimum, where
from .closed_form import chunk_count, warmup
from .events import FOLDED_KINDS, SPLIT_BACKWARD_KINDS

Durations = Sequence[Sequence[Any]]  # [rank][chunk], seconds


def equal_bubble_s(
    kind: str, pp: Any, microbatches: Any, forward_s: Any, backward_s: Any, weight_s: Any = 0.0, vpp: int = 1
) -> Any:
    """Bubble when every chunk of every rank takes the same time and links take none.

    Seconds of ONE chunk; the backward is whole where the kind does not split it. With the times F, B of a whole rank
    the interleaved bubble is the known (pp-1)(F+B)/vpp. Sources: arXiv 1811.06965, 2104.04473, 2401.10241 (table 1),
    DeepSeek's DualPipe table; the terms for short steps are ours, proved in the tests. Exact for
    - 1f1b, gpipe, interleaved, looped-bfs, zb-h1 (one chunk): always;
    - zb-h2: from 2*pp-1 micro-batches on, or where W <= (F+B)/2;
    - zbv: where W <= F <= B, from 2*pp-1 micro-batches on (with fewer an upper bound, exact where W = F);
    - v-half, v-min: where F = B = W, from pp micro-batches on, pp > 2;
    - dualpipe, dualpipev: where F = B.
    """
    f, b, w = forward_s, backward_s, weight_s
    if kind in ("1f1b", "gpipe", "interleaved"):
        return (pp - 1) * (f + b)
    if kind == "looped-bfs":
        return (pp - 1 + maximum(pp - microbatches, 0) * (vpp - 1)) * (f + b)
    if kind == "zb-h1":
        hidden = minimum(f, w)
        return (pp - 1) * (f + b - hidden) + maximum(pp - microbatches, 0) * hidden
    if kind == "zb-h2":
        hidden = minimum(minimum(f, w), (f + b) / 2)
        return (pp - 1) * (f + b - 2 * hidden) + maximum(2 * pp - 1 - microbatches, 0) * hidden
    if kind == "zbv":
        return 2 * (pp - 1) * (b - w) + 2 * maximum(2 * pp - 1 - microbatches, 0) * f
    if kind == "v-half":
        return (3 * pp - 4 - 3 * (pp % 2 == 0)) * f
    if kind == "v-min":
        return (4 * pp - 5 - 2 * (pp % 3 == 0) - (pp % 3 == 2)) * f
    if kind == "dualpipe":
        return (pp / 2 - 1) * (f + 2 * b - w)  # F&B + B - 3W of the table, its B whole: F + (B+W) + (B+W) - 3W
    if kind == "dualpipev":
        return (pp - 1) * (f + 2 * b - w)
    raise ValueError(f"no closed form for {kind}")


def equal_makespan_s(
    kind: str,
    pp: Any,
    microbatches: Any,
    forward_s: Any,
    backward_s: Any,
    p2p_s: Any = 0.0,
    vpp: int = 1,
    group: Any = None,
) -> Any:
    """Makespan of "1f1b", "gpipe" or "interleaved" when every chunk takes the same time, links take `p2p_s`.

    1F1B never hides its links: neighbours answer each other, and every p micro-batches but one show a way down and up.
    Interleaving hides them but for one micro-batch's way, of which a group larger than pp hides the turns from the
    last rank to the first. Exact; for "interleaved" while p2p_s <= forward_s and backward_s. Ours, proved in the tests.
    """
    pair = forward_s + backward_s
    if kind == "gpipe":
        return (microbatches + pp - 1) * pair + 2 * (pp - 1) * p2p_s
    if kind == "1f1b":
        ways = where(pp == 1, 0, pp - 1 + microbatches - 1 - ceil_div(microbatches - 1, pp))
        return (microbatches + pp - 1) * pair + 2 * ways * p2p_s
    if kind == "interleaved":
        group = pp if group is None else group
        last_group = microbatches - (ceil_div(microbatches, group) - 1) * group
        turns = maximum(pp * p2p_s - (group - pp) * forward_s, 0) + maximum(
            pp * p2p_s - (last_group - pp) * backward_s, 0
        )
        return (vpp * microbatches + pp - 1) * pair + 2 * (pp - 1) * p2p_s + (vpp - 1) * turns
    raise ValueError(f"no closed form for {kind}")


def makespan_upper_s(
    kind: str,
    microbatches: Any,
    forward_s: Durations,
    backward_s: Durations,
    weight_s: Durations | None = None,
    p2p_s: Any = 0.0,
    group: Any = None,
) -> Any:
    """A makespan that the schedule never exceeds, from its slowest stage.

    Arguments as `timeline.simulate`; `p2p_s` one value. For 1f1b, gpipe, interleaved, zb-h1 (one chunk), zb-h2 and zbv;
    others ValueError.
    """
    pp, vpp = len(forward_s), len(forward_s[0])
    f, b = _largest(forward_s), _largest(backward_s)
    if kind in ("1f1b", "gpipe"):
        return equal_makespan_s(kind, pp, microbatches, f, b, p2p_s)
    if kind == "interleaved":
        hidden = equal_makespan_s(kind, pp, microbatches, f, b, p2p_s, vpp, group)
        exposed = equal_makespan_s(kind, pp, microbatches, f + p2p_s, b + p2p_s, 0.0, vpp, group)
        return where(p2p_s <= minimum(f, b), hidden, exposed)
    if kind not in ("zb-h1", "zb-h2", "zbv") or (kind == "zb-h1" and vpp > 1):
        raise ValueError(f"no upper bound for {kind} with vpp={vpp}; simulate it")
    w = _largest(weight_s) if weight_s is not None else 0.0
    f = maximum(f, w) + p2p_s  # the formulas hold for W <= F <= B; a link is at worst part of the work before it
    b = maximum(maximum(b, w) + p2p_s, f)
    bubble = equal_bubble_s(kind, pp, microbatches, f, b, w, vpp)
    return microbatches * vpp * (f + b + w) + bubble + (pp - 1) * f


def _largest(table: Durations) -> Any:
    most: Any = 0.0
    for row in table:
        for value in row:
            most = maximum(most, value)
    return most


def makespan_lower_s(
    kind: str,
    microbatches: Any,
    forward_s: Durations,
    backward_s: Durations,
    weight_s: Durations | None = None,
    p2p_s: Any = 0.0,
    group: Any = None,
) -> Any:
    """A makespan that the schedule never beats. Arguments as `timeline.simulate`; `p2p_s` one value; every kind but
    "dualpipe".

    The larger of one micro-batch's way through all stages and back, and for every rank: the forwards before its first
    one, its own work with the waits before its first backward and after its last forward that the way of the first and
    of the last micro-batch enforce, and the backwards behind its last one (with a split backward, the weight gradients
    may run behind those). For 1f1b also the steady state that slow links slow down.
    """
    if kind == "dualpipe":
        raise ValueError("no lower bound for dualpipe; simulate it")
    pp, vpp = len(forward_s), len(forward_s[0])
    group = pp if group is None else group
    split = kind in SPLIT_BACKWARD_KINDS
    f, b = forward_s, backward_s
    w = weight_s if weight_s is not None else [[0.0] * vpp for _ in range(pp)]
    whole_f, whole_b = _total(f), _total(b)
    stages_fb = whole_f + whole_b
    later_b, later_f = _column(b, -1), _column(f, -1)  # of the last chunks of the ranks behind
    first_f: Any = 0.0  # of the first chunks of the ranks before
    first_b: Any = 0.0
    hops = 0 if pp == 1 else pp * vpp - 1 - (kind in FOLDED_KINDS)  # the fold of a V stays on its rank
    best = stages_fb + 2 * hops * p2p_s
    before: Any = 0.0  # forwards of chunk 0 on the ranks before, with links
    behind: Any = 0.0  # backwards of chunk 0 on them, with links
    for rank in range(pp):
        own_f, own_b, own_w = _row(f, rank), _row(b, rank), _row(w, rank)
        tail = behind + (w[0][0] if split and rank > 0 else 0.0)
        later_b, later_f = later_b - b[rank][-1], later_f - f[rank][-1]
        ways = whole_f - first_f + later_b, whole_b - first_b + later_f
        waits = _waits(kind, rank, microbatches, f, b, ways, p2p_s, group) if kind in ("1f1b", "interleaved") else 0.0
        first_f, first_b = first_f + f[rank][0], first_b + b[rank][0]
        work = microbatches * (own_f + own_b)
        best = maximum(best, before + work + waits + tail)
        if split:
            best = maximum(best, before + work + microbatches * own_w)
        if kind == "1f1b" and not (is_scalar(p2p_s) and p2p_s == 0):
            best = maximum(best, _recurring(rank, microbatches, f, b, p2p_s, before, behind))
        before = before + f[rank][0] + p2p_s
        behind = behind + b[rank][0] + p2p_s
    return best


def _row(table: Durations, rank: int) -> Any:
    total: Any = 0.0
    for value in table[rank]:
        total = total + value
    return total


def _total(table: Durations) -> Any:
    total: Any = 0.0
    for rank in range(len(table)):
        total = total + _row(table, rank)
    return total


def _column(table: Durations, chunk: int) -> Any:
    total: Any = 0.0
    for row in table:
        total = total + row[chunk]
    return total


def _waits(
    kind: str, rank: int, microbatches: Any, f: Durations, b: Durations, ways: tuple[Any, Any], p2p_s: Any, group: Any
) -> Any:
    """Time a rank must idle before its first backward and after its last forward.

    The first backward comes after micro-batch 0 went from this rank's first chunk to the end and back to its last
    chunk (`ways[0]`: those forwards, and the backwards of the last chunks behind this rank); until then the rank has
    warm-up + 1 forwards to do. The end mirrors this with the last micro-batch (`ways[1]`).
    """
    pp, vpp = len(f), len(f[0])
    total = microbatches * vpp
    done = minimum(total, warmup(kind, pp, rank, microbatches, vpp, group) + 1)
    way_f, way_b = ways
    links = ((pp * vpp - 1 - rank) + (pp - 1 - rank)) * p2p_s
    busy_f: Any = 0.0
    busy_b: Any = 0.0
    if vpp == 1:  # all forwards and backwards are of the one chunk
        busy_f, busy_b = done * f[rank][0], (microbatches - (total - done)) * b[rank][0]
    for chunk in range(vpp if vpp > 1 else 0):
        busy_f = busy_f + chunk_count(done, chunk, microbatches, vpp, group) * f[rank][chunk]
        early = chunk_count(total - done, vpp - 1 - chunk, microbatches, vpp, group)
        busy_b = busy_b + (microbatches - early) * b[rank][chunk]
    start = maximum(way_f + links - busy_f, 0.0)
    end = maximum(way_b + links - busy_b, 0.0)
    return where(total > done, start + end, maximum(start, end))  # all forwards first: the two waits are one


def _recurring(rank: int, microbatches: Any, f: Durations, b: Durations, p2p_s: Any, before: Any, behind: Any) -> Any:
    """1F1B: k+1 neighbouring ranks pass a micro-batch down and up before the first of them may start the k+1-th one
    after it. Each such round takes all their work and 2k links, and the rounds follow each other."""
    pp = len(f)
    best: Any = 0.0
    round_s: Any = 0.0
    for k in range(pp - rank):
        round_s = round_s + f[rank + k][0] + b[rank + k][0] + (2 * p2p_s if k else 0.0)
        early = pp - 1 - rank - k  # forwards of this rank before the first round
        rounds = maximum((microbatches - 1 - early) // (k + 1) + 1, 0)
        back = (rounds - 1) * (k + 1)  # backwards of this rank before the last one of the rounds
        rest = (microbatches - 1 - back) * b[rank][0] + maximum(microbatches - 1 - back - (pp - 1 - rank), 0) * f[rank][
            0
        ]
        bound = before + early * f[rank][0] + rounds * round_s + rest + behind
        best = maximum(best, where(rounds > 0, bound, 0.0))
    return best
