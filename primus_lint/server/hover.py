"""Hover: where a value comes from, what the key is, and what it does to memory and speed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.server import effect, keys
from primus_lint.server.keys import text

if TYPE_CHECKING:
    from primus_lint.lower.megatron.adjust import Adjustment
    from primus_lint.readers.document import Origin, Value
    from primus_lint.server.analysis import Analysis
    from primus_lint.subject import Subject


def hover(analysis: Analysis, offset: int) -> tuple[str, tuple[int, int]] | None:
    """Markdown for a place of the text, and the span that it is about; None when there is nothing to say."""
    found = analysis.value_at(offset)
    if found is not None:
        subject, key, value, origin = found
        spans = [span for span in (origin.key_span, origin.span) if span is not None]
        span = (min(start for start, _ in spans), max(end for _, end in spans))
        if subject is not None and key in subject.section.meta:
            return summary(subject, f"**{key}** = `{text(value.value)}`"), span
        return about_value(subject, key, value, analysis.path), span
    subject = analysis.subject_at(offset)
    if subject is not None:
        return summary(subject, f"**{subject.section.name}**"), (offset, offset)
    return _rule(analysis, offset)


def about_value(subject: Subject | None, key: str, value: Value, path: str) -> str:
    """Value, origin chain, facts of the key, effect. `path` is the file in the editor."""
    parts = [f"**{key}** = `{text(value.value)}`"]
    parts.append("\n".join(_origin(origin, index == 0, path) for index, origin in enumerate(value.origins)))
    if subject is None:
        return "\n\n".join(parts)
    parts += [f"then `{text(change.value)}`: {change.reason}" for change in _adjustments(subject, key)]
    parts += keys.about(keys.facts_of(keys.framework_of(subject), key))
    rows = effect.table(subject, key)
    if rows:
        parts.append(_table(rows))
    return "\n\n".join(parts)


def summary(subject: Subject, head: str) -> str:
    """What becomes of a section: does it start, does it fit, how fast is it."""
    from primus_lint.report.text import subject_lines

    target = subject.target
    size = f"{target.world_size:,} x " if target.world_size else ""
    lines = [head, f"target {size}{target.gpu}" if target.gpu else "no target: the GPU kind is not known"]
    return "\n\n".join([*lines, *subject_lines(subject)])


def _origin(origin: Origin, used: bool, path: str) -> str:
    if origin.path == path:
        where = f", line {origin.line}" if origin.line else ""
    else:
        where = f", {origin.path}" + (f":{origin.line}" if origin.line else "") if origin.path else ""
    line = f"- {'used' if used else 'overridden'} `{text(origin.value)}` from {origin.layer}{where}"
    if origin.raw is not None and origin.variable is not None:
        line += f", written `{origin.raw}`"
    return line + (f" ({origin.note})" if origin.note else "")


def _adjustments(subject: Subject, key: str) -> list[Adjustment]:
    if subject.section.framework != "megatron":
        return []
    return [change for change in subject.lowered.adjustments if change.key == key]


def _table(rows: list[effect.Effect]) -> str:
    """A table that is one in plain text too: some editors show Markdown as it stands."""
    lines = [("value", "peak memory of the worst rank", "speed")]
    for row in rows:
        cells = (row.problem, "") if row.problem else (row.memory(), row.speed())
        lines.append((row.label, cells[0].replace("|", "\\|"), cells[1]))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    widths[1] = min(widths[1], 48)  # a long message may stick out
    lines.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _rule(analysis: Analysis, offset: int) -> tuple[str, tuple[int, int]] | None:
    """The rule that a suppression names."""
    source = analysis.source
    line, column = source.position(offset)
    content = source.line_text(line)
    comment = re.search(r"#\s*primus-lint:\s*(?:file-)?ignore\[([^\]]*)\]", content)
    if comment is None:
        return None
    for word in re.finditer(r"[\w-]+", comment[1]):
        start, end = comment.start(1) + word.start(), comment.start(1) + word.end()
        if start <= column - 1 <= end:
            from primus_lint.rules.catalogue import codes_by_name, documents

            code = codes_by_name().get(word[0])
            if code is None:
                return None
            rule = documents()[code]
            body = "\n\n".join(" ".join(rule[field].split()) for field in ("what", "why"))
            at = offset - column + 1
            return f"**{rule['name']}** ({code}), {rule['severity']}\n\n{body}", (at + start, at + end)
    return None
