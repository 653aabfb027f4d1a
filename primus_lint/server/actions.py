"""Code actions: the fixes of findings as text edits, a suppression of one finding, and repair or --fix of the file.

A fix is offered only when the edited text, read and judged again, is free of the finding and has no new error.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lsprotocol import types

from primus_lint.server import edits
from primus_lint.server.diagnostics import diagnostic, finding_range
from primus_lint.source.rewrite import Edited
from primus_lint.source.splice import Splice, apply_splices
from primus_lint.tune.rewrite import rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Checked
    from primus_lint.rules.finding import Finding, Fix
    from primus_lint.server.analysis import Analysis

FIX_COMMAND = "primus-lint.fix"  # what `primus-lint --fix` does
REPAIR_COMMAND = "primus-lint.repair"  # what `primus-lint --fix --no-tune` does
FIX_ALL = "source.fixAll.primus-lint"


def actions(
    analysis: Analysis, wanted: types.Range, version: int | None, only: list[str] | None = None
) -> list[types.CodeAction | types.Command]:
    """The code actions of a range; `only` are the kinds that the client asks for (None: all)."""
    found: list[types.CodeAction | types.Command] = []
    if _asked(types.CodeActionKind.QuickFix, only):
        for finding in analysis.checked.findings:
            if finding.suppressed is None and _overlap(finding_range(finding, analysis), wanted):
                found += _of_finding(finding, analysis, version)
    if analysis.checked.is_recipe and not analysis.checked.unreadable:
        for kind, title, command in (
            (FIX_ALL, "primus-lint: repair this file (safe fixes)", REPAIR_COMMAND),
            (types.CodeActionKind.Source, "primus-lint: repair and tune this file (--fix)", FIX_COMMAND),
        ):
            if _asked(kind, only):
                run = types.Command(title, command, arguments=[analysis.uri])
                found.append(types.CodeAction(title, kind=kind, command=run))
    return found


def _of_finding(finding: Finding, analysis: Analysis, version: int | None) -> Iterator[types.CodeAction]:
    shown = diagnostic(finding, analysis)
    works = [(fix, splices) for fix in finding.fixes if (splices := fix_splices(finding, fix, analysis))]
    for fix, splices in works:
        changes = edits.of_splices(splices, analysis.positions)
        yield types.CodeAction(
            fix.title + (" (unsafe)" if fix.safety == "unsafe" else ""),
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[shown],
            is_preferred=fix.safety == "safe" and fix is works[0][0],
            edit=edits.workspace_edit(analysis.uri, version, changes),
        )
    if not works and finding.severity == "error" and _searchable(finding):
        title = "Find the fewest changes that start and fit"
        run = types.Command(title, REPAIR_COMMAND, arguments=[analysis.uri])
        yield types.CodeAction(title, kind=types.CodeActionKind.QuickFix, diagnostics=[shown], command=run)
    comment = suppression(finding, analysis)
    if comment is not None:
        yield types.CodeAction(
            f"Suppress {finding.name} here",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[shown],
            edit=edits.workspace_edit(analysis.uri, version, edits.of_splices([comment], analysis.positions)),
        )


def fix_splices(finding: Finding, fix: Fix, analysis: Analysis) -> list[Splice]:
    """The splices of a fix that does what it says; [] for one that is only shown, or that does not."""
    document = analysis.checked.document
    if fix.safety == "display-only" or finding.section is None:
        return []
    edited = rewrite(fix.changes, finding.section, document)
    if not isinstance(edited, Edited) or not edited.splices:
        return []
    after = analysis.again(edited.text).checked
    return edited.splices if _better(analysis.checked, after, finding.code) else []


def suppression(finding: Finding, analysis: Analysis) -> Splice | None:
    """A comment line above the finding that hides it; None where none does."""
    place = finding.place
    if not finding.suppressible or place is None or place.path != analysis.path or place.line < 1:
        return None
    source, line = analysis.source, place.line
    while analysis.checked.document.format == "shell" and source.line_text(line - 1).endswith("\\"):
        line -= 1  # a comment between the lines of a command would end it
    start = source.line_starts[line - 1]
    content = source.line_text(line)
    indent = content[: len(content) - len(content.lstrip())]
    comment = Splice(start, start, f"{indent}# primus-lint: ignore[{finding.name}]{source.newline}")
    text = apply_splices(source.text, [comment])
    assert isinstance(text, str)
    after = analysis.again(text).checked
    return comment if _better(analysis.checked, after, finding.code) else None


def _searchable(finding: Finding) -> bool:
    """Whether the search of --fix may help: the finding is about memory, or about keys that the search changes."""
    from primus_lint.tune.space import TUNED

    return finding.code[0] == "M" or bool(set(finding.keys) & set(TUNED))


def _better(before: Checked, after: Checked, code: str) -> bool:
    """Whether a finding vanished and no error came."""
    old, new = _codes(before), _codes(after)
    errors = {finding.code for finding in after.findings if finding.severity == "error"}
    return new[code] < old[code] and all(new[other] <= old[other] for other in errors)


def _codes(checked: Checked) -> Counter[str]:
    return Counter(finding.code for finding in checked.findings if finding.suppressed is None)


def _asked(kind: str, only: list[str] | None) -> bool:
    return only is None or any(kind == each or kind.startswith(each + ".") for each in only)


def _overlap(one: types.Range, two: types.Range) -> bool:
    return not (_before(one.end, two.start) or _before(two.end, one.start))


def _before(one: types.Position, two: types.Position) -> bool:
    return (one.line, one.character) < (two.line, two.character)
