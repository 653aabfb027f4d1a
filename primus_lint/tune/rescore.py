"""The exact scalar score of candidates, and which candidates need one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primus_lint.tune.certificate import MEMORY_TOLERANCE, TIME_TOLERANCE
from primus_lint.tune.what_if import with_changes

if TYPE_CHECKING:
    from primus_lint.ledger import Ledger
    from primus_lint.projection import Projection
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject
    from primus_lint.tune.objective import Objective
    from primus_lint.tune.search import Search

ALTERNATIVES = 24  # exactly scored beside the winner
WITHIN = 1.02  # alternatives are at most this much slower
AT_MOST = 2_000  # exact scores of one search; the certificate says when that was not enough
TIE = 1e-9  # relative difference of seconds below which fewer changed keys decide


class Candidate(NamedTuple):
    """A recipe of the space, exactly scored: the arguments that differ from the asked ones."""

    changes: dict[str, Any]
    iteration_s: float
    ledger: Ledger
    projection: Projection
    errors: tuple[Finding, ...]

    @property
    def peak_bytes(self) -> int:
        return int(self.ledger.worst_rank.device_high_bytes)

    @property
    def name(self) -> str:
        return name_of(self.changes)


class Item(NamedTuple):
    """An element that the array forms let pass: its figures, and where it is (record and position in it)."""

    primary: float
    secondary: float
    seconds: float
    peak_bytes: float
    record: int
    position: int


Key = tuple[float, float, int, str]
NOTHING: Key = (float("inf"), float("inf"), 0, "")


def name_of(changes: dict[str, Any]) -> str:
    """A stable text, for ties."""
    return repr(sorted(changes.items(), key=lambda pair: pair[0]))


class Verdict(NamedTuple):
    """Of some changed keys: what is against them ("" for a `candidate`), and seconds and peak where they can be told."""

    candidate: Candidate | None
    why: str
    iteration_s: float | None = None
    peak_bytes: int | None = None


def verdict(subject: Subject, capacity_bytes: float, changes: dict[str, Any], excused: frozenset[str]) -> Verdict:
    """The exact scalar verdict; errors with `excused` codes are none of it."""
    other = with_changes(subject, changes) if changes else subject
    errors = tuple(finding for finding in other.conditions if finding.severity == "error")
    broken = next((finding for finding in errors if finding.code not in excused), None)
    if broken is not None:
        return Verdict(None, f"illegal: {broken.name}")
    ledger, projection = other.ledger, other.projection
    if ledger is None or projection is None:
        return Verdict(None, "cannot be projected")
    seconds, peak = float(projection.iteration_s), int(ledger.worst_rank.device_high_bytes)
    if peak > capacity_bytes:
        return Verdict(None, "does not fit", seconds, peak)
    return Verdict(Candidate(changes, seconds, ledger, projection, errors), "", seconds, peak)


def rescore(
    subject: Subject, capacity_bytes: float, changes: dict[str, Any], excused: frozenset[str]
) -> Candidate | None:
    """The exact score of a candidate; None when it is illegal, not sure to fit, or has no time."""
    return verdict(subject, capacity_bytes, changes, excused).candidate


def pick(search: Search) -> list[Candidate]:
    """The best candidates, exactly scored, the best first.

    Goes through what was found in order; ends when the next cannot be better than the best exact one any more and
    enough alternatives are scored. The recipe as it stands is one of the candidates.
    """
    objective, certificate = search.objective, search.certificate
    exact = [*search.seeds] if search.own is None else [search.own, *search.seeds]
    best = min((order(objective, candidate) for candidate in exact), default=NOTHING)
    seen = {candidate.name for candidate in exact}
    for item in _order(search) if search.found else ():
        needed = _may_win(search, item, best)
        if not needed and (certificate.rescored >= ALTERNATIVES or item.primary > best[0] * WITHIN):
            break
        if certificate.rescored >= AT_MOST:
            certificate.trusted &= not needed
            break
        changes = search.found[item.record].changes(item.position, search.evaluator.given)
        if name_of(changes) in seen:
            continue
        certificate.rescored += 1
        candidate = rescore(search.subject, objective.capacity_bytes, changes, search.excused)
        if candidate is None:
            # over the limit by a little, or a rule that the array form left open: else the forms contradict each other
            certificate.trusted &= item.peak_bytes > objective.capacity_bytes or bool(certificate.undecided)
            continue
        _compare(search, candidate, item)
        seen.add(candidate.name)
        exact.append(candidate)
        best = min(best, order(objective, candidate))
    exact.sort(key=lambda candidate: order(objective, candidate))
    if exact and best[0] > objective.best * (objective.reach if objective.kind in ("tokens", "cost") else 1 + TIE):
        certificate.trusted &= objective.kind == "memory-headroom"  # what pruned the scan was no candidate
    return exact


def _may_win(search: Search, item: Item, best: Key) -> bool:
    """Whether the exact score of an element could be better than the best exact one so far."""
    tolerance = MEMORY_TOLERANCE if search.objective.kind == "memory-headroom" else TIME_TOLERANCE
    low = item.primary * (1 - tolerance)
    if low > best[0] * (1 + TIE):
        return False
    return low < best[0] * (1 - TIE) or item.secondary * (1 - TIME_TOLERANCE) < best[1]


def _order(search: Search) -> list[Item]:
    """What was found, the best first; equals (seconds that differ by a rounding) by the second figure."""
    seconds = np.concatenate([found.seconds for found in search.found])
    changed = np.concatenate([found.changed for found in search.found])
    peak = np.concatenate([found.peak_bytes for found in search.found])
    record = np.concatenate([np.full(len(found.seconds), index) for index, found in enumerate(search.found)])
    position = np.concatenate([np.arange(len(found.seconds)) for found in search.found])
    primary = search.objective.primary(seconds, changed, peak).astype(float)
    secondary = search.objective.secondary(seconds, changed)
    rows = np.lexsort((position, record, secondary, _coarse(primary)))[: 10 * AT_MOST]
    return [
        Item(
            float(primary[row]),
            float(secondary[row]),
            float(seconds[row]),
            float(peak[row]),
            int(record[row]),
            int(position[row]),
        )
        for row in rows
    ]


def _coarse(values: Any) -> Any:
    """Numbers of which those within a rounding of each other are equal."""
    ordered = np.sort(values)
    steps = np.concatenate([[0], np.cumsum(np.diff(ordered) > TIE * np.abs(ordered[1:]))])
    return steps[np.searchsorted(ordered, values)]


def order(objective: Objective, candidate: Candidate) -> Key:
    """Order of exact candidates: figures rounded to what counts as equal, then fewest changes, then the keys."""
    primary = objective.primary(candidate.iteration_s, len(candidate.changes), candidate.peak_bytes)
    secondary = objective.secondary(candidate.iteration_s, len(candidate.changes))
    return _rounded(primary), _rounded(secondary), len(candidate.changes), candidate.name


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")


def _compare(search: Search, candidate: Candidate, item: Item) -> None:
    """Enter how far array and scalar form are apart; the certificate is void when they are farther than it allows."""
    certificate = search.certificate
    apart_s = abs(candidate.iteration_s / item.seconds - 1)
    apart_bytes = candidate.peak_bytes / item.peak_bytes - 1
    certificate.time_error = max(certificate.time_error, apart_s)
    certificate.memory_error = max(certificate.memory_error, abs(apart_bytes))
    if apart_s > TIME_TOLERANCE or apart_bytes > 0 or apart_bytes < -MEMORY_TOLERANCE:
        certificate.trusted = False
