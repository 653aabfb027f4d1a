"""Fewer changed keys for almost the same speed: what a person would not bother to write is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from primus_lint.tune.keys import (
    BF16_REDUCE,
    CP,
    CP_TYPE,
    DEEPEP_KEYS,
    EXPERT_KEYS,
    FOLLOWING,
    FP8_KEYS,
    GEMM_KEYS,
    GRAD_OVERLAP,
    LAYOUT,
    LOSS_KEYS,
    NUMBER,
    PARAM_OVERLAP,
    PIPELINE_KEYS,
    PP,
    RECOMPUTE_KEYS,
    SHARDING_KEYS,
    SP,
    SPLIT_KEYS,
    STATE_KEYS,
    TP,
    TP_OVERLAP,
)
from primus_lint.tune.rescore import Candidate, name_of, rescore
from primus_lint.tune.rewrite import locate_origin
from primus_lint.tune.ties import model_parallel, told_apart
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from primus_lint.subject import Subject
    from primus_lint.tune.search import Result

KEY_WORTH = 0.002  # of the step: what every further changed key must gain
AT_MOST = 0.01  # of the step: what may be given up altogether
LAYOUT_KEYS = 3  # a layout text is as much to read, and to keep right, as so many more keys
STARTS = 6  # recipes of different splits that are simplified
GRANULARITY = "recompute_granularity"
READ: dict[Any, tuple[str, ...]] = {  # of the keys of recomputation, by granularity
    None: (),
    "selective": ("recompute_modules",),
    "full": ("recompute_method", NUMBER, "recompute_layer_ids"),
}
GROUPS: tuple[tuple[str, ...], ...] = (
    (PP, *SPLIT_KEYS, *PIPELINE_KEYS), PIPELINE_KEYS, RECOMPUTE_KEYS, (CP, CP_TYPE), (TP, SP, TP_OVERLAP), (GRAD_OVERLAP, PARAM_OVERLAP),
    (*SHARDING_KEYS, *FOLLOWING, PARAM_OVERLAP, BF16_REDUCE), GEMM_KEYS, tuple(dict.fromkeys((*DEEPEP_KEYS, *EXPERT_KEYS))), FP8_KEYS, LOSS_KEYS, STATE_KEYS,
)  # fmt: skip


def groups(changes: dict[str, Any]) -> list[tuple[str, ...]]:
    """The changed keys in groups that can be left out: those that belong together, and each of them alone."""
    found: list[tuple[str, ...]] = []
    for group in (*GROUPS, *((key,) for key in changes)):
        names = tuple(key for key in group if key in changes)
        if names and names not in found:
            found.append(names)
    return found


def effort(changes: Mapping[str, Any]) -> int:
    """How much there is to read in some changed keys."""
    return len(changes) + LAYOUT_KEYS * sum(changes.get(key) is not None for key in (LAYOUT, "recompute_layer_ids"))


def price(candidate: Candidate) -> float:
    """Seconds of a step, and what its changed keys must be worth."""
    return candidate.iteration_s * (1 + KEY_WORTH * effort(candidate.changes))


def simplify(subject: Subject, result: Result, excused: frozenset[str]) -> Candidate:
    """The recipe that a person would rather write than the very best: of those that are slower by AT_MOST at most, the
    one whose changed keys all earn their place. The best ones of several splits are stripped of what does not; of those
    that the projection cannot tell apart then, the one with the fewest changes, and with the fewest GPUs a replica."""
    known: dict[str, Candidate | None] = {each.name: each for each in result.best}

    def score(changes: dict[str, Any]) -> Candidate | None:
        name = name_of(changes)
        if name not in known:
            known[name] = rescore(subject, result.objective.capacity_bytes, changes, excused)
        return known[name]

    limit = result.best[0].iteration_s * (1 + AT_MOST)
    starts = [result.best[0], *(each for each in map(score, plain(result, limit)) if each is not None)]
    stripped = [_stripped(each, score, limit) for each in starts if each.iteration_s <= limit]
    best = min(stripped, key=lambda each: (price(each), each.name))
    given = result.space.given

    def plainness(each: Candidate) -> tuple[int, int, float, str]:
        then = {**given, **each.changes}
        return effort(each.changes), model_parallel(then[TP], then[PP], then[CP]), each.iteration_s, each.name

    chosen = min((each for each in stripped if not told_apart(each.projection, best.projection)), key=plainness)
    tidy = score({**chosen.changes, **left_over(subject, chosen.changes, result)})
    same = tidy is not None and (tidy.iteration_s, tidy.peak_bytes) == (chosen.iteration_s, chosen.peak_bytes)
    return tidy if tidy is not None and same else chosen


def left_over(subject: Subject, changes: dict[str, Any], result: Result) -> dict[str, None]:
    """Keys of recomputation that the file sets and that mean nothing under the recipe's new form of it, without a value."""
    if GRANULARITY not in changes:
        return {}
    then = {**result.space.given, **changes}
    read = READ[then[GRANULARITY]]
    idle = [key for key in RECOMPUTE_KEYS if key not in (GRANULARITY, *read) and then.get(key) is not None]
    here = [key for key in idle if locate_origin(subject.section, key, subject.document) is not None]
    return dict.fromkeys(key for key in here if result.space.pins.allows(key))


def plain(result: Result, limit_s: float) -> list[dict[str, Any]]:
    """Changed keys of the plainest good recipe of every split, the best of them."""
    given = result.space.given
    best: dict[str, tuple[float, int, int]] = {}
    for record, found in enumerate(result.found):
        keys = different(given, found.keys)
        more = effort(keys) - len(keys)
        prices = found.seconds * (1 + KEY_WORTH * (found.changed + more))
        prices = np.where(
            (found.seconds <= limit_s) & (found.peak_bytes <= result.objective.capacity_bytes), prices, np.inf
        )
        position = int(np.argmin(prices))
        split = repr([found.keys.get(key) for key in (PP, *SPLIT_KEYS)])
        if np.isfinite(prices[position]):
            best[split] = min(best.get(split, (np.inf, 0, 0)), (float(prices[position]), record, position))
    return [result.found[record].changes(position, given) for _, record, position in sorted(best.values())[:STARTS]]


def _stripped(start: Candidate, score: Callable[[dict[str, Any]], Candidate | None], limit_s: float) -> Candidate:
    """A recipe without the changed keys that do not earn their place; legal and fitting like it."""
    best = start
    while True:
        rivals = [best]
        for names in groups(best.changes):
            other = score({key: value for key, value in best.changes.items() if key not in names})
            if other is not None and other.iteration_s <= limit_s:
                rivals.append(other)
        better = min(rivals, key=lambda rival: (price(rival), rival.name))
        if better is best:
            return best
        best = better
