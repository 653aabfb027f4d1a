"""Primus's zero-bubble pipelines on the best recipes of a search: scored one by one, after it and outside of its proof.

Their times come from event simulation, which is too slow to be an axis of the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from primus_lint.tune.keys import EP_OVERLAP, PIPELINE_KEYS, PP, SPLIT_KEYS, VPP
from primus_lint.tune.rescore import Candidate, rescore
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from primus_lint.subject import Subject
    from primus_lint.tune.search import Result

ALGORITHMS = (("zero-bubble", None), ("zbv-formatted", 2))  # with the virtual stages that they want
SIZES = 4  # pipeline sizes that are tried, those with the fastest recipes


def other_pipelines(subject: Subject, result: Result, excused: frozenset[str]) -> list[Candidate]:
    """The fastest recipe of the best pipeline sizes under each algorithm, where it is legal and fits."""
    space, objective = result.space, result.objective
    run, given = space.run, space.given
    if subject.lowered.framework != "primus-megatron" or run.schedule.runtime != "megatron":
        return []
    if objective.kind not in ("tokens", "cost") or not space.pins.allows(*PIPELINE_KEYS, *SPLIT_KEYS):
        return []
    found = []
    for changes in fastest(result):
        plain = {key: False if isinstance(given.get(key), bool) else None for key in SPLIT_KEYS}
        for algorithm, stages in ALGORITHMS:
            wanted = {**changes, **plain, VPP: stages, **dict(zip(PIPELINE_KEYS, (True, algorithm), strict=True))}
            for overlap in (True, False) if wanted.get(EP_OVERLAP) else (None,):
                keys = wanted if overlap is None else {**wanted, EP_OVERLAP: overlap}
                changed = different(given, keys)
                if space.pins.within(changed):
                    found.append(rescore(subject, objective.capacity_bytes, changed, excused))
    return [candidate for candidate in found if candidate is not None]


def fastest(result: Result) -> list[dict[str, Any]]:
    """Changed keys of the fastest recipe of every pipeline size above one, the fastest sizes first."""
    best: dict[int, tuple[float, int, int]] = {}
    for record, found in enumerate(result.found):
        size = int(found.keys[PP])
        seconds = np.where(found.peak_bytes <= result.objective.capacity_bytes, found.seconds, np.inf)
        position = int(np.argmin(seconds))
        if size > 1 and np.isfinite(seconds[position]):
            best[size] = min(best.get(size, (np.inf, 0, 0)), (float(seconds[position]), record, position))
    rows = sorted(best.values())[:SIZES]
    return [result.found[record].changes(position, result.space.given) for _, record, position in rows]
