"""JUnit XML: one test suite a file; a finding at or above the level that fails the run (`Report.fail_on`) is a failed
test case, one below it a passed one that says so on its system-out, a suppressed one a skipped one.

What keeps a file from being read is an `error`; a file without findings is one passed test case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from primus_lint.report.bundle import FAILING
from primus_lint.report.places import relative

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.rules.finding import Finding


def write(out: TextIO, report: Report) -> None:
    out.write('<?xml version="1.0" encoding="utf-8"?>\n')
    suites = [(checked, _cases(checked, report)) for checked in report.checked]
    every = [case for _, cases in suites for case in cases]
    out.write(f'<testsuites name="primus-lint" {_counts(every)}>\n')
    for checked, cases in suites:
        out.write(f' <testsuite name="{_attribute(relative(checked.path, report.root))}" {_counts(cases)}>\n')
        for _, text in cases:
            out.write(text)
        out.write(" </testsuite>\n")
    out.write("</testsuites>\n")


def _counts(cases: list[tuple[str, str]]) -> str:
    kinds = [kind for kind, _ in cases]
    return (
        f'tests="{len(kinds)}" failures="{kinds.count("failure")}" errors="{kinds.count("error")}" '
        f'skipped="{kinds.count("skipped")}"'
    )


def _cases(checked: Checked, report: Report) -> list[tuple[str, str]]:
    """(kind, XML) of every test case of a file."""
    path = relative(checked.path, report.root)
    cases = [_case(finding, checked, path, FAILING[report.fail_on]) for finding in checked.findings]
    if not cases:
        cases.append(("passed", f'  <testcase classname="{_attribute(path)}" name="primus-lint"/>\n'))
    return cases


def _case(finding: Finding, checked: Checked, path: str, failing: tuple[str, ...]) -> tuple[str, str]:
    place = finding.place
    where = f"{place.line}:{place.column}" if place is not None and place.path == checked.path and place.line else "1:1"
    head = f'  <testcase classname="{_attribute(path)}" name="{_attribute(f"{finding.name} at {where}")}">\n'
    if finding.suppressed is not None:
        return "skipped", f'{head}   <skipped message="{_attribute(finding.suppressed)}"/>\n  </testcase>\n'
    kind = "error" if checked.unreadable and finding.severity == "error" else "failure"
    lines = [f"{path}:{where}: {finding.severity}[{finding.name}] {finding.message} ({finding.code})", *finding.notes]
    lines += [f"fix ({fix.safety}): {fix.title}" for fix in finding.fixes]
    if kind == "failure" and finding.severity not in failing:
        return "passed", f"{head}   <system-out>{_escaped(chr(10).join(lines))}</system-out>\n  </testcase>\n"
    return kind, (
        f'{head}   <{kind} type="{finding.severity}" message="{_attribute(finding.message)}">'
        f"{_escaped(chr(10).join(lines))}</{kind}>\n  </testcase>\n"
    )


def _escaped(text: str) -> str:
    """XML text; characters that XML 1.0 cannot hold become U+FFFD."""
    legal = "".join(
        char
        if char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff"
        else "\ufffd"
        for char in text
    )
    return legal.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _escaped(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;").replace("\r", "&#13;")
