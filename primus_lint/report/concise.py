"""One line a finding: path:line:column: severity[name] message (code)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from primus_lint.report.excerpt import printable

if TYPE_CHECKING:
    from primus_lint.report.bundle import Report


def write(out: TextIO, report: Report) -> None:
    for _, finding in report.shown():
        place = finding.place
        where = place.where() if place else "?"
        if place and place.line < 1 and place.message:
            where += f" ({printable(place.message)})"
        out.write(f"{where}: {finding.severity}[{finding.name}] {printable(finding.message)} ({finding.code})\n")
