"""The comments of a document."""

from __future__ import annotations

from typing import NamedTuple

from primus_lint.source.places import first_on_line, line_end
from primus_lint.source.spans import SpanDoc
from primus_lint.source.syntax import skip_properties
from primus_lint.source.text import Span


class Comment(NamedTuple):
    """A comment: `span` and `text` begin at the `#`; `own_line` when nothing but blanks stands before it."""

    span: Span
    text: str
    own_line: bool
    line: int


def comments(doc: SpanDoc) -> list[Comment]:
    """Every comment in the order of the text. A `#` inside a scalar is none; a text that does not parse has none."""
    text = doc.source.text
    at = text.find("#")
    if at < 0 or (not doc.roots and doc.fatal):
        return []
    result: list[Comment] = []
    for start, end in [*_taken(doc), (len(text), len(text))]:
        while 0 <= at < start:
            stop = line_end(text, at)
            if _begins(text, at):
                result.append(_comment(doc, at, stop))
                at = text.find("#", stop)
            else:
                at = text.find("#", at + 1)
        if at < 0:
            break
        if at < end:
            at = text.find("#", end)
    return result


def _taken(doc: SpanDoc) -> list[tuple[int, int]]:
    """The stretches of scalars, aliases, anchors and tags, in order."""
    text = doc.source.text
    taken = []
    for root in doc.roots:
        for node in root.walk():
            if node.start < node.value_start:
                taken.append((node.start, skip_properties(text, node.start, node.value_start)[0]))
            if node.style in ("literal", "folded"):  # its header may hold a comment
                header_end = line_end(text, node.value_start)
                header = text.find(" #", node.value_start, header_end)
                if header >= 0:
                    taken.append((node.value_start, header))
                    taken.append((header_end, node.end))
                    continue
            if node.kind == "scalar" or node.is_alias:
                taken.append((node.value_start, node.end))
    return taken


def _begins(text: str, at: int) -> bool:
    """Outside of nodes every `#` begins a comment, except within a %TAG directive."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return not line.startswith("%") or line.endswith((" ", "\t"))


def _comment(doc: SpanDoc, start: int, end: int) -> Comment:
    text = doc.source.text
    return Comment(Span(start, end), text[start:end], first_on_line(text, start), doc.source.position(start)[0])
