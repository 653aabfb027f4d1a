"""Put another value in a node's place."""

from __future__ import annotations

from primus_lint.source.node import Node
from primus_lint.source.places import (
    Place,
    colon,
    dash,
    delete_lines,
    first_on_line,
    line_start,
    replace_keeping_comment,
)
from primus_lint.source.spans import SpanDoc
from primus_lint.source.splice import EditError, Splice
from primus_lint.source.syntax import skip_properties


def replace_node(doc: SpanDoc, place: Place, new: str) -> list[Splice] | EditError:
    """Splices that put `new`, YAML on one line, where a node stands. The anchor stays, a tag goes."""
    node = place.node
    text = doc.source.text
    if "\n" in new or "\r" in new:
        return EditError("a value is replaced by YAML on one line")
    if node.is_alias:
        return [replace_keeping_comment(text, node.start, node.end, new)]
    if node.is_absent:
        return _fill(doc, place, new)
    block = node.kind != "scalar" and node.style == "block" and first_on_line(text, node.value_start)
    if block and node.tag is None:
        return _replace_block(doc, place, " " + new)
    start = node.value_start
    if node.tag is not None or node.value_start == node.end:
        start = node.start
        new = f"&{node.anchor} {new}" if node.anchor is not None else new
    if block:
        return _replace_block(doc, place, new)
    if node.style in ("literal", "folded"):
        new += _header_comment(node)
    return [replace_keeping_comment(text, start, node.end, new)]


def head_end(doc: SpanDoc, place: Place) -> int | None:
    """Where a value may begin: behind the colon or dash, and behind an anchor or tag that is there."""
    node, text = place.node, doc.source.text
    if node.anchor is not None or node.tag is not None:
        return skip_properties(text, node.start, node.value_start)[0]
    if place.entry is not None:
        at = colon(text, place.entry)
        return None if at is None else at + 1
    return None if place.parent is None else dash(text, place.parent, place.index) + 1


def _fill(doc: SpanDoc, place: Place, new: str) -> list[Splice] | EditError:
    """A value of which nothing is written yet."""
    text = doc.source.text
    if place.parent is None:
        at = place.node.start
        return [Splice(at, at, " " + new)]
    head = head_end(doc, place)
    if head is not None:
        return [replace_keeping_comment(text, head, head, " " + new)]
    if place.flow and place.entry is not None:
        at = place.entry.key.end
        return [Splice(at, at, ": " + new)]
    return EditError("a key without colon has no place for a value")


def _replace_block(doc: SpanDoc, place: Place, new: str) -> list[Splice]:
    """A block collection on lines of its own: the new value goes behind the colon, the lines go."""
    node, text = place.node, doc.source.text
    lines = delete_lines(doc, node.value_start, node.end)
    head = head_end(doc, place)
    if head is None:  # the root
        return [Splice(line_start(text, node.value_start), node.end, new.strip())]
    start = head if node.tag is None else node.start
    return [replace_keeping_comment(text, start, head, new), lines]


def _header_comment(node: Node) -> str:
    """The comment behind the `|` or `>` of a block scalar, as a trailing comment."""
    header = node.raw.splitlines()[0]
    at = header.find("#")
    return "  " + header[at:] if at >= 0 else ""
