"""The charts of the HTML report: memory by rank, pipeline timeline, throughput breakdown, tuning front."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from primus_lint.report.html_style import CLASSES, EVENTS, GROUPS
from primus_lint.report.pipeline_chart import Drawn, drawn, intervals
from primus_lint.units import gib, seconds

if TYPE_CHECKING:
    from primus_lint.ledger import RankMemory
    from primus_lint.report.bundle import Tuned
    from primus_lint.subject import Subject

EVENTS_OF_A_RANK = 112  # more are too thin to tell apart
LEGEND_SHARE = 0.004  # items below this share of the device are summed up in the legend


def breakable(text: str) -> str:
    """HTML of a key or path that a narrow column may break after `_` and `/`."""
    return escape(text).replace("_", "_<wbr>").replace("/", "/<wbr>")


def memory(subject: Subject) -> str:
    """One stacked bar a class of rank, scaled to the device or to the heaviest rank, whichever is larger."""
    ledger, accelerator = subject.ledger, subject.accelerator
    if ledger is None:
        return ""
    capacity = accelerator.visible_hbm_bytes if accelerator is not None else None
    scale = max([int(rank.device_high_bytes) for rank in ledger.ranks] + ([capacity] if capacity else [])) * 1.02
    out = ["<h3>Memory by pipeline rank</h3>"]
    if accelerator is not None and capacity is not None:
        out.append(
            f'<p class="dim small">{escape(accelerator.label)} shows {gib(capacity)} (red line); dotted: the low estimate; '
            "the bar ends at the high one.</p>"
        )
    for rank in ledger.ranks:
        out.append(memory_bar(rank, capacity, scale, len({other.pp_rank for other in ledger.ranks})))
    out.append(legend(ledger.worst_rank, scale))
    return "\n".join(out)


def memory_bar(rank: RankMemory, capacity: int | None, scale: float, stages: int) -> str:
    over = capacity is not None and rank.device_low_bytes > capacity
    tight = capacity is not None and not over and rank.device_high_bytes > capacity
    verdict = ' <b class="error">out of memory</b>' if over else ' <b class="warning">may not fit</b>' if tight else ""
    who = "every rank" if stages == 1 else f"rank {rank.pp_rank}"
    if rank.dp != "all":
        who += f", {rank.dp} data-parallel rank"
    parts = [
        f'<i style="width:{100 * item.bytes / scale:.3f}%;background:{color}" title="{escape(name)}: {gib(item.bytes)}"></i>'
        for name, item, color in coloured(rank)
    ]
    marks = f'<span class="low" style="left:{100 * rank.device_low_bytes / scale:.3f}%"></span>'
    if capacity is not None:
        marks += f'<span class="mark" style="left:{100 * capacity / scale:.3f}%"></span>'
    return (
        f'<div class="mem"><div class="head"><span>{who} <span class="dim">({rank.count} GPUs)</span></span>'
        f"<span>{gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}{verdict}</span></div>"
        f'<div class="box"><div class="bar">{"".join(parts)}</div>{marks}</div></div>'
    )


def coloured(rank: RankMemory) -> list[tuple[str, Any, str]]:
    """(name, item, colour) of a rank's items on the device, group by group, the largest of a group first."""
    out = []
    for group, (_, hue) in GROUPS.items():
        items = [(name, item) for name, item in rank.items.items() if item.group == group and item.bytes > 0]
        items.sort(key=lambda pair: -pair[1].bytes)
        for index, (name, item) in enumerate(items):
            out.append((name, item, f"hsl({hue} 62% {min(42 + 9 * index, 78)}%)"))
    return out


def legend(rank: RankMemory, scale: float) -> str:
    """The items of the worst rank with their formulas."""
    rows, small = [], 0
    shown = []
    for name, item, color in coloured(rank):
        if item.bytes < LEGEND_SHARE * scale:
            small += item.bytes
            continue
        shown.append(f'<span><b style="background:{color}"></b>{escape(name)} {gib(item.bytes)}</span>')
    if small:
        shown.append(f"<span>{gib(small)} in smaller items</span>")
    for name, item, color in coloured(rank):
        rows.append(
            f'<tr><td><b style="color:{color}">■</b> {escape(name)}</td><td class="n">{item.bytes:,} B</td>'
            f'<td class="wide small">{escape(item.formula)}<br><span class="dim">{escape(item.source)}</span></td></tr>'
        )
    return (
        f'<div class="legend">{"".join(shown)}</div><details><summary class="small">every item of rank {rank.pp_rank}'
        f'</summary><div class="scroll"><table>{"".join(rows)}</table></div></details>'
    )


