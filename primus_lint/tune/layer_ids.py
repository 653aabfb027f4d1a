"""Whole layers recomputed on those pipeline ranks alone that lack memory (Primus's `recompute_layer_ids`): after the search
and outside of its proof, from the fastest recipes of the best pipeline sizes.

The ranks of a pipeline wait for the slowest one, often the last with the output layer, while the first holds most
micro-batches: what it recomputes in its slack costs next to nothing.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from primus_lint.tune.keys import EP_OVERLAP, RECOMPUTE_KEYS
from primus_lint.tune.pipelines import fastest
from primus_lint.tune.rescore import rescore
from primus_lint.tune.what_if import different, with_changes

if TYPE_CHECKING:
    from primus_lint.subject import Subject
    from primus_lint.tune.rescore import Candidate
    from primus_lint.tune.search import Result

IDS = "recompute_layer_ids"
ROUNDS = 8  # evaluations of one recipe at most


def by_layer(subject: Subject, result: Result, excused: frozenset[str]) -> list[Candidate]:
    """The fastest recipes with no more layers recomputed than each of their ranks needs, where they are legal and fit."""
    space, objective = result.space, result.objective
    if subject.lowered.framework != "primus-megatron" or objective.kind not in ("tokens", "cost"):
        return []
    if not space.pins.allows(*RECOMPUTE_KEYS):
        return []
    found = []
    for changes in [*(each.changes for each in result.best[:1]), *fastest(result)]:
        for overlap in (True, False) if changes.get(EP_OVERLAP, space.given.get(EP_OVERLAP)) else (None,):
            wanted = changes if overlap is None else {**changes, EP_OVERLAP: overlap}
            found.append(least(subject, wanted, result, excused))
    return [candidate for candidate in found if candidate is not None]


def least(subject: Subject, changes: dict[str, Any], result: Result, excused: frozenset[str]) -> Candidate | None:
    """A recipe with as few layers recomputed on every rank as let it fit: those of its first chunks, which are held longest.
    None when it fits without any, when it fits in no way, or is illegal."""
    space, capacity = result.space, result.objective.capacity_bytes
    bare = {**changes, **dict.fromkeys(RECOMPUTE_KEYS)}
    run = with_changes(subject, bare).run
    if run is None or run.parallel.stages is None or run.parallel.pp < 2:
        return None
    layers = [[layer for chunk in row for layer in chunk.layers] for row in run.parallel.stages]
    numbers = [0] * len(layers)  # of recomputed layers, by rank
    whole: dict[int, int] = {}  # peak of a rank without any
    for _ in range(ROUNDS):
        ids = sorted(layer for rank, number in enumerate(numbers) for layer in layers[rank][:number])
        wanted = {**bare, "recompute_granularity": "full", IDS: ids} if ids else bare
        wanted = different(space.given, wanted)
        ledger = with_changes(subject, wanted).ledger
        if ledger is None or not space.pins.within(wanted):
            return None
        peaks = [0] * len(layers)
        for account in ledger.ranks:
            peaks[account.pp_rank] = max(peaks[account.pp_rank], int(account.device_high_bytes))
        over = [rank for rank, peak in enumerate(peaks) if peak > capacity]
        if not over:
            return rescore(subject, capacity, wanted, excused) if ids else None
        for rank in over:
            if numbers[rank] == len(layers[rank]):
                return None
            whole.setdefault(rank, peaks[rank])
            saved = (whole[rank] - peaks[rank]) / max(numbers[rank], 1)  # by each layer so far
            more = ceil((peaks[rank] - capacity) / saved) if saved > 0 else 1
            numbers[rank] = min(numbers[rank] + more, len(layers[rank]))
    return None
