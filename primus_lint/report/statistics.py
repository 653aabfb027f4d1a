"""Findings counted by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from primus_lint.report.bundle import Report


def write(out: TextIO, report: Report) -> None:
    """One line a rule, the commonest first: findings, files, causes, code, severity, name; `[*]` where `--fix` helps."""
    findings: dict[tuple[str, str, str], list[str]] = {}
    fixable: set[str] = set()
    for checked, finding in report.shown():
        findings.setdefault((finding.code, finding.name, finding.severity), []).append(checked.path)
        if any(fix.safety == "safe" for fix in finding.fixes):
            fixable.add(finding.code)
    causes: dict[str, int] = {}
    for group in report.groups:
        causes[group.finding.code] = causes.get(group.finding.code, 0) + 1
    if findings:
        out.write(f"{'findings':>8} {'files':>6} {'causes':>6}\n")
    for (code, name, severity), paths in sorted(findings.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        mark = " [*]" if code in fixable else ""
        out.write(f"{len(paths):>8} {len(set(paths)):>6} {causes[code]:>6}  {code}  {severity:8}{name}{mark}\n")
    out.write(report.total() + "\n")
