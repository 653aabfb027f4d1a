"""Pipeline schedules as event lists: what every pipeline rank runs, in order.

A stage is one consecutive part of the model; a rank holds one or more of them, its chunks. `Event("F", rank,
microbatch, chunk)` is the forward of one micro-batch through one chunk, "B" its backward, "W" its weight gradient.
Schedules without a split backward have no "W": their "B" is the whole backward.

`fused` says that an event runs as one piece of work with the next event of its rank: an overlapped forward and
backward (DualPipe, Megatron's `overlap_moe_expert_parallel_comm`), or a whole backward written as B and W in a
schedule that splits others. A fused group starts when all inputs of its members are there, and hands on its outputs
when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from primus_lint.tuples import NamedTuple

from .closed_form import warmup


class Event(NamedTuple):
    """One piece of work of one rank. `microbatch` and `chunk` count from 0, `chunk` within the rank."""

    kind: str  # "F", "B" or "W"
    rank: int
    microbatch: int
    chunk: int
    fused: bool = False


KINDS = (
    "1f1b",
    "interleaved",
    "gpipe",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-heuristic",
    "zbv",
    "v-half",
    "v-min",
    "dualpipe",
    "dualpipev",
)
SPLIT_BACKWARD_KINDS = frozenset({"zb-h1", "zb-h2", "zb-heuristic", "zbv", "v-half", "v-min", "dualpipe", "dualpipev"})
FOLDED_KINDS = frozenset({"zbv", "v-half", "v-min", "dualpipev"})  # rank p owns stages p and 2*pp-1-p
_ONE_CHUNK_KINDS = frozenset({"1f1b", "gpipe", "zb-h2", "zb-heuristic", "dualpipe"})


def chunks_per_rank(kind: str, vpp: int) -> int:
    """Number of different `chunk` values on a rank. DualPipe's rank holds two stages of the one-chunk model."""
    return 2 if kind == "dualpipe" else vpp


def stage_count(kind: str, pp: int, vpp: int) -> int:
    """Stages a micro-batch passes through."""
    return pp * vpp


def stage_of(kind: str, pp: int, rank: int, chunk: int) -> int:
    """Position of (rank, chunk) on the way of a micro-batch, 0 first.

    Looped placement: chunk*pp + rank. Folded (V) kinds: rank, then 2*pp-1-rank. DualPipe: chunk 0 is the stage of the
    first half of the micro-batches, chunk 1 that of the second half, which travel from the last rank to the first.
    """
    if kind in FOLDED_KINDS:
        return rank if chunk == 0 else 2 * pp - 1 - rank
    if kind == "dualpipe":
        return rank if chunk == 0 else pp - 1 - rank
    return chunk * pp + rank


def schedule(
    kind: str,
    pp: int,
    microbatches: int,
    vpp: int = 1,
    group: int | None = None,
    *,
    overlap: bool = False,
    forward_only: bool = False,
    all_forwards_first_at_pp: bool = False,
    costs: tuple[float, float, float, float] | None = None,
    max_in_flight: float | None = None,
) -> list[list[Event]]:
    """Events of every pipeline rank in execution order, [rank][position].

    `pp` ranks, `vpp` model chunks per rank, `microbatches` per pipeline and step, `group` =
    `microbatch_group_size_per_vp_stage` (default pp; kinds without groups ignore it). `overlap`: Megatron's
    `overlap_moe_expert_parallel_comm` ("interleaved", "1f1b" without a pipeline, and Primus's "zbv").
    `forward_only`: evaluation. `all_forwards_first_at_pp`: Megatron cores that ran every forward first when
    microbatches == pp ("interleaved" alone). `costs` = (F, B, W, P2P) and `max_in_flight` are the planning inputs of
    "zb-heuristic" (Primus `pp_cost_f/b/w`, `pp_max_mem`), in any one unit of time and in chunks.

    Raises ValueError when the schedule does not exist for these numbers.
    """
    _require_possible(kind, pp, microbatches, vpp, group, overlap, forward_only)
    if kind == "zb-heuristic":
        from .zero_bubble import heuristic

        return heuristic(pp, microbatches, costs, max_in_flight)
    if kind in ("v-half", "v-min"):
        from .vfold import controllable_memory

        return controllable_memory(kind, pp, microbatches)
    return [
        rank_schedule(
            kind,
            pp,
            rank,
            microbatches,
            vpp,
            group,
            overlap=overlap,
            forward_only=forward_only,
            all_forwards_first_at_pp=all_forwards_first_at_pp,
        )
        for rank in range(pp)
    ]


