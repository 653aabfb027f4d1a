"""Findings -> diagnostics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls import uris

from primus_lint.server.positions import Positions

if TYPE_CHECKING:
    from primus_lint.readers.document import LocatedProblem
    from primus_lint.rules.finding import Finding, Place
    from primus_lint.server.analysis import Analysis

SOURCE = "primus-lint"
_SEVERITY = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
# Rules about keys that do nothing, and about old spellings: editors fade the one and strike the other out.
_TAGS = {
    "key-without-effect": types.DiagnosticTag.Unnecessary,
    "key-without-need": types.DiagnosticTag.Unnecessary,
    "sibling-key-ignored": types.DiagnosticTag.Unnecessary,
    "unused-suppression": types.DiagnosticTag.Unnecessary,
    "deprecated-key": types.DiagnosticTag.Deprecated,
}


def diagnostics(analysis: Analysis) -> list[types.Diagnostic]:
    """One diagnostic for every finding that is not suppressed."""
    return [diagnostic(finding, analysis) for finding in analysis.checked.findings if finding.suppressed is None]


def diagnostic(finding: Finding, analysis: Analysis) -> types.Diagnostic:
    """A finding as the editor shows it. Places that are no files (presets of the shipped snapshot) go into the text."""
    lines = [finding.message, *finding.notes]
    related = []
    for place in finding.related:
        location = _location(place, analysis)
        if location is None:
            lines.append(f"{place.message or 'see'}: {place.path}" + (f":{place.line}" if place.line else ""))
        else:
            related.append(types.DiagnosticRelatedInformation(location, place.message or "see here"))
    here = finding.place
    if here is not None and here.path != analysis.path:
        lines.append(f"in {here.path}:{here.line}")
    if finding.confidence != "certain" and finding.severity != "info":
        lines.append(f"confidence: {finding.confidence}")
    lines += [f"by hand: {fix.title}" for fix in finding.fixes if fix.safety == "display-only"]
    tag = _TAGS.get(finding.name)
    return types.Diagnostic(
        range=finding_range(finding, analysis),
        message="\n".join(lines),
        severity=_SEVERITY[finding.severity],
        code=finding.name,
        source=SOURCE,
        tags=None if tag is None else [tag],
        related_information=related or None,
        data={"code": finding.code},
    )


def finding_range(finding: Finding, analysis: Analysis) -> types.Range:
    """Where a finding is shown: its place, or the first line when it lies in another file."""
    place, positions = finding.place, analysis.positions
    if place is None or place.path != analysis.path or place.line < 1:
        return positions.first_line(0, len(analysis.source.line_text(1)))
    return _range(place, positions)


def settings_diagnostic(problem: LocatedProblem) -> types.Diagnostic:
    """Something wrong with a settings file."""
    line = max(problem.line, 1) - 1
    start = max(problem.column, 1) - 1
    width = problem.span[1] - problem.span[0] if problem.span is not None else 1
    return types.Diagnostic(
        range=types.Range(types.Position(line, start), types.Position(line, start + width)),
        message=problem.message,
        severity=types.DiagnosticSeverity.Error if problem.fatal else types.DiagnosticSeverity.Warning,
        code=problem.code,
        source=SOURCE,
    )


def _location(place: Place, analysis: Analysis) -> types.Location | None:
    if place.path == analysis.path and place.line > 0:
        return types.Location(analysis.uri, _range(place, analysis.positions))
    if not os.path.isfile(place.path):
        return None
    uri = uris.from_fs_path(os.path.abspath(place.path))
    source = analysis.checked.document.sources.get(place.path)
    if uri is None:
        return None
    if source is None:
        start = types.Position(max(place.line, 1) - 1, max(place.column, 1) - 1)
        return types.Location(uri, types.Range(start, start))
    return types.Location(uri, _range(place, Positions(source, analysis.positions.encoding)))


def _range(place: Place, positions: Positions) -> types.Range:
    if place.span is not None:
        return positions.first_line(*place.span)
    source = positions.source
    start = source.line_starts[min(place.line, len(source.line_starts)) - 1] + max(place.column, 1) - 1
    return positions.first_line(start, start + len(source.line_text(place.line)))
