"""One line a finding: path:line:column: severity[name] message (code)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from primus_lint.rules.finding import Finding


def write(out: TextIO, findings: list[Finding]) -> None:
    for finding in findings:
        place = finding.place
        where = f"{place.path}:{place.line}:{place.column}" if place else "?"
        out.write(f"{where}: {finding.severity}[{finding.name}] {finding.message} ({finding.code})\n")