def rank_schedule(
    kind: str,
    pp: int,
    rank: int,
    microbatches: int,
    vpp: int = 1,
    group: int | None = None,
    *,
    overlap: bool = False,
    forward_only: bool = False,
    all_forwards_first_at_pp: bool = False,
) -> list[Event]:
    """The events of one rank, for the kinds that have a rule per rank (all but "zb-heuristic", "v-half", "v-min",
    which are planned for all ranks together: there this plans all and returns one). Arguments: see `schedule`."""
    _require_possible(kind, pp, microbatches, vpp, group, overlap, forward_only)
    if not 0 <= rank < pp:
        raise ValueError(f"rank {rank} is not one of the {pp} pipeline ranks")
    if kind in ("zb-heuristic", "v-half", "v-min"):
        return schedule(kind, pp, microbatches, vpp, group)[rank]
    if kind in ("gpipe", "looped-bfs"):
        return _all_forwards_then_backwards(kind, rank, microbatches, vpp, forward_only)
    if kind in ("1f1b", "interleaved"):
        return _megatron(kind, pp, rank, microbatches, vpp, group, overlap, forward_only, all_forwards_first_at_pp)
    if kind in ("zb-h1", "zb-h2"):
        from .zero_bubble import handcrafted

        return handcrafted(kind, pp, rank, microbatches, vpp, group)
    if kind == "zbv":
        from .vfold import zbv

        return zbv(pp, rank, microbatches, overlap)
    from .dualpipe import dualpipe, dualpipev

    return dualpipe(pp, rank, microbatches) if kind == "dualpipe" else dualpipev(pp, rank, microbatches)


def _require_possible(
    kind: str, pp: int, microbatches: int, vpp: int, group: int | None, overlap: bool, forward_only: bool
) -> None:
    """Raise ValueError for numbers with which the schedule cannot be written down."""
    if kind not in KINDS:
        raise ValueError(f"unknown schedule {kind!r}; known are {', '.join(KINDS)}")
    if pp < 1 or microbatches < 1 or vpp < 1:
        raise ValueError(f"pp={pp}, microbatches={microbatches} and vpp={vpp} must all be at least 1")
    if kind in _ONE_CHUNK_KINDS and vpp != 1:
        raise ValueError(f"{kind} has one chunk per rank, but vpp={vpp}")
    if kind in FOLDED_KINDS and vpp != 2:
        raise ValueError(f"{kind} folds two chunks onto every rank, but vpp={vpp}")
    if kind in ("interleaved", "zb-h1") and (pp > 1 or vpp > 1):
        _require_groups(kind, pp, microbatches, vpp, group)
    if overlap and not (kind in ("interleaved", "zbv") or (kind == "1f1b" and pp == 1)):
        raise ValueError(f"forward-backward overlap does not exist for {kind} with pp={pp}: it needs model chunks")
    if forward_only and kind in SPLIT_BACKWARD_KINDS:
        raise ValueError(f"{kind} has no forward-only form")


