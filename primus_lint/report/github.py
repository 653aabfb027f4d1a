"""Annotations and the step summary of GitHub Actions.

GitHub keeps ten annotations of a level for one step and drops the rest without a word: so the most severe causes come
first, ten of each level are written, and the last line says how many are not shown. The summary holds all of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from primus_lint.report.places import relative

if TYPE_CHECKING:
    from primus_lint.report.bundle import Report
    from primus_lint.report.groups import Group

CAP = 10
COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
SUMMARY_LIMIT_BYTES = 1 << 20


def write(out: TextIO, report: Report) -> None:
    """One workflow command a cause; a line for people about what GitHub would drop; the step summary."""
    written = dict.fromkeys(COMMANDS, 0)
    left = 0
    for group in report.groups:
        severity = group.finding.severity
        if written[severity] < CAP:
            written[severity] += 1
            out.write(annotation(group, report.root) + "\n")
        else:
            left += 1
    for line in report.remarks():
        out.write(line + "\n")
    out.write(report.total() + "\n")
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        add_summary(path, report)
    if left:
        more = "the step summary has all" if path else "another --output-format has all"
        out.write(f"{left} more not shown as annotations (GitHub keeps {CAP} of a level for a step): {more}\n")


def annotation(group: Group, root: str) -> str:
    """`::error file=...,line=...::message` of a cause, at the first place that has it."""
    from primus_lint.report.places import span_data

    checked, finding = group.members[0]
    place = finding.place
    parts = {"file": relative(checked.path, root)}
    if place is not None and place.path == checked.path:
        span = span_data(place, checked)
        parts["line"] = str(span["line"])
        if span["end_line"] == span["line"]:  # columns mean something within one line only
            parts["col"] = str(span["column"])
            parts["endColumn"] = str(max(span["end_column"], span["column"]))
        else:
            parts["endLine"] = str(span["end_line"])
    parts["title"] = f"{finding.name} ({finding.code})"
    text = finding.message
    if group.cause is not None:
        text += f"\nset in {relative(group.cause.path, root)}:{group.cause.line}"
    if group.files > 1:
        text += f"\nin {group.files} files: {group.others()}"
    text += "".join(f"\n{note}" for note in finding.notes)
    text += "".join(f"\nfix ({fix.safety}): {fix.title}" for fix in finding.fixes)
    shown = ",".join(f"{name}={_property(value)}" for name, value in parts.items())
    return f"::{COMMANDS[finding.severity]} {shown}::{_data(text)}"


def add_summary(path: str, report: Report) -> None:
    """Append the Markdown report to the step's summary, within GitHub's limit."""
    from primus_lint.report.markdown import text

    body = text(report, SUMMARY_LIMIT_BYTES // 2)
    with open(path, "a", encoding="utf-8", errors="replace") as file:
        file.write(body + "\n")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
