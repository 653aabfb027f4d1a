"""Torch FSDP2 and Megatron-FSDP in the place of the distributed optimizer: a climb from the best recipe of a search, after it
and outside of its proof (crossed with everything else they would make the space four times as large).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tune.keys import EP, FOLLOWING, FSDP2, PP, SHARDING_KEYS, SPLIT_KEYS
from primus_lint.tune.sweep import climb
from primus_lint.tune.switches import fully_sharded
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from primus_lint.subject import Subject
    from primus_lint.tune.rescore import Candidate
    from primus_lint.tune.search import Result


def other_shardings(subject: Subject, result: Result, excused: frozenset[str]) -> list[Candidate]:
    """What single steps lead to under each other sharding that may be written, from the fastest recipe of the search."""
    space, objective = result.space, result.objective
    if objective.kind not in ("tokens", "cost"):
        return []
    pins = space.pins._replace(keys=space.pins.keys | {*SHARDING_KEYS, *FOLLOWING})
    best: dict[str, Any] = result.best[0].changes if result.best else {}
    found = []
    for move in fully_sharded(space.run, space.given, space.pins):
        start = {**best, **move}
        if move.get(FSDP2):  # no pipeline, no expert parallelism
            alone = {key: False if space.given.get(key) is False else None for key in SPLIT_KEYS}
            start = {**start, PP: 1, **alone, **({EP: 1} if space.run.model.moe is not None else {})}
        start = different(space.given, start)
        if space.pins.allows(*start) and space.pins.within(start):
            found += climb(subject, pins, objective.capacity_bytes, excused, start)
    return found
