"""Findings as text with the source line under them, in the manner of rustc and ruff."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from primus_lint.report.bundle import FEW
from primus_lint.report.excerpt import excerpt, printable
from primus_lint.units import gib, gpus, seconds

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.report.groups import Group
    from primus_lint.rules.finding import Finding, Place
    from primus_lint.source.text import SourceText
    from primus_lint.subject import Subject

_COLORS = {"error": "31;1", "warning": "33;1", "info": "36;1", "note": "34;1", "dim": "2", "bold": "1", "ok": "32;1"}


class Style:
    """Writes ANSI colours, or nothing."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, kind: str, text: str) -> str:
        return f"\x1b[{_COLORS[kind]}m{text}\x1b[0m" if self.color else text


def write(out: TextIO, report: Report, style: Style, quiet: bool = False, verbose: bool = False) -> None:
    """Every file with its own findings, then the findings that many files share, then the totals."""
    common = [group for group in report.groups if len(group.members) > 1]
    grouped = {id(finding) for group in common for _, finding in group.members}
    brief = len(report.checked) > FEW and not verbose
    rest = []
    for checked in report.checked:
        own = [f for f in checked.findings if f.suppressed is None and id(f) not in grouped]
        if own or not brief:
            write_file(out, checked, own, style, quiet)
        else:
            rest.append(checked)
    for group in common:
        write_group(out, group, style)
    if rest and not quiet:
        write_rest(out, rest, style)
    for comparison in report.comparisons:
        out.write(f"{style('bold', comparison.path)}: {comparison.line()}\n")
    if not quiet:
        for line in report.remarks():
            out.write(style("dim", line) + "\n")
        out.write(style("error" if report.counts()["error"] else "bold", report.total()) + "\n")


def write_file(out: TextIO, checked: Checked, findings: list[Finding], style: Style, quiet: bool = False) -> None:
    """The findings of one file, then one line about its memory and speed."""
    for finding in findings:
        write_finding(out, finding, checked, style)
        out.write("\n")
    if not quiet:
        lines = summary_lines(checked)
        for line in lines:
            out.write(f"{style('bold', checked.path)}: {line}\n")
        if lines:
            out.write("\n")


def write_rest(out: TextIO, rest: list[Checked], style: Style) -> None:
    """What is to say of many files without findings of their own: counts; `--verbose` has a line for each."""
    verdicts: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for subject in (subject for checked in rest for subject in checked.subjects):
        if not subject.modelled:
            name = subject.section.framework
            unknown[name] = unknown.get(name, 0) + 1
            continue
        verdict = _verdict(subject)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
    for verdict, number in verdicts.items():
        out.write(f"{style('bold', _files(number))}: {verdict}\n")
    if unknown:
        names = ", ".join(f"{name} {number}" for name, number in sorted(unknown.items(), key=lambda pair: -pair[1]))
        text = f"keys and text are checked; memory and time are not modelled ({names})"
        out.write(f"{style('bold', _files(sum(unknown.values())))}: {text}\n")
    out.write("\n")


def _verdict(subject: Subject) -> str:
    if subject.target.world_size is None:
        if not subject.grid_known or subject.legal_world_sizes:
            return "legal at some sizes (--nodes gives a verdict, --verbose the sizes)"
        return "legal at no world size"
    if subject.ledger is None or subject.accelerator is None:
        return "no account of memory (--verbose says why)"
    word = {True: "fit", False: "do not fit", None: "may not fit"}[subject.fits]
    return f"{word} (memory and speed of each: --verbose)"


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def write_group(out: TextIO, group: Group, style: Style) -> None:
    """Findings of one cause: the first of them, and which files it is about."""
    finding, checked = group.finding, group.checked
    _head(out, finding, style, f"  {group.files} files")
    place = group.cause or finding.place
    gutter = " " * len(str(place.line if place is not None else 1))
    if place is not None:
        _excerpt(out, place, checked, style, gutter, "-->", "^", finding.severity)
    word = "its users" if group.cause is not None else "in"
    out.write(f"{gutter} {style('note', '=')} {word}: {group.others()}\n")
    _tail(out, finding, gutter, style)
    out.write("\n")


def write_finding(out: TextIO, finding: Finding, checked: Checked, style: Style) -> None:
    """One finding: head, place with excerpt, related places, notes, fixes."""
    place = finding.place
    _head(out, finding, style)
    width = len(str(max([p.line for p in ([place] if place else []) + list(finding.related)] + [1])))
    gutter = " " * width
    if place is not None:
        _excerpt(out, place, checked, style, gutter, "-->", "^", finding.severity)
    for other in finding.related:
        _excerpt(out, other, checked, style, gutter, ":::", "-", "note")
    _tail(out, finding, gutter, style)


