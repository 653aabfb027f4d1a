"""How many micro-batch chunks a pipeline rank holds at its peak, chunk by chunk.

A composition is one count per virtual stage of the rank. With chunks of different weight the peak may fall at several
moments, so the non-dominated compositions are listed and the heaviest is taken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, minimum

if TYPE_CHECKING:
    from primus_lint.ir.run import Run

Composition = tuple[Any, ...]


def compositions(run: Run, rank: int) -> tuple[Composition, ...]:
    """Non-dominated compositions of a rank. Counts are integers, or arrays where the number of micro-batches is one.

    On a grid the counts are those of many micro-batches, cut at the number there is: an upper bound, exact for 1F1B.
    """
    pp, vpp, m = run.parallel.pp, run.parallel.vpp, run.batch.num_microbatches
    kind = run.schedule.kind
    if kind == "none" or pp == 1:
        return ((1,) * vpp,)
    if kind == "1f1b" and vpp == 1:
        return ((pp - rank if m is None else minimum(m, pp - rank),),)
    group = run.parallel.microbatch_group_size
    if m is None or not is_scalar(m, group):
        many = 4 * max(pp, vpp)
        found = replay(kind, pp, rank, many, vpp, pp)
        if m is None:
            return found
        return tuple(tuple(minimum(count, m) for count in counts) for counts in found)
    if kind == "interleaved":
        # the steady state repeats after one group of each chunk
        m = min(m, _equivalent(m, pp, group))
    return replay(kind, pp, rank, m, vpp, group)


def _equivalent(m: int, pp: int, group: int) -> int:
    """A smaller number of micro-batches with the same compositions: warm-up and two rounds of the steady state."""
    enough = 4 * max(group, pp)
    return m if m <= enough else enough + (m - enough) % group


@lru_cache(maxsize=4096)
def replay(kind: str, pp: int, rank: int, m: int, vpp: int, group: int) -> tuple[Composition, ...]:
    """Run the schedule's own event list of a rank and keep the non-dominated compositions."""
    from primus_lint.schedules.events import rank_schedule

    live = [0] * vpp
    seen: set[tuple[int, ...]] = set()
    for event in rank_schedule(kind, pp, rank, m, vpp, group):
        if event.kind == "F":
            live[event.chunk] += 1
            seen.add(tuple(live))
        elif event.kind == "B":
            live[event.chunk] -= 1
    front = [a for a in seen if not any(b != a and all(x >= y for x, y in zip(b, a, strict=True)) for b in seen)]
    return tuple(sorted(front))
