"""`--add-ignores REASON`: a suppression comment above every place that has an open finding.

A comment goes on a line of its own, so that no line of the file changes; a finding without a line of its own in the
file gets a `file-ignore` at the top. The new text must hold the same values, or nothing is written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from primus_lint.rules.baseline import acceptable

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.rules.finding import Finding
    from primus_lint.source.spans import SpanDoc

ABOUT = "U"  # rules about comments for primus-lint: no comment suppresses them
WRITTEN = "suppressed by --add-ignores"


def add_ignores(report: Report, reason: str) -> list[str]:
    """Write the comments, mark their findings as suppressed, and say what was done, a line a file."""
    from primus_lint.source.files import kept_by_links, write_atomic

    reason = " ".join(reason.split())
    said = []
    for checked in report.checked:
        findings = [
            f for f in checked.findings if f.suppressed is None and acceptable(f, checked) and f.code[0] != ABOUT
        ]
        if not findings:
            continue
        if not os.path.isfile(checked.path) or checked.document.doc is None:
            said.append(f"{checked.path}: no place for a comment")
            continue
        data, done = with_ignores(checked, findings, reason)
        if data is None:
            said.append(f"{checked.path}: a comment would change what the file says; nothing written")
            continue
        assert checked.document.source is not None
        try:
            if others := write_atomic(checked.path, data, expected=checked.document.source.data):
                said.append(f"{checked.path}: {kept_by_links(others)}")
        except OSError as error:
            said.append(f"{checked.path}: {error.strerror or error}")
            continue
        for finding in done:
            finding.suppressed = reason or WRITTEN
        said.append(f"{checked.path}: suppressed {', '.join(sorted({finding.name for finding in done}))}")
    return said


def with_ignores(checked: Checked, findings: list[Finding], reason: str) -> tuple[bytes | None, list[Finding]]:
    """The file with comments for these findings, and those that they suppress; None when that cannot be done."""
    from primus_lint.source.spans import SpanDoc
    from primus_lint.source.text import SourceText

    source, doc = checked.document.source, checked.document.doc
    assert source is not None and doc is not None
    by_line: dict[int, list[str]] = {}
    for finding in findings:
        names = by_line.setdefault(line_of(finding, checked, doc), [])
        if finding.name not in names:
            names.append(finding.name)
    text = source.text
    for line in sorted(by_line, reverse=True):
        start = source.line_starts[line - 1] if line else 0
        word = "ignore" if line else "file-ignore"
        rest = text[start:]
        indent = rest[: len(rest) - len(rest.lstrip(" "))] if line else ""
        comment = f"{indent}# primus-lint: {word}[{', '.join(by_line[line])}] {reason}".rstrip()
        text = text[:start] + comment + source.newline + rest
    after = SpanDoc.parse(SourceText.from_text(source.path, text))
    if after.fatal != doc.fatal or after.to_python() != doc.to_python():
        return None, []
    return source.encode(text), findings


def line_of(finding: Finding, checked: Checked, doc: SpanDoc) -> int:
    """The line above which the comment goes; 0: the top of the file."""
    place = finding.place
    if place is None or place.path != checked.path or place.line < 1 or place.span is None:
        return 0
    text = doc.source.text
    start = doc.source.line_starts[place.line - 1]
    inside = any(  # a line within a scalar of several lines has no room for a comment
        node.kind == "scalar" and node.start < start < node.end for root in doc.roots for node in root.walk()
    )
    return 0 if inside or not text[start:].strip() else place.line
