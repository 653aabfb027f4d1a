"""Which loads a pipeline rank can hold: micro-batches alive and pending per chunk, at the events that matter.

The schedule's own event list decides (`primus_lint.schedules`); a load is a candidate of the peak, its weight depends
on the recipe's bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.formula import is_scalar, minimum

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.ir.run import Run


class Loaded(NamedTuple):
    """Micro-batches per chunk, forwarded and waiting for backward (`alive`) or for their weight gradient (`pending`),
    while an event of `kind` "F", "B" or "W" runs in `chunk`. Counts are integers, or arrays on a grid."""

    kind: str
    chunk: int
    alive: tuple[Any, ...]
    pending: tuple[Any, ...]


def loads(run: Run, rank: int) -> tuple[Loaded, ...]:
    """The candidates of the peak of a rank.

    With an unknown number of micro-batches, many. On a grid over it, the counts of every element.
    """
    pp, vpp, m = run.parallel.pp, run.parallel.vpp, run.batch.num_microbatches
    kind = run.schedule.kind
    none = (0,) * vpp
    if kind == "none" or pp == 1:
        return tuple(Loaded("B", chunk, (1,) * vpp, none) for chunk in range(vpp))
    if kind == "zb-heuristic":
        limit = run.args.get("pp_max_mem")
        held = m if limit is None or m is None else minimum(m, limit)
        return (Loaded("B", 0, (4 * pp if held is None else held,) * vpp, none),)
    group = run.parallel.microbatch_group_size
    group = group if is_scalar(group) else pp
    overlap = run.schedule.overlap_moe_ep
    if m is None or is_scalar(m):
        return _frontier(kind, pp, rank, 8 * max(pp, vpp) if m is None else m, vpp, group, overlap)
    return _on_grid(lambda number: _frontier(kind, pp, rank, number, vpp, group, overlap), m, vpp)


def _on_grid(frontier: Callable[[int], tuple[Loaded, ...]], microbatches: Any, vpp: int) -> tuple[Loaded, ...]:
    """The loads of every number of micro-batches on a grid, aligned: the i-th load of an event kind and chunk of each
    number becomes one load with arrays. A number that has fewer gets loads of nothing, which are no peak."""
    import numpy as np

    numbers, where_in = np.unique(microbatches, return_inverse=True)
    where_in = where_in.reshape(microbatches.shape)
    series: dict[tuple[str, int], list[list[Loaded]]] = {}
    for index, number in enumerate(numbers.tolist()):
        for load in frontier(number):
            line = series.setdefault((load.kind, load.chunk), [[] for _ in numbers])
            line[index].append(load)
    out = []
    for (kind, chunk), lines in series.items():
        for position in range(max(len(line) for line in lines)):
            row = [line[position] if position < len(line) else None for line in lines]
            alive, pending = (
                tuple(
                    np.array([0 if load is None else load[field][index] for load in row])[where_in]
                    for index in range(vpp)
                )
                for field in (2, 3)
            )
            out.append(Loaded(kind, chunk, alive, pending))
    return tuple(out)


def _frontier(kind: str, pp: int, rank: int, m: int, vpp: int, group: int, overlap: bool) -> tuple[Loaded, ...]:
    """From the event list; where the schedule refuses the numbers (a finding of its own), the formula of 1F1B."""
    from primus_lint.schedules import rank_frontier

    try:
        front = rank_frontier(kind, pp, rank, m, vpp, group, overlap)
    except ValueError:
        held = minimum(m, pp - rank)
        return tuple(Loaded("B", chunk, (held,) * vpp, (0,) * vpp) for chunk in range(vpp))
    return tuple(Loaded(*load) for load in front)
