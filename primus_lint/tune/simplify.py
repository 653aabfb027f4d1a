"""Fewer changed keys for almost the same speed: what a person would not bother to write is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tune.keys import (
    CP,
    CP_TYPE,
    DEEPEP_KEYS,
    EXPERT_KEYS,
    FP8_KEYS,
    GEMM_KEYS,
    GRAD_OVERLAP,
    LOSS_KEYS,
    PARAM_OVERLAP,
    PP,
    RECOMPUTE_KEYS,
    SP,
    SPLIT_KEYS,
    STATE_KEYS,
    TP,
    TP_OVERLAP,
)
from primus_lint.tune.rescore import Candidate, rescore

if TYPE_CHECKING:
    from primus_lint.pipeline import Subject

WORTH = 0.002  # of the step: what all changes together that are left out may cost
GROUPS: tuple[tuple[str, ...], ...] = (
    (PP, *SPLIT_KEYS), RECOMPUTE_KEYS, (CP, CP_TYPE), (TP, SP, TP_OVERLAP), (GRAD_OVERLAP, PARAM_OVERLAP),
    GEMM_KEYS, tuple(dict.fromkeys((*DEEPEP_KEYS, *EXPERT_KEYS))), FP8_KEYS, LOSS_KEYS, STATE_KEYS,
)  # fmt: skip


def groups(changes: dict[str, Any]) -> list[tuple[str, ...]]:
    """The changed keys in groups that can be left out: those that belong together, and each of them alone."""
    found: list[tuple[str, ...]] = []
    for group in (*GROUPS, *((key,) for key in changes)):
        names = tuple(key for key in group if key in changes)
        if names and names not in found:
            found.append(names)
    return found


def simplify(
    subject: Subject, capacity_bytes: float, winner: Candidate, excused: frozenset[str], worth: float = WORTH
) -> Candidate:
    """The winner with as few changed keys as `worth` of its time allows; legal and fitting like it."""
    limit = winner.iteration_s * (1 + worth)
    best = winner
    while True:
        rivals = []
        for names in groups(best.changes):
            changes = {key: value for key, value in best.changes.items() if key not in names}
            other = rescore(subject, capacity_bytes, changes, excused)
            if other is not None and other.iteration_s <= limit:
                rivals.append(other)
        if not rivals:
            return best
        best = min(rivals, key=lambda rival: (len(rival.changes), rival.iteration_s, rival.name))
