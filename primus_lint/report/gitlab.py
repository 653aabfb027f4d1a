"""GitLab Code Quality: one JSON array; fingerprints are unique in a report and survive edits elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

from primus_lint.report.places import fingerprints, relative, span_data

if TYPE_CHECKING:
    from primus_lint.report.bundle import Report

SEVERITIES = {"error": "critical", "warning": "minor", "info": "info"}


def write(out: TextIO, report: Report) -> None:
    prints = fingerprints(report)
    issues = []
    for checked, finding in report.shown():
        place = finding.place
        lines = {"begin": 1}
        if place is not None and place.path == checked.path:
            span = span_data(place, checked)
            lines = {"begin": span["line"], "end": span["end_line"]}
        issues.append(
            {
                "description": finding.message,
                "check_name": finding.name,
                "fingerprint": prints[id(finding)],
                "severity": SEVERITIES[finding.severity],
                "location": {"path": relative(checked.path, report.root), "lines": lines},
            }
        )
    json.dump(issues, out, indent=1, ensure_ascii=False)
    out.write("\n")
