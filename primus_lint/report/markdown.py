"""The report for a pull request: totals, a table of files with memory and speed, what changed, findings by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from primus_lint.report.fixes import diff_of
from primus_lint.report.places import relative
from primus_lint.units import gib

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.report.groups import Group

LIMIT_BYTES = 60_000  # a comment on GitHub holds 65,536 characters
ROWS = 30
MARKS = {"error": "❌", "warning": "⚠️", "info": "ℹ️"}


def write(out: TextIO, report: Report) -> None:
    out.write(text(report, LIMIT_BYTES) + "\n")


def text(report: Report, limit_bytes: int) -> str:
    """The whole report; findings that do not fit into the limit are counted instead."""
    parts = [f"### primus-lint: {report.total()}", ""]
    if report.base is not None:
        parts += [*comparison_table(report), ""]
    parts += [*file_table(report), ""]
    size = sum(_size(part) + 1 for part in parts)
    left = 0
    for group in report.groups:
        block = "\n".join(group_lines(group, report.root))
        if left or size + _size(block) > limit_bytes:
            left += 1
            continue
        size += _size(block) + 1
        parts.append(block)
    if left:
        parts.append(f"\n{left} more causes are not shown here.")
    if report.diffs:
        parts += ["", *_diffs(report, max(limit_bytes - size, 2000))]
    remarks = report.remarks()
    if remarks:
        parts += ["", "<sub>" + "; ".join(cell(line) for line in remarks) + "</sub>"]
    return "\n".join(parts).rstrip()


def comparison_table(report: Report) -> list[str]:
    """Before and after of every recipe that changed against the base."""
    if not report.comparisons:
        return [f"No recipe changed against `{report.base}`."]
    lines = [
        f"Changed against `{report.base}`:",
        "",
        "| recipe | tokens/s/GPU | headroom | |",
        "| --- | --- | --- | --- |",
    ]
    for item in report.comparisons:
        speed, headroom = item.cells()
        former = f" (was `{item.before.path}`)" if item.before.path else ""
        lines.append(f"| `{relative(item.path, report.root)}`{former} | {speed} | {headroom} | {item.verdict} |")
    return lines


def file_table(report: Report) -> list[str]:
    """At most ROWS files, those with most errors first, then those with most warnings."""
    order = sorted(report.checked, key=lambda item: ([-number for number in _numbers(item)], item.path))
    lines = ["| recipe | findings | memory of the worst rank | tokens/s/GPU |", "| --- | --- | --- | --- |"]
    for checked in order[:ROWS]:
        memory, speed = _figures(checked)
        lines.append(f"| `{relative(checked.path, report.root)}` | {_open(checked) or 'none'} | {memory} | {speed} |")
    if len(order) > ROWS:
        clean = sum(not _open(item) for item in order[ROWS:])
        lines.append(f"| {len(order) - ROWS} more, {clean} of them without findings | | | |")
    return lines


def _numbers(checked: Checked) -> list[int]:
    """Errors, warnings and notes of a file."""
    shown = [finding.severity for finding in checked.findings if finding.suppressed is None]
    return [shown.count(kind) for kind in MARKS]


def _open(checked: Checked) -> str:
    counts = zip(MARKS.values(), _numbers(checked), strict=True)
    return " ".join(f"{mark} {number}" for mark, number in counts if number)


def _figures(checked: Checked) -> tuple[str, str]:
    """Memory and speed of the first section that has an account, or why none has one."""
    reasons = ""
    for subject in checked.subjects:
        ledger, accelerator, projection = subject.ledger, subject.accelerator, subject.projection
        if ledger is None:
            why = (
                cell("; ".join(subject.no_memory))
                if subject.modelled
                else f"{subject.section.framework} is not modelled"
            )
            reasons = reasons or f"none: {why}"
            continue
        memory = f"{gib(ledger.worst_rank.device_low_bytes)} to {gib(ledger.worst_rank.device_high_bytes)}"
        if accelerator is not None:
            memory += f" of {gib(accelerator.visible_hbm_bytes)}"
        if subject.fits is False:
            return memory + " **out of memory**", "does not run"
        if projection is None:
            return memory, f"none: {cell('; '.join(subject.no_time))}"
        return memory, f"{projection.tokens_per_s_per_gpu:,.0f}"
    return reasons, ""


def group_lines(group: Group, root: str) -> list[str]:
    """One cause as a folded block."""
    finding, checked = group.finding, group.checked
    place = finding.place
    where = f"`{relative(checked.path, root)}`"
    if place is not None and place.path == checked.path:
        where = f"`{place.where(relative(checked.path, root))}`" + (
            f": {cell(place.message)}" if place.line < 1 else ""
        )
    lines = [
        f"<details><summary>{MARKS[finding.severity]} <b>{finding.name}</b> ({finding.code}): {cell(finding.message)}</summary>",
        "",
    ]
    if group.cause is not None:
        lines.append(f"- from `{relative(group.cause.path, root)}:{group.cause.line}`, used by {group.others(10)}")
    elif group.files > 1:
        lines.append(f"- in {group.files} files: {group.others(10)}")
    else:
        lines.append(f"- {where}")
        source = checked.document.sources.get(place.path) if place is not None else None
        if source is not None and place is not None and place.line > 0:
            lines += ["", "```yaml", source.line_text(place.line), "```", ""]
    lines += [f"- {cell(note)}" for note in finding.notes]
    for fix in finding.fixes:
        lines.append(f"- fix ({fix.safety}): {cell(fix.title)}")
        diff = diff_of(fix, finding, checked, relative(checked.path, root))
        if diff:
            lines += ["", "```diff", *diff.rstrip("\n").split("\n")[2:], "```", ""]
    return [*lines, "", "</details>"]


def _diffs(report: Report, limit_bytes: int) -> list[str]:
    lines: list[str] = []
    for path, diff in report.diffs.items():
        if _size(diff) <= limit_bytes:
            limit_bytes -= _size(diff)
            lines += [
                f"`{relative(path, report.root)}` as `--fix` writes it:",
                "",
                "```diff",
                diff.rstrip("\n"),
                "```",
                "",
            ]
    return lines


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def cell(text: str) -> str:
    """Words that may stand in a table cell or a summary: no markup comes out of them."""
    for char, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "\\`"), ("*", "\\*")):
        text = text.replace(char, safe)
    return " ".join(text.split())