def _head(out: TextIO, finding: Finding, style: Style, more: str = "") -> None:
    out.write(
        f"{style(finding.severity, finding.severity)}[{finding.name}]: {style('bold', printable(finding.message))}  "
    )
    out.write(style("dim", finding.code + more) + "\n")


def _tail(out: TextIO, finding: Finding, gutter: str, style: Style) -> None:
    """Notes, confidence and fixes."""
    for note in finding.notes:
        out.write(f"{gutter} {style('note', '=')} {printable(note)}\n")
    if finding.confidence == "estimate" and finding.severity != "info":
        out.write(f"{gutter} {style('note', '=')} confidence: estimate\n")
    for fix in finding.fixes:
        out.write(f"{gutter} {style('note', '=')} {style('ok', f'fix ({fix.safety})')}: {printable(fix.title)}\n")


def _excerpt(
    out: TextIO, place: Place, checked: Checked, style: Style, gutter: str, arrow: str, mark: str, kind: str
) -> None:
    out.write(f"{gutter}{style('note', arrow)} {place.where()}\n")
    source = checked.document.sources.get(place.path)
    if source is None or place.line < 1:
        if place.message:
            out.write(f"{gutter} {style('note', '|')} {printable(place.message)}\n")
        return
    text = source.line_text(place.line).rstrip("\r\n")
    start = max(place.column - 1, 0)
    shown = excerpt(text, start, _length(source, place, len(text) - start))
    number = style("note", str(place.line).rjust(len(gutter)) + " |")
    out.write(f"{gutter} {style('note', '|')}\n{number} {shown.line}\n")
    marks = style(kind, mark * shown.marks + (f" {printable(place.message)}" if place.message else ""))
    out.write(f"{gutter} {style('note', '|')} {' ' * shown.indent}{marks}\n")


def _length(source: SourceText, place: Place, rest: int) -> int:
    """How many characters of the place's first line are marked."""
    if place.span is None:
        return 1
    text = source.text[place.span[0] : place.span[1]].split("\n")[0].rstrip()
    return max(1, min(len(text), max(rest, 1)))


def summary_lines(checked: Checked) -> list[str]:
    """One line a section: legality, memory of the worst rank, projected speed; what is not modelled."""
    lines = []
    for subject in checked.subjects:
        name = f"{subject.section.name}: " if len(checked.subjects) > 1 else ""
        lines += [name + line for line in subject_lines(subject)]
    return lines


def subject_lines(subject: Subject) -> list[str]:
    if not subject.modelled:
        return list(subject.not_modelled)
    if subject.section.framework == "megatron" and subject.run is None:
        return [f"no memory or time: the recipe is incomplete: {subject.incomplete}"]
    parts = []
    said: tuple[str, ...] = ()
    if subject.target.world_size is None:
        sizes = subject.legal_world_sizes if subject.grid_known else None
        if sizes is not None:
            parts.append(_legal(subject, sizes))
    elif subject.section.framework in ("megatron", "torchtitan"):
        parts.append(_memory(subject))
        parts.append(_time(subject))
        said = subject.no_memory
    left = [text for text in subject.not_modelled if text not in said]
    if left:
        parts.append(f"not modelled: {'; '.join(left)}")
    return ["; ".join(part for part in parts if part)]


def _legal(subject: Subject, sizes: list[int]) -> str:
    """The legal sizes, and from which on the recipe fits the device."""
    if not sizes:
        return "legal at no world size"
    text, accelerator = f"legal on {gpus(sizes)}", subject.accelerator
    if accelerator is None or subject.at_world(sizes[0], legal=True).ledger is None:
        return text
    from primus_lint.rules.checks.memory import fits_from

    first = fits_from(subject, accelerator, sizes)
    return text if first in (None, sizes[0]) else f"{text}; it fits {accelerator.label} from {first:,} on"


def _memory(subject: Subject) -> str:
    ledger, accelerator = subject.ledger, subject.accelerator
    if ledger is None:
        return f"no memory: {'; '.join(subject.no_memory)}"
    rank = ledger.worst_rank
    text = f"peak {gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}"
    if accelerator is not None:
        text += f" of {gib(accelerator.visible_hbm_bytes)} ({accelerator.label})"
    return text + f" on pipeline rank {rank.pp_rank}"


def _time(subject: Subject) -> str:
    if subject.fits is False:
        return "it does not run, so it has no speed"
    projection = subject.projection
    if projection is None:
        return ""
    return (
        f"{projection.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {projection.model_tflops_per_gpu:,.0f} TFLOP/s/GPU, "
        f"MFU {projection.mfu:.1%}, bubble {projection.bubble_fraction:.1%}, iteration {seconds(projection.iteration_s)} "
        f"[{seconds(projection.low_s)} to {seconds(projection.high_s)}], {projection.source}"
    )
