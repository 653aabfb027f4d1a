"""One self-contained HTML page for a run: no script, no request, readable on a phone and on a desktop."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, TextIO

from primus_lint import __version__
from primus_lint.report import excerpt as excerpts
from primus_lint.report import html_charts
from primus_lint.report.fixes import diff_of
from primus_lint.report.html_style import CSS
from primus_lint.report.places import relative
from primus_lint.report.text import subject_lines

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.report.groups import Group
    from primus_lint.rules.finding import Finding, Place

CHARTED = 40  # files with charts; a page of hundreds would be slow to open


def write(out: TextIO, report: Report) -> None:
    out.write(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>primus-lint: {escape(report.total())}</title><style>{CSS}</style></head><body><main>\n"
    )
    out.write(header(report))
    if report.base is not None:
        out.write(comparisons(report))
    common = [group for group in report.groups if len(group.members) > 1]
    if len(report.checked) > 1:
        out.write(overview(report))
    if common:
        out.write("<section><h2>Found in many files</h2>" + "".join(shared(group, report) for group in common))
        out.write("</section>\n")
    grouped = {id(finding) for group in common for _, finding in group.members}
    order = sorted(enumerate(report.checked), key=lambda pair: (_rank(pair[1]), pair[0]))
    for place, (number, checked) in enumerate(order):
        if len(order) <= CHARTED or place < CHARTED:
            out.write(file_section(checked, report, number, grouped))
    if len(order) > CHARTED:
        out.write(f'<p class="dim">{len(order) - CHARTED} more files are in the table above only.</p>\n')
    out.write(f'<p class="dim small">primus-lint {__version__}</p></main></body></html>\n')


def _rank(checked: Checked) -> int:
    """Files with the worst findings first."""
    severities = [finding.severity for finding in checked.findings if finding.suppressed is None]
    return next((rank for rank, kind in enumerate(("error", "warning", "info")) if kind in severities), 3)


def header(report: Report) -> str:
    counts = report.counts()
    chips = "".join(
        f'<span class="{kind}">{number} {kind}{"" if number == 1 else "s"}</span>'
        for kind, number in counts.items()
        if number
    )
    chips = chips or '<span class="ok">no findings</span>'
    remarks = "".join(f"<br>{escape(line)}" for line in report.remarks())
    return (
        f'<h1>primus-lint report</h1><p class="chips">{chips}</p>'
        f'<p class="dim small">{escape(report.total())}{remarks}</p>\n'
    )


def comparisons(report: Report) -> str:
    if not report.comparisons:
        return f"<section><h2>Against {escape(str(report.base))}</h2><p>No recipe changed.</p></section>\n"
    rows = []
    for item in report.comparisons:
        speed, headroom = item.cells()
        former = f" (was {item.before.path})" if item.before.path else ""
        rows.append(
            f'<tr><td class="path">{html_charts.breakable(relative(item.path, report.root) + former)}</td><td class="n">{speed}</td>'
            f'<td class="n">{headroom}</td><td class="n">{item.verdict}</td></tr>'
        )
    return (
        f'<section><h2>Against {escape(str(report.base))}</h2><div class="scroll"><table><tr><th>recipe</th>'
        f'<th class="n">tokens/s/GPU</th><th class="n">headroom</th><th></th></tr>{"".join(rows)}</table></div></section>\n'
    )


def overview(report: Report) -> str:
    rows = []
    for number, checked in enumerate(report.checked):
        severities = [finding.severity for finding in checked.findings if finding.suppressed is None]
        found = " ".join(
            f'<span class="{kind}">{severities.count(kind)} {kind}{"" if severities.count(kind) == 1 else "s"}</span>'
            for kind in ("error", "warning", "info")
            if kind in severities
        )
        speed = _speed(checked)
        rows.append(
            f'<tr><td class="path"><a href="#f{number}">{html_charts.breakable(relative(checked.path, report.root))}</a></td>'
            f'<td>{found or "<span class=ok>none</span>"}</td><td class="n">{speed}</td></tr>'
        )
    return (
        '<section><h2>Recipes</h2><div class="scroll"><table><tr><th>recipe</th><th>findings</th>'
        f'<th class="n">tokens/s/GPU</th></tr>{"".join(rows)}</table></div></section>\n'
    )


def _speed(checked: Checked) -> str:
    for subject in checked.subjects[:1]:
        if not subject.modelled or subject.projection is None:
            continue
        if subject.fits is False:
            return '<span class="error">out of memory</span>'
        return f"{subject.projection.tokens_per_s_per_gpu:,.0f}"
    return ""


def file_section(checked: Checked, report: Report, number: int, grouped: set[int]) -> str:
    """One file: its verdict, findings, charts, and the diff of a fix."""
    out = [f'<section id="f{number}"><h2>{escape(relative(checked.path, report.root))}</h2>']
    for subject in checked.subjects:
        name = f"{escape(subject.section.name)}: " if len(checked.subjects) > 1 else ""
        out += [f'<p class="small dim">{name}{escape(line)}</p>' for line in subject_lines(subject)]
    for finding in checked.findings:
        if finding.suppressed is None and id(finding) not in grouped:
            out.append(finding_block(finding, checked, report))
    also = sum(finding.suppressed is None and id(finding) in grouped for finding in checked.findings)
    if also:
        out.append(f'<p class="dim small">and {also} of the findings above that many files share</p>')
    for subject in checked.subjects:
        if subject.modelled and subject.run is not None and subject.target.world_size is not None:
            out += [html_charts.memory(subject), html_charts.timeline(subject), html_charts.breakdown(subject)]
    points = report.tuned.get(checked.path)
    if points:
        accelerator = checked.subjects[0].accelerator
        out.append(html_charts.front(points, accelerator.visible_hbm_bytes if accelerator is not None else None))
    diff = report.diffs.get(checked.path)
    if diff:
        out.append(f"<h3>What --fix changes</h3>{diff_block(diff)}")
    return "\n".join(part for part in out if part) + "</section>\n"


def finding_block(finding: Finding, checked: Checked, report: Report) -> str:
    out = [_title(finding)]
    if finding.place is not None:
        out.append(excerpt(finding.place, checked, report))
    out += [excerpt(other, checked, report) for other in finding.related]
    return f'<div class="finding {finding.severity}">' + "".join(out) + _tail(finding, checked, report) + "</div>"


def shared(group: Group, report: Report) -> str:
    """Findings of one cause: the first of them, and the files that have it."""
    finding, checked = group.finding, group.checked
    place = group.cause or finding.place
    out = [_title(finding)]
    if place is not None:
        out.append(excerpt(place, checked, report))
    names = dict.fromkeys(relative(item.path, report.root) for item, _ in group.members)
    out.append(
        f'<details><summary class="small">{len(names)} files</summary><p class="small">'
        + "<br>".join(escape(name) for name in names)
        + "</p></details>"
    )
    return f'<div class="finding {finding.severity}">' + "".join(out) + _tail(finding, checked, report) + "</div>"


def _title(finding: Finding) -> str:
    return (
        f'<p class="title"><span class="{finding.severity}">{finding.severity}[{escape(finding.name)}]</span> '
        f'{escape(finding.message)} <span class="dim">{escape(finding.code)}</span></p>'
    )


def _tail(finding: Finding, checked: Checked, report: Report) -> str:
    out = [f'<p class="small dim">{escape(note)}</p>' for note in finding.notes]
    if finding.confidence == "estimate":
        out.append(f'<p class="small dim">confidence: {finding.confidence}</p>')
    for fix in finding.fixes:
        out.append(f'<p class="small"><b>fix ({escape(fix.safety)})</b>: {escape(fix.title)}</p>')
        diff = diff_of(fix, finding, checked, relative(checked.path, report.root))
        if diff:
            out.append(diff_block("\n".join(diff.split("\n")[2:])))
    return "".join(out)


def excerpt(place: Place, checked: Checked, report: Report) -> str:
    """The line of a place with marks under it; the place alone when its text is not at hand."""
    where = place.where(relative(place.path, report.root))
    source = checked.document.sources.get(place.path)
    if source is None or place.line < 1:
        return f'<p class="small dim">{escape(where)}{": " + escape(place.message) if place.message else ""}</p>'
    length = 1
    if place.span is not None:
        length = len(source.text[place.span[0] : place.span[1]].split("\n")[0].rstrip())
    shown = excerpts.excerpt(source.line_text(place.line), max(place.column - 1, 0), length)
    gutter = str(place.line)
    marks = " " * shown.indent + "^" * shown.marks
    return (
        f'<pre><span class="dim">{escape(where)}</span>\n{gutter} | {escape(shown.line)}\n{" " * len(gutter)} | '
        f'<span class="caret">{marks} {escape(place.message)}</span></pre>'
    )


def diff_block(diff: str) -> str:
    kinds = {"+": "add", "-": "del", "@": "dim"}
    lines = [
        f'<span class="{kinds[line[0]]}">{escape(line)}</span>' if line[:1] in kinds else escape(line)
        for line in diff.rstrip("\n").split("\n")
    ]
    return "<pre>" + "\n".join(lines) + "</pre>"
