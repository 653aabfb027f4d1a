"""Which loads a pipeline rank can hold: micro-batches alive and pending per chunk, at the events that matter.

The schedule's own event list decides (`primus_lint.schedules`); a load is a candidate of the peak, its weight depends
on the recipe's bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum, minimum
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.schedules import Event


class Loaded(NamedTuple):
    """Micro-batches per chunk, forwarded and waiting for backward (`alive`) or for their weight gradient (`pending`),
    while an event of `kind` "F", "B" or "W" runs in `chunk`. Counts are integers, or arrays on a grid."""

    kind: str
    chunk: int
    alive: tuple[Any, ...]
    pending: tuple[Any, ...]


def most(candidates: tuple[Loaded, ...], each: list[Any]) -> Any:
    """The most that the micro-batches in flight make of a weight per chunk."""
    out: Any = 0
    for load in candidates:
        total: Any = 0
        for weight, alive in zip(each, load.alive, strict=True):
            total = total + weight * alive
        out = maximum(out, total)
    return out


def loads(run: Run, rank: int, twins: tuple[int, ...] | None = None) -> tuple[Loaded, ...]:
    """The candidates of the peak of a rank.

    With an unknown number of micro-batches, many. On a grid over it, the counts of every element; what equal chunks hold is
    counted in the first of them there (`twins`: its index, for every chunk), and what another load exceeds is left out. Under
    `overlap_moe_expert_parallel_comm` a forward runs layer by layer beside a backward, which frees as it goes: one more
    micro-batch is warmed up, and no more are whole at any moment than without (`peak.weights` adds the layer).
    """
    pp, vpp, m = run.parallel.pp, run.parallel.vpp, run.batch.num_microbatches
    kind = run.schedule.kind
    none = (0,) * vpp
    if kind == "none" or pp == 1:
        return tuple(Loaded("B", chunk, (1,) * vpp, none) for chunk in range(vpp))
    if kind == "zb-heuristic":
        return _planned(run, rank, m)
    group = run.parallel.microbatch_group_size
    group = group if is_scalar(group) else pp
    if m is None:
        return _frontier(kind, pp, rank, 8 * max(pp, vpp), vpp, group)
    if is_scalar(m):
        out = _frontier(kind, pp, rank, m, vpp, group)
        for number in _ramp(run, m):
            out += _frontier(kind, pp, rank, number, vpp, group)
        return out
    return _on_grid(kind, pp, rank, m, vpp, group, twins or tuple(range(vpp)))


def _ramp(run: Run, m: int) -> tuple[int, ...]:
    """Smaller numbers of micro-batches that a batch ramp-up (or schedule) passes through, where they can hold more:
    folded schedules that bound their memory take other patterns below one micro-batch a rank (tests/schedules)."""
    if run.schedule.kind not in ("v-half", "v-min"):
        return ()
    each = run.batch.micro_batch_size * run.parallel.dp
    try:
        sizes = run.args["batch_sizes"]
    except (KeyError, ValueError):  # a ramp that is refused: a finding of its own
        return ()
    return tuple(sorted({size // each for size in sizes if size and each <= size < m * each}))


def _planned(run: Run, rank: int, m: Any) -> tuple[Loaded, ...]:
    """Primus's zero-bubble heuristic: its plan, made from the costs of the recipe (1000 each when they are not stated).

    Without a limit the micro-batches whose weight gradients wait grow with their number, so a grid takes the largest.
    """
    from primus_lint.schedules import frontier

    if m is None:
        number = 4 * run.parallel.pp
    else:
        number = m if is_scalar(m) else int(m.max())
    try:
        events = planned_events(run, number)
    except ValueError:
        limit = run.args.get("pp_max_mem")
        held = number if limit is None or not is_scalar(limit) else minimum(number, limit)
        return (Loaded("B", 0, (held,), (0,)),)
    return tuple(Loaded(*load) for load in frontier(events[rank]))


def planned_events(run: Run, number: int) -> list[list[Event]]:
    """The plan of Primus's heuristic for so many micro-batches. Raises ValueError when there is none."""
    forward, backward, weight = (run.args.get(f"pp_cost_{name}") or 1000.0 for name in "fbw")
    limit = run.args.get("pp_max_mem")
    if not is_scalar(forward, backward, weight, limit or 0.0):
        raise ValueError("a list of costs per stage is not planned for")
    return _plan(run.parallel.pp, number, (forward, backward, weight, 1.0), limit)


