"""Entries of `per-file-ignores` that a run over the whole folder of their settings file had no use for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from primus_lint.readers.document import LocatedProblem
from primus_lint.rules import catalogue
from primus_lint.rules.select import chosen, specificity
from primus_lint.settings_check import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Checked
    from primus_lint.settings import Settings

CODE = "unused-per-file-ignore"


def unused_ignores(checked: list[Checked], folders: list[str]) -> Iterator[LocatedProblem]:
    """What is left over, for settings files below the folders that a run looked at as a whole."""
    seen: set[tuple[str, str]] = set()
    tops = [os.path.realpath(folder) for folder in folders]
    for item in checked:
        for layer, glob, patterns in item.settings.all_ignores() if item.settings is not None else ():
            here = os.path.realpath(layer.root)
            if (here, glob) in seen or not any(os.path.commonpath((here, top)) == top for top in tops):
                continue
            seen.add((here, glob))
            files = [other for other in checked if layer.matches(glob, other.path)]
            for message in _left_over(layer, glob, patterns, files):
                with open(str(layer.path), encoding="utf-8", errors="replace") as file:
                    span, line, column = place_of(glob, file.read())
                yield LocatedProblem(CODE, message, str(layer.path), span, line, column)


def _left_over(layer: Settings, glob: str, patterns: tuple[str, ...], files: list[Checked]) -> Iterator[str]:
    if not files:
        yield f"{glob!r} matches no recipe below this folder"
        return
    for pattern in patterns:
        if (glob, pattern) not in layer.used_ignores and _judged(pattern, files):
            yield f"{pattern} hides nothing in {glob!r}: remove it"


def _judged(pattern: str, files: list[Checked]) -> bool:
    """Whether the run could have found something that a pattern hides, in each of the files."""
    from primus_lint.rules.suppress import had_passes

    rules = [rule for rule in catalogue.by_code().values() if specificity((pattern,), rule.code, rule.name)]
    if not rules:
        return False  # it names none: that is said already
    for item in files:
        wanted = [rule for rule in rules if chosen(rule.code, rule.name, rule.severity, item.settings)]
        decided = [rule for rule in wanted if rule.from_one_file]
        if len(decided) < len(wanted) and not decided:
            return False
        if item.unreadable or not all(had_passes(rule, subject) for rule in decided for subject in item.subjects):
            return False
    return True
