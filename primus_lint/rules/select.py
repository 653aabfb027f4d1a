"""Which findings are shown: profile, select, extend-select, ignore, per-file-ignores; the most specific prefix wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.rules import catalogue

if TYPE_CHECKING:
    from primus_lint.settings import Settings

PROFILES = ("legal", "recommended", "all")


def selected(code: str, name: str, severity: str, path: str, settings: Settings | None) -> bool:
    """Whether findings of a rule are wanted in a file. Reading problems that stop the run are always shown."""
    if settings is None:
        return in_profile(code, "recommended")
    if severity == "error" and code.startswith("S"):
        return True
    chosen = _specificity(settings.extend_select, code, name)
    if settings.select:
        chosen = max(chosen, _specificity(settings.select, code, name))
        wanted = chosen > 0
    else:
        wanted = chosen > 0 or in_profile(code, settings.profile or "recommended")
    ignored = _specificity(settings.ignore, code, name)
    if ignored > chosen or (chosen == 0 and ignored > 0):
        wanted = False
    return wanted and _specificity(settings.ignored_in(path), code, name) == 0


def severity_of(code: str, name: str, own: str, settings: Settings | None) -> str:
    """The severity of a rule under the settings' `severity` table; the most specific entry wins."""
    best, level = 0, own
    for pattern, given in settings.severity if settings is not None else ():
        rank = _specificity((pattern,), code, name)
        if rank > best:
            best, level = rank, given
    return level


def in_profile(code: str, profile: str) -> bool:
    entry = catalogue.by_code().get(code)
    own = "recommended" if entry is None else entry.profile
    return PROFILES.index(own) <= PROFILES.index(profile)


def unknown_patterns(settings: Settings) -> list[tuple[str, str, str]]:
    """(setting, pattern, the nearest name or "") for every pattern of the settings that selects no rule there is."""
    given = [(key, name) for key in ("select", "extend_select", "ignore") for name in getattr(settings, key)]
    given += [("severity", name) for name, _ in settings.severity]
    given += [("per-file-ignores", name) for _, names in settings.per_file_ignores for name in names]
    known = catalogue.patterns() if given else frozenset()
    out = []
    for key, pattern in given:
        if pattern in known:
            continue
        from difflib import get_close_matches

        rules = catalogue.by_code().values()
        near = get_close_matches(pattern, [rule.name for rule in rules] + [rule.code for rule in rules], 1, 0.6)
        out.append((key.replace("_", "-"), pattern, near[0] if near else ""))
    return out


def _specificity(patterns: tuple[str, ...] | list[str], code: str, name: str) -> int:
    """How specifically a list of codes, prefixes and names selects a rule: 0 not at all."""
    best = 0
    for pattern in patterns:
        if pattern == "ALL":
            best = max(best, 1)
        elif pattern in (name, code):
            best = max(best, 100)
        elif pattern[:1].isupper() and code.startswith(pattern):
            best = max(best, 1 + len(pattern))
    return best