@lru_cache(maxsize=4)
def _plan(pp: int, number: int, costs: tuple[float, float, float, float], limit: float | None) -> list[list[Event]]:
    """All ranks are planned together."""
    from primus_lint.schedules import schedule

    return schedule("zb-heuristic", pp, number, costs=costs, max_in_flight=limit)


def _on_grid(
    kind: str, pp: int, rank: int, microbatches: Any, vpp: int, group: int, twins: tuple[int, ...]
) -> tuple[Loaded, ...]:
    """The loads of every number of micro-batches on a grid, aligned, with the counts of every element."""
    import numpy as np

    numbers, where_in = np.unique(microbatches, return_inverse=True)
    where_in = where_in.reshape(microbatches.shape)
    made: dict[tuple[int, ...], Any] = {}

    def spread(line: Any) -> Any:
        """A count of every number as one of every element; a plain number as it is."""
        if isinstance(line, int):
            return line
        if line not in made:
            made[line] = np.array(line)[where_in]
        return made[line]

    return tuple(
        Loaded(load.kind, load.chunk, tuple(map(spread, load.alive)), tuple(map(spread, load.pending)))
        for load in _aligned(kind, pp, rank, tuple(numbers.tolist()), vpp, group, twins)
    )


@lru_cache(maxsize=256)
def _aligned(
    kind: str, pp: int, rank: int, numbers: tuple[int, ...], vpp: int, group: int, twins: tuple[int, ...]
) -> tuple[Loaded, ...]:
    """The i-th load of an event kind and chunk of each number as one load, whose counts are lines over the numbers (plain
    numbers where all are the same). A number that has fewer gets loads of nothing, which are no peak."""
    series: dict[tuple[str, int], list[list[Loaded]]] = {}
    for index, number in enumerate(numbers):
        for load in _merged(_frontier(kind, pp, rank, number, vpp, group), twins):
            series.setdefault((load.kind, load.chunk), [[] for _ in numbers])[index].append(load)
    nothing = (0,) * vpp
    out = []
    for (event, chunk), lines in series.items():
        for position in range(max(len(line) for line in lines)):
            row = [line[position] if position < len(line) else None for line in lines]
            alive = zip(*(nothing if load is None else load.alive for load in row), strict=True)
            pending = zip(*(nothing if load is None else load.pending for load in row), strict=True)
            out.append(Loaded(event, chunk, tuple(map(_plain, alive)), tuple(map(_plain, pending))))
    return tuple(dict.fromkeys(out))


def _merged(candidates: tuple[Loaded, ...], twins: tuple[int, ...]) -> list[Loaded]:
    """The loads of one number with all that equal chunks hold counted in the first of them, without those that others
    exceed."""

    def gathered(counts: tuple[int, ...]) -> tuple[int, ...]:
        out = [0] * len(counts)
        for chunk, count in zip(twins, counts, strict=True):
            out[chunk] += count
        return tuple(out)

    rows = [Loaded(row.kind, twins[row.chunk], gathered(row.alive), gathered(row.pending)) for row in candidates]
    rows = list(dict.fromkeys(rows))
    return [row for row in rows if not any(_exceeds(other, row) for other in rows)]


def _exceeds(one: Loaded, other: Loaded) -> bool:
    """Whether a load of the same event holds nowhere less, and somewhere more."""
    if one is other or (one.kind, one.chunk) != (other.kind, other.chunk):
        return False
    pairs = zip((*one.alive, *one.pending), (*other.alive, *other.pending), strict=True)
    return all(mine >= its for mine, its in pairs)


def _plain(line: tuple[int, ...]) -> Any:
    return line[0] if line.count(line[0]) == len(line) else line


def _frontier(kind: str, pp: int, rank: int, m: int, vpp: int, group: int) -> tuple[Loaded, ...]:
    """From the event list; where the schedule refuses the numbers (a finding of its own), the formula of 1F1B."""
    from primus_lint.schedules import rank_frontier

    try:
        front = rank_frontier(kind, pp, rank, m, vpp, group)
    except ValueError:
        held = minimum(m, pp - rank)
        return tuple(Loaded("B", chunk, (held,) * vpp, (0,) * vpp) for chunk in range(vpp))
    return tuple(Loaded(*load) for load in front)
