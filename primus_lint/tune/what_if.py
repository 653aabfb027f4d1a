"""The same recipe with some keys changed: does it start, does it fit, how fast is it (exact, without arrays)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.rules.finding import Change
from primus_lint.rules.verify import after_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.subject import Subject


class WhatIf(NamedTuple):
    """Outcome of some changed keys. `gain` is in tokens/s against the recipe as it stands (0.1: a tenth faster)."""

    changes: dict[str, Any]
    fits: bool | None
    gain: float
    peak_bytes: int
    bubble_fraction: float


def different(given: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """What keys say that some arguments do not."""
    return {key: value for key, value in keys.items() if given.get(key) != value}


def with_changes(subject: Subject, changes: dict[str, Any]) -> Subject:
    """The same subject with some arguments set, as if the file said so."""
    return after_changes(subject, (Change("set", key, value) for key, value in changes.items()))


def what_if(subject: Subject, changes: dict[str, Any]) -> WhatIf | None:
    """Judge some changed keys; None when the recipe then breaks a rule that it keeps now, or cannot be computed."""
    now = subject.projection
    if now is None or subject.accelerator is None:
        return None
    other = with_changes(subject, changes)
    errors = {finding.code for finding in other.conditions if finding.severity == "error"}
    if errors - {finding.code for finding in subject.conditions if finding.severity == "error"}:
        return None
    ledger, then = other.ledger, other.projection
    if ledger is None or then is None:
        return None
    fits = ledger.fits(subject.accelerator.visible_hbm_bytes)
    gain = float(now.iteration_s) / float(then.iteration_s) - 1
    return WhatIf(changes, fits, gain, int(ledger.worst_rank.device_high_bytes), float(then.bubble_fraction))
