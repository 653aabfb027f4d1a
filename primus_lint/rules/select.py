"""Which findings are shown: profile, select, extend-select, ignore, per-file-ignores; the most specific prefix wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.readers.document import LocatedProblem
from primus_lint.rules import catalogue

if TYPE_CHECKING:
    from primus_lint.settings import Settings

PROFILES = ("legal", "recommended", "all")


def selected(code: str, name: str, severity: str, path: str, settings: Settings | None) -> bool:
    """Whether findings of a rule are wanted in a file. Reading problems that stop the run are always shown."""
    if not chosen(code, name, severity, settings):
        return False
    return _stops_the_run(code, severity) or settings is None or not specificity(settings.ignored_in(path), code, name)


def chosen(code: str, name: str, severity: str, settings: Settings | None) -> bool:
    """Whether the settings want a rule, whatever they leave out in single files.

    As in ruff: inside one file (and on the command line) the most specific pattern wins, `ignore` among equals; each file
    changes what the one that it extends wants, and a `select` starts anew.
    """
    if _stops_the_run(code, severity):
        return True
    if settings is None:
        return in_profile(code, "recommended")
    wanted = in_profile(code, settings.profile or "recommended")
    for layer in settings.layers:
        if layer.select:
            wanted = False
        taken = max(specificity(layer.select, code, name), specificity(layer.extend_select, code, name))
        left = specificity(layer.ignore, code, name)
        if taken or left:
            wanted = taken > left
    return wanted


def kept(code: str, name: str, severity: str, path: str, settings: Settings | None) -> bool:
    """Whether a finding stays in its file; the entries of `per-file-ignores` that hide it are used from now on."""
    if not chosen(code, name, severity, settings):
        return False
    if settings is None or _stops_the_run(code, severity):
        return True
    hidden = False
    for layer, glob, patterns in settings.all_ignores():
        hits = [pattern for pattern in patterns if specificity((pattern,), code, name)]
        if hits and layer.matches(glob, path):
            layer.used_ignores.update((glob, pattern) for pattern in hits)
            hidden = True
    return not hidden


def _stops_the_run(code: str, severity: str) -> bool:
    return severity == "error" and code.startswith("S")


def severity_of(code: str, name: str, own: str, settings: Settings | None) -> str:
    """The severity of a rule under the settings' `severity` tables; the most specific entry wins, of equals the nearest."""
    best, level = 0, own
    for layer in reversed(settings.layers) if settings is not None else ():
        for pattern, given in layer.severity:
            rank = specificity((pattern,), code, name)
            if rank > best:
                best, level = rank, given
    return level


def in_profile(code: str, profile: str) -> bool:
    entry = catalogue.by_code().get(code)
    own = "recommended" if entry is None else entry.profile
    return PROFILES.index(own) <= PROFILES.index(profile)


def pattern_problems(settings: Settings) -> list[LocatedProblem]:
    """Patterns of the settings that select no rule, or have a rule's former name, at their place in the file; those of
    the command line have no line. One in `select` would switch off what was meant: fatal."""
    given = _all_patterns(settings)
    if not given:
        return []
    known, former, rules = catalogue.patterns(), catalogue.former(), catalogue.by_code()
    out = []
    for layer, key, pattern in given:
        if pattern in former:
            message = f"{pattern} is called {rules[former[pattern]].name} now"
        elif pattern not in known:
            from difflib import get_close_matches

            names = [rule.name for rule in rules.values()]
            near = get_close_matches(pattern, [*names, *rules], 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else "`primus-lint rules` lists them"
            message = f"no rule has the name, code or prefix {pattern!r}; {hint}"
        else:
            continue
        fatal = pattern not in former and key in ("select", "extend-select")
        out.append(_problem(layer, key, pattern, f"{key}: {message}", fatal))
    return out


def _problem(layer: Settings, key: str, pattern: str, message: str, fatal: bool) -> LocatedProblem:
    from primus_lint.settings_check import place_of

    span, line, column = None, 0, 0
    if layer.path is not None:
        with open(str(layer.path), encoding="utf-8", errors="replace") as file:
            span, line, column = place_of(pattern, file.read())
    path = str(layer.path)
    if span is None:
        path, line, column = "<command line>", 0, 0
    return LocatedProblem("settings-pattern", message, path, span, line, column, fatal, (key,))


def _all_patterns(settings: Settings) -> list[tuple[Settings, str, str]]:
    """(layer, setting, pattern) for everything that names rules, in all layers."""
    given = [
        (layer, key.replace("_", "-"), name)
        for layer in settings.layers
        for key in ("select", "extend_select", "ignore")
        for name in getattr(layer, key)
    ]
    given += [(layer, "severity", name) for layer in settings.layers for name, _ in layer.severity]
    given += [(layer, "per-file-ignores", name) for layer, _, names in settings.all_ignores() for name in names]
    return given


def specificity(patterns: tuple[str, ...] | list[str], code: str, name: str) -> int:
    """How specifically a list of codes, prefixes and names selects a rule: 0 not at all."""
    best = 0
    for pattern in patterns:
        if pattern == "ALL":
            best = max(best, 1)
        elif pattern in (name, code) or catalogue.former().get(pattern) == code:
            best = max(best, 100)
        elif pattern[:1].isupper() and code.startswith(pattern):
            best = max(best, 1 + len(pattern))
    return best
