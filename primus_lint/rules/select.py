"""Which findings are shown: profile, select, extend-select, ignore, per-file-ignores; the most specific prefix wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.rules import catalogue

if TYPE_CHECKING:
    from primus_lint.rules.finding import Finding
    from primus_lint.settings import Settings

PROFILES = ("legal", "recommended", "all")


def selected(finding: Finding, path: str, settings: Settings | None) -> bool:
    """Whether a finding is wanted. Reading problems that stop the run are always shown."""
    if settings is None:
        return in_profile(finding, "recommended")
    if finding.severity == "error" and finding.code.startswith("S"):
        return True
    chosen = _specificity(settings.extend_select, finding)
    if settings.select:
        chosen = max(chosen, _specificity(settings.select, finding))
        wanted = chosen > 0
    else:
        wanted = chosen > 0 or in_profile(finding, settings.profile or "recommended")
    if _specificity(settings.ignore, finding) > chosen or (chosen == 0 and _specificity(settings.ignore, finding) > 0):
        wanted = False
    if _specificity(settings.ignored_in(path), finding) > 0:
        wanted = False
    return wanted


def in_profile(finding: Finding, profile: str) -> bool:
    rule = catalogue.facts().get(finding.code)
    own = "recommended" if rule is None else rule["profile"]
    return PROFILES.index(own) <= PROFILES.index(profile)


def _specificity(patterns: tuple[str, ...] | list[str], finding: Finding) -> int:
    """How specifically a list of codes, prefixes and names selects a finding: 0 not at all."""
    best = 0
    for pattern in patterns:
        if pattern == "ALL":
            best = max(best, 1)
        elif pattern in (finding.name, finding.code):
            best = max(best, 100)
        elif pattern[:1].isupper() and finding.code.startswith(pattern):
            best = max(best, 1 + len(pattern))
    return best
