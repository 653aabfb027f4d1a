"""The edits of a fix as reports give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.rules.finding import Finding, Fix
    from primus_lint.source.splice import Splice


def splices(fix: Fix, finding: Finding, checked: Checked) -> list[Splice]:
    """What a fix replaces in the file, in character offsets; [] when it cannot be written there."""
    from primus_lint.source.rewrite import Edited
    from primus_lint.tune.rewrite import rewrite

    if finding.section is None or checked.document.source is None:
        return []
    result = rewrite(fix.changes, finding.section, checked.document)
    return list(result.splices) if isinstance(result, Edited) else []


def byte_edits(fix: Fix, finding: Finding, checked: Checked, path: str) -> list[dict[str, Any]]:
    """The same with byte offsets of the file."""
    source = checked.document.source
    if source is None:
        return []
    return [
        {
            "path": path,
            "byte_start": source.byte_offset(splice.start),
            "byte_end": source.byte_offset(splice.end),
            "text": splice.text,
        }
        for splice in splices(fix, finding, checked)
    ]


def diff_of(fix: Fix, finding: Finding, checked: Checked, path: str) -> str:
    """The unified diff of a fix; empty when it cannot be written."""
    from primus_lint.source.diff import unified_diff
    from primus_lint.source.splice import apply_splices

    source, edits = checked.document.source, splices(fix, finding, checked)
    if source is None or not edits:
        return ""
    text = apply_splices(source.text, edits)
    return unified_diff(source.text, text, path, context=1) if isinstance(text, str) else ""