def _require_groups(kind: str, pp: int, microbatches: int, vpp: int, group: int | None) -> None:
    """The group-size conditions of Megatron-Core `forward_backward_pipelining_with_interleaving`."""
    if pp == 1 and vpp > 1:
        raise ValueError(f"vpp={vpp} needs more than one pipeline rank")
    if kind == "zb-h1" and vpp == 1:
        return
    size = pp if group is None else group
    if group == microbatches:
        return  # one group; Megatron wants it to be at least pp, torch does not
    if not pp <= size <= microbatches:
        raise ValueError(f"micro-batch group size {size} is outside [pp={pp}, microbatches={microbatches}]")
    if 0 < microbatches % size < pp:
        raise ValueError(
            f"the last group of {microbatches} micro-batches in groups of {size} has {microbatches % size}, "
            f"fewer than pp={pp}"
        )


def forward_table(microbatches: int, vpp: int, group: int) -> list[tuple[int, int]]:
    """(microbatch, chunk) of forward k: groups of `group` micro-batches go through all chunks, the last group may be
    smaller. Backward k takes the same micro-batch through chunk vpp-1-chunk (Megatron-Core `get_schedule_table`)."""
    table: list[tuple[int, int]] = []
    for start in range(0, microbatches, group):
        stop = min(start + group, microbatches)
        for chunk in range(vpp):
            table.extend([(microbatch, chunk) for microbatch in range(start, stop)])
    return table


def one_forward_one_backward(
    rank: int,
    table: Sequence[tuple[int, int]],
    vpp: int,
    first: int,
    weight_delay: int | None = None,
    fuse: bool = False,
) -> list[Event]:
    """`first` warm-up forwards, then pairs of forward and backward (fused if told so), then the remaining backwards.

    With `weight_delay` d the weight gradient of backward k-d follows backward k, and the last d come at the end.
    """
    total = len(table)
    events = [Event("F", rank, microbatch, chunk) for microbatch, chunk in table[:first]]
    last = vpp - 1
    for k in range(total):
        if first + k < total:
            microbatch, chunk = table[first + k]
            events.append(Event("F", rank, microbatch, chunk, fuse))
        microbatch, chunk = table[k]
        events.append(Event("B", rank, microbatch, last - chunk))
        if weight_delay is not None and k >= weight_delay:
            microbatch, chunk = table[k - weight_delay]
            events.append(Event("W", rank, microbatch, last - chunk))
    if weight_delay is not None:
        for microbatch, chunk in table[max(0, total - weight_delay) :]:
            events.append(Event("W", rank, microbatch, last - chunk))
    return events


def _megatron(
    kind: str,
    pp: int,
    rank: int,
    microbatches: int,
    vpp: int,
    group: int | None,
    overlap: bool,
    forward_only: bool,
    all_forwards_first_at_pp: bool,
) -> list[Event]:
    """Order of Megatron-Core 0.16.1 `forward_backward_{no_pipelining, pipelining_without_interleaving,
    pipelining_with_interleaving}`."""
    table = forward_table(
        microbatches, vpp, (pp if group is None else group) if kind == "interleaved" else microbatches
    )
    if forward_only:
        return [Event("F", rank, microbatch, chunk) for microbatch, chunk in table]
    first = warmup(kind, pp, rank, microbatches, vpp, group, overlap)
    if all_forwards_first_at_pp and kind == "interleaved" and microbatches == pp:
        first = len(table)
    return one_forward_one_backward(rank, table, vpp, first, fuse=overlap)


def _all_forwards_then_backwards(kind: str, rank: int, microbatches: int, vpp: int, forward_only: bool) -> list[Event]:
    """GPipe (arXiv 1811.06965), and breadth-first with model chunks (arXiv 2211.05953): torch `ScheduleGPipe` and
    `ScheduleLoopedBFS`, of which only the second takes the backwards in reverse order."""
    events = [Event("F", rank, microbatch, chunk) for chunk in range(vpp) for microbatch in range(microbatches)]
    if forward_only:
        return events
    order = range(microbatches) if kind == "gpipe" else range(microbatches - 1, -1, -1)
    for chunk in range(vpp - 1, -1, -1):
        events.extend([Event("B", rank, microbatch, chunk) for microbatch in order])
    return events
