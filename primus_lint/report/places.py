"""Paths, spans and fingerprints as reports give them: relative to the repository, 1-based, stable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.rules.finding import Finding, Place


def relative(path: str, root: str) -> str:
    """A path from the repository's root with `/`. One that is not on disk (a preset of the snapshot) stays as it is."""
    if not os.path.isabs(path):
        path = os.path.abspath(path) if os.path.exists(path) else path
    if os.path.isabs(path):
        path = os.path.relpath(path, root)
    return path.replace(os.sep, "/")


def path_of(finding: Finding, checked: Checked) -> str:
    """The file that a finding points into."""
    return finding.place.path if finding.place else checked.path


def span_data(place: Place, checked: Checked) -> dict[str, int]:
    """Lines and columns from 1 (characters), bytes from 0. Without the file's text: the line, and no bytes."""
    source = checked.document.sources.get(place.path)
    if source is None or place.span is None:
        line, column = max(place.line, 1), max(place.column, 1)
        return {
            "line": line, "column": column, "end_line": line, "end_column": column, "byte_start": 0, "byte_end": 0
        }  # fmt: skip
    end_line, end_column = source.position(place.span[1])
    return {
        "line": place.line,
        "column": place.column,
        "end_line": end_line,
        "end_column": end_column,
        "byte_start": source.byte_offset(place.span[0]),
        "byte_end": source.byte_offset(place.span[1]),
    }


def value_of(finding: Finding) -> str:
    """The value of the key that a finding is about, as text; empty without one."""
    if finding.section is None or not finding.keys:
        return ""
    return repr(finding.section.get(finding.keys[0]))


def fingerprints(report: Report) -> dict[int, str]:
    """id(finding) -> fingerprint, unique in a report and stable under edits elsewhere.

    It is made of rule, file, key path and the value of the key, not of the line; findings that agree in all of them
    are numbered in their order.
    """
    import hashlib

    seen: dict[str, int] = {}
    out = {}
    for checked, finding in report.all():
        parts = [
            finding.code,
            relative(checked.path, report.root),
            ".".join(str(part) for part in finding.key_path),
            value_of(finding),
        ]
        if finding.section is not None and len(checked.subjects) > 1:
            parts.append(finding.section.name)
        text = "\x00".join(parts)
        number = seen[text] = seen.get(text, -1) + 1
        if number:
            text += f"\x00{number}"
        out[id(finding)] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return out