def timeline(subject: Subject) -> str:
    """The Gantt chart of a pipeline; nothing for one rank."""
    stages = subject.projection.stages if subject.projection is not None else ()
    drawing = drawn(subject, EVENTS_OF_A_RANK * len(stages))
    if drawing is None or drawing.pp == 1:
        return ""
    makespan = float(drawing.timeline.makespan_s)
    used = [kind for kind in EVENTS if any(event.kind == kind for row in drawing.events for event in row)]
    keys = "".join(f'<span><b style="background:{_shade(kind, 0)}"></b>{EVENTS[kind][0]}</span>' for kind in used)
    shown = f"{drawing.shown} micro-batches"
    if drawing.shown < drawing.of:
        shown = f"a step of {drawing.shown} micro-batches; the recipe has {drawing.of}"
    rows = [
        f'<span>rank {rank}</span>{_row(drawing, rank, makespan)}<span class="n">{seconds(drawing.per_stage_s[rank])}</span>'
        for rank in range(drawing.pp)
    ]
    return (
        f'<h3>Pipeline timeline</h3><p class="dim small">{escape(drawing.kind)}, {shown}, {seconds(makespan)}; right: busy '
        f'time of a rank per micro-batch</p><div class="gantt">{"".join(rows)}</div><div class="legend">{keys}'
        '<span><b style="background:var(--idle)"></b>idle</span></div>'
    )


def _row(drawing: Drawn, rank: int, makespan_s: float) -> str:
    """One rank: events as rectangles; chunks of a virtual pipeline are lighter the later they come."""
    scale = 1000 / makespan_s
    shapes = []
    for event, start_s, end_s in intervals(drawing, rank):
        x, width = start_s * scale, (end_s - start_s) * scale
        shapes.append(
            f'<rect x="{x:.2f}" y="0" width="{width * 0.94:.2f}" height="18" fill="{_shade(event.kind, event.chunk)}">'
            f"<title>{event.kind} micro-batch {event.microbatch}{f', chunk {event.chunk}' if drawing.kind != '1f1b' else ''}: "
            f"{seconds(end_s - start_s)}</title></rect>"
        )
    return f'<svg viewBox="0 0 1000 18" preserveAspectRatio="none" role="img" aria-label="rank {rank}">{"".join(shapes)}</svg>'


def _shade(kind: str, chunk: int) -> str:
    """The colour of an event; chunks of a virtual pipeline are lighter the later they come."""
    hue, saturation = EVENTS[kind][1]
    return f"hsl({hue} {saturation}% {min(42 + 9 * chunk, 72)}%)"


def breakdown(subject: Subject) -> str:
    """Where the step's seconds go: one bar and a table."""
    projection = subject.projection
    if projection is None:
        return ""
    step = float(projection.iteration_s)
    rows, parts = [], []
    order = sorted(projection.explain(), key=lambda row: -float(row[1]))
    for kind, time_s, share, tiers in order:
        if float(share) < 5e-4:
            continue
        words, hue = CLASSES.get(kind, (kind, 100))
        color = "var(--dim)" if hue < 0 else f"hsl({hue} 55% 52%)"
        parts.append(
            f'<i style="width:{100 * float(share):.3f}%;background:{color}" title="{words}: {seconds(float(time_s))}"></i>'
        )
        rows.append(
            f'<tr><td><b style="color:{color}">■</b> {words}</td><td class="n">{seconds(float(time_s))}</td>'
            f'<td class="n">{float(share):.1%}</td><td class="wide small dim">{escape(tiers)}</td></tr>'
        )
    return (
        f'<h3>Where the time goes</h3><p class="small">{"if it fitted: " if subject.fits is False else ""}{projection.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, '
        f"{_tflops(projection)}step {seconds(step)} [{seconds(float(projection.low_s))} to {seconds(float(projection.high_s))}], "
        f'rates {escape(projection.source)}</p><div class="bar">{"".join(parts)}</div>'
        f'<div class="scroll"><table><tr><th>class</th><th class="n">seconds</th><th class="n">share</th>'
        f'<th class="wide">how its rates were found</th></tr>{"".join(rows)}</table></div>'
    )


