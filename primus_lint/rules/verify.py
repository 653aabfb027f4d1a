"""A fix is offered only when it does what it says: its finding vanishes and no new error comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.readers.document import Origin, Section, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.rules.finding import Change, Finding, Fix
    from primus_lint.subject import Subject


def after_changes(subject: Subject, changes: Iterable[Change]) -> Subject:
    """The same subject with some keys set, dropped or renamed, as if the file said so."""

    values = dict(subject.section.values)
    for change in changes:
        if change.op == "set":
            values[change.key] = Value(change.value, (Origin("cli", change.value, key_path=(change.key,)),))
            continue
        old = values.pop(change.key, None)
        if old is None:
            continue
        if change.op == "rename":
            values[change.value] = Value(old.value, old.origins)
        below = [origin for origin in old.origins if origin.path != subject.document.path and origin.layer != "cli"]
        if below and subject.document.format != "batch":  # what a preset said all the time
            values[change.key] = Value(below[0].value, tuple(below))
    old_section = subject.section
    section = Section(
        old_section.name, old_section.framework, values, node_path=old_section.node_path, model=old_section.model,
        module_preset=old_section.module_preset,
    )  # fmt: skip
    return subject.like(section, subject.target)


def works(fix: Fix, finding: Finding, subject: Subject) -> bool:
    """Whether a fix of a condition's finding makes it vanish and brings no error that was not there."""
    before = subject.conditions
    after = after_changes(subject, fix.changes).conditions
    known = {other.code for other in before if other.severity == "error"}
    new = any(other.severity == "error" and other.code not in known for other in after)
    fewer = sum(other.code == finding.code for other in after) < sum(other.code == finding.code for other in before)
    return fewer and not new


def keep_working_fixes(findings: list[Finding], subject: Subject) -> None:
    """Drop the fixes of conditions that do not do what they say on this recipe."""
    for finding in findings:
        if finding.fixes:
            finding.fixes = tuple(fix for fix in finding.fixes if works(fix, finding, subject))