def _tflops(projection: Any) -> str:
    if projection.model_tflops_per_gpu is None:
        return ""
    return f"{projection.model_tflops_per_gpu:,.0f} TFLOP/s/GPU, MFU {projection.mfu:.1%}, "


def front(points: list[Tuned], capacity: int | None) -> str:
    """Tuned recipes as points: tokens/s over peak memory, with the recipe as it was and the device's limit."""
    if not points:
        return ""
    width, height, left, bottom = 640, 250, 80, 30
    sizes = [point.device_high_bytes for point in points] + ([capacity] if capacity else [])
    rates = [point.tokens_per_s_per_gpu for point in points]
    low_x, most_x = _range(sizes)
    low_y, most_y = _range(rates)

    def x(size: float) -> float:
        return left + (width - left - 12) * (size - low_x) / (most_x - low_x)

    def y(rate: float) -> float:
        return height - bottom - (height - bottom - 12) * (rate - low_y) / (most_y - low_y)

    colors = {"before": "#8a8f98", "chosen": "#1b8a4b", "other": "#3b82c4"}
    marks = []
    for point in sorted(points, key=lambda point: point.kind == "chosen"):
        marks.append(
            f'<circle cx="{x(point.device_high_bytes):.1f}" cy="{y(point.tokens_per_s_per_gpu):.1f}" r="6" '
            f'fill="{colors[point.kind]}"><title>{escape(point.changes)}: {point.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, '
            f"{gib(point.device_high_bytes)}</title></circle>"
        )
    axis = f'<path d="M{left} 8V{height - bottom}H{width - 12}" fill="none" stroke="currentColor" opacity=".5"/>'
    text = '<text x="{:.0f}" y="{:.0f}" text-anchor="{}" font-size="11" fill="currentColor" opacity=".7">{}</text>'
    names = [text.format(left - 6, y(rate) + 4, "end", f"{rate:,.0f}") for rate in (min(rates), max(rates))]
    ends = {min(sizes): "start", max(sizes): "end"}
    names += [text.format(x(size), height - 6, anchor, gib(size)) for size, anchor in ends.items()]
    axis += "".join(names)
    limit = ""
    if capacity:
        limit = f'<path d="M{x(capacity):.1f} 8V{height - bottom}" stroke="var(--over)" stroke-width="2"/>'
    rows = "".join(
        f'<tr><td class="path"><b style="color:{colors[point.kind]}">●</b> {breakable(point.changes)}</td>'
        f'<td class="n">{_rate(point, capacity)}</td><td class="n">{gib(point.device_high_bytes)}</td></tr>'
        for point in points
    )
    return (
        f'<h3>Tuned recipes</h3><svg class="front" viewBox="0 0 {width} {height}">{axis}{limit}{"".join(marks)}</svg>'
        f'<p class="small dim">across: peak memory, {gib(low_x)} to {gib(most_x)}, red: the device; up: tokens/s/GPU, '
        f"{low_y:,.0f} to {most_y:,.0f}; green: chosen, grey: as it was</p>"
        f'<div class="scroll"><table><tr><th>changes</th><th class="n">tokens/s/GPU</th><th class="n">peak</th></tr>'
        f"{rows}</table></div>"
    )


def _range(values: list[Any]) -> tuple[float, float]:
    """Ends of an axis around some values, never of length 0."""
    low, high = float(min(values)), float(max(values))
    margin = max((high - low) * 0.1, high * 0.02, 1e-9)
    return max(low - margin, 0.0), high + margin


def _rate(point: Tuned, capacity: int | None) -> str:
    if capacity is not None and point.device_high_bytes > capacity:
        return f'<span class="dim">{point.tokens_per_s_per_gpu:,.0f}, if it fitted</span>'
    return f"{point.tokens_per_s_per_gpu:,.0f}"
