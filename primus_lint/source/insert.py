"""Set a key that is not there yet, or add an item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from primus_lint.source.node import Entry, Node
from primus_lint.source.places import (
    Place,
    column,
    dash,
    entry_end,
    entry_start,
    first_on_line,
    line_break,
    line_end,
    line_start,
    locate,
    name,
    next_line,
    own_entry,
    previous_line_end,
)
from primus_lint.source.render import render_scalar
from primus_lint.source.replace import head_end, replace_node
from primus_lint.source.spans import SpanDoc
from primus_lint.source.splice import EditError, Splice

_Result = list[Splice] | EditError


def insert_after(
    doc: SpanDoc, sibling_path: tuple[Any, ...], key: Any, value: str, comment: str | None = None
) -> _Result:
    """Set `key` on the line below a sibling's value. A comment is dropped in a flow mapping, which has no lines."""
    return _beside(_after, doc, sibling_path, key, value, comment)


def insert_before(
    doc: SpanDoc, sibling_path: tuple[Any, ...], key: Any, value: str, comment: str | None = None
) -> _Result:
    """Set `key` on the line above a sibling, and above the comment block that stands right above that sibling.

    The comment above a mapping's first key is taken to be the mapping's own and stays above.
    """
    return _beside(_before, doc, sibling_path, key, value, comment)


def insert_first(
    doc: SpanDoc, mapping_path: tuple[Any, ...], key: Any, value: str, comment: str | None = None
) -> _Result:
    """Set `key` as the first of a mapping; the mapping may be empty, {} or null."""
    return _into(doc, mapping_path, key, value, comment, first=True)


def append(doc: SpanDoc, mapping_path: tuple[Any, ...], key: Any, value: str, comment: str | None = None) -> _Result:
    """Set `key` as the last of a mapping; the mapping may be empty, {} or null, and the file may be empty."""
    return _into(doc, mapping_path, key, value, comment, first=False)


def insert_item(doc: SpanDoc, sequence_path: tuple[Any, ...], index: int, value: str) -> _Result:
    """Put an item before item `index` of a sequence, or at its end; the sequence may be [] or null."""
    place = locate(doc, sequence_path)
    if isinstance(place, EditError):
        return place
    node, text = place.node, doc.source.text
    if node.kind == "scalar" and node.value is None and not node.is_alias and index == 0:
        return replace_node(doc, place, f"[{value}]")
    if node.is_alias:
        return EditError(f"{name(sequence_path)} is the alias {node.raw}")
    if node.kind != "sequence" or not 0 <= index <= len(node.items) or "\n" in value:
        return EditError(f"{name(sequence_path)} is no list with place for an item {index}")
    if node.style == "flow":
        if not node.items:
            return [_first_in_flow(text, node, value)]
        if index == len(node.items):
            at = node.items[-1].end
            return [Splice(at, at, ", " + value)]
        at = node.items[index].start
        return [Splice(at, at, value + ", ")]
    indent = " " * column(text, node.value_start)
    if index == len(node.items):
        return _line_below(doc, node.items[-1], node.items[-1].end, len(indent), f"{indent}- {value}")
    at = dash(text, node, index)
    return [_line_above(doc, at, f"- {value}", indent)]


def _beside(
    insert: Callable[..., _Result],
    doc: SpanDoc,
    sibling_path: tuple[Any, ...],
    key: Any,
    value: str,
    comment: str | None,
) -> _Result:
    found = own_entry(doc, sibling_path)
    if isinstance(found, EditError):
        return found
    parent, sibling = found
    return _taken(parent, key) or insert(doc, parent, sibling, key, value, comment)


def _taken(parent: Node, key: Any) -> EditError | None:
    entry = parent.get_entry(key)
    return EditError(f"there is a key {key!r} already") if entry is not None and not entry.merged else None


def _into(doc: SpanDoc, path: tuple[Any, ...], key: Any, value: str, comment: str | None, *, first: bool) -> _Result:
    if doc.root is None:
        if path or doc.fatal:
            return EditError("the file has no content")
        return [_at_end(doc, key, value, comment)]
    place = locate(doc, path)
    if isinstance(place, EditError):
        return place
    node = place.node
    if node.is_alias:
        return EditError(f"{name(path)} is the alias {node.raw}")
    if node.kind == "mapping":
        taken = _taken(node, key)
        if taken is not None:
            return taken
        if node.own_entries:
            insert = _before if first else _after
            return insert(doc, node, node.own_entries[0 if first else -1], key, value, comment)
        return _into_empty(doc, place, key, value, comment)
    if node.kind == "scalar" and node.value is None:
        if place.parent is None and node.is_absent:
            return [_at_end(doc, key, value, comment)]
        return _into_empty(doc, place, key, value, comment)
    return EditError(f"{name(path)} is no mapping")


def lands_in_flow(doc: SpanDoc, mapping_path: tuple[Any, ...]) -> bool:
    """Will a key that is put into this mapping stand inside {}, so that its value must be rendered for that?"""
    place = None if doc.root is None else locate(doc, mapping_path)
    if not isinstance(place, Place):
        return False
    if place.node.own_entries:
        return place.node.style == "flow"
    return place.parent is not None and _block_head(doc, place) is None


def _block_head(doc: SpanDoc, place: Place) -> int | None:
    """Where a mapping without keys (`{}`, null or nothing) ends its line, if it can become a block below it."""
    node, entry, text = place.node, place.entry, doc.source.text
    bare = node.tag is None and node.raw in ("{}", "", "null", "~", "Null", "NULL")
    if entry is None or place.flow or not bare:
        return None
    head = head_end(doc, place)
    return head if head is not None and not text[head : node.value_start].strip(" ") else None


def _into_empty(doc: SpanDoc, place: Place, key: Any, value: str, comment: str | None) -> _Result:
    node, text = place.node, doc.source.text
    head = _block_head(doc, place)
    if place.entry is not None and head is not None:
        indent = " " * (column(text, entry_start(text, place.entry)) + _step(doc))
        below = line_end(text, max(node.end, head))
        lines = _lines(doc, key, value, comment, indent, below)
        removed = [Splice(head, node.end, "")] if node.end > head else []
        return [*removed, Splice(below, below, line_break(doc, below) + lines)]
    if "\n" in value:
        return EditError("a block of lines cannot stand in a flow mapping")
    pair = f"{render_scalar(key, flow=True)}: {value}"
    if node.kind == "mapping":
        return [_first_in_flow(text, node, pair)]
    return replace_node(doc, place, "{" + pair + "}")


def _first_in_flow(text: str, node: Node, element: str) -> Splice:
    at = node.value_start + 1
    return Splice(at, at, element + " " if text[at : at + 1] == "#" else element)


def _at_end(doc: SpanDoc, key: Any, value: str, comment: str | None) -> Splice:
    text, newline = doc.source.text, doc.source.newline
    lines = _lines(doc, key, value, comment, "", len(text))
    start = "" if not text or text[-1] in "\r\n" else newline
    return Splice(len(text), len(text), start + lines + newline)


def _after(doc: SpanDoc, parent: Node, sibling: Entry, key: Any, value: str, comment: str | None) -> _Result:
    text = doc.source.text
    end = entry_end(text, sibling)
    if parent.style == "flow":
        if "\n" in value or text[parent.value_start] != "{":
            return EditError("there is no place for another key")
        return [Splice(end, end, f", {render_scalar(key, flow=True)}: {value}")]
    width = column(text, entry_start(text, parent.own_entries[0]))
    lines = _lines(doc, key, value, comment, " " * width, end)
    return _line_below(doc, sibling.value, end, width, lines)


def _before(doc: SpanDoc, parent: Node, sibling: Entry, key: Any, value: str, comment: str | None) -> _Result:
    text = doc.source.text
    start = entry_start(text, sibling)
    if parent.style == "flow":
        if "\n" in value or text[parent.value_start] != "{":
            return EditError("there is no place for another key")
        return [Splice(start, start, f"{render_scalar(key, flow=True)}: {value}, ")]
    indent = " " * column(text, start)
    lines = _lines(doc, key, value, comment, indent, start)
    index = parent.own_entries.index(sibling)
    if index == 0 or not first_on_line(text, start):
        return [_line_above(doc, start, lines[len(indent) :], indent)]
    at = line_start(text, start)
    floor = entry_end(text, parent.own_entries[index - 1])
    while True:
        above = line_start(text, previous_line_end(text, at))
        if above <= floor or not text.startswith(indent + "#", above):
            break
        at = above
    return [Splice(at, at, lines + line_break(doc, start))]


def _line_above(doc: SpanDoc, at: int, line: str, indent: str) -> Splice:
    """A line before what begins at `at`, which may stand behind a dash: then the new line takes its place there."""
    return Splice(at, at, line + line_break(doc, at) + indent)


def _line_below(doc: SpanDoc, last: Node, end: int, width: int, lines: str) -> list[Splice]:
    """Lines below a node that ends at `end`, and below the comments there that are indented more than `width`."""
    text = doc.source.text
    at = line_end(text, end)
    look = at
    while look < len(text):
        start = next_line(text, look)
        look = line_end(text, start)
        line = text[start:look]
        content = line.lstrip(" ")
        if content.startswith("#") and len(line) - len(content) > width:
            at = look
        elif content or start == look == len(text):
            break
    splices = [Splice(at, at, line_break(doc, previous_line_end(text, at) if at == len(text) else at) + lines)]
    if at == len(text):
        splices += _seal(last)
    return splices


def _seal(node: Node) -> list[Splice]:
    """A block scalar at the end of a text without final line break must not win one by what is put below."""
    while node.kind != "scalar" and node.style == "block":
        node = node.items[-1] if node.kind == "sequence" else node.own_entries[-1].value
    if node.style not in ("literal", "folded"):
        return []
    at = node.value_start + 1
    header = node.raw.splitlines()[0]
    if "+" in header[:3]:
        at = node.value_start + header.index("+")
        return [Splice(at, at + 1, "-")]
    return [] if "-" in header[:3] else [Splice(at, at, "-")]


def _lines(doc: SpanDoc, key: Any, value: str, comment: str | None, indent: str, near: int) -> str:
    """`key: value  # comment`, or `key:` and the lines of a block below it; no line break at the end."""
    name_text = indent + render_scalar(key) + ":"
    tail = f"  # {comment}" if comment else ""
    if "\n" not in value:
        return f"{name_text} {value}{tail}" if value else name_text + tail
    newline = line_break(doc, near)
    deeper = indent + " " * _step(doc)
    block = [deeper + line if line else "" for line in value.rstrip("\n").split("\n")]
    return newline.join([name_text + tail, *block])


def _step(doc: SpanDoc) -> int:
    """How far this file indents a nested block mapping."""
    text = doc.source.text
    for root in doc.roots:
        for node in root.walk():
            if node.kind != "mapping" or node.style != "block" or node.is_alias or not node.own_entries:
                continue
            width = column(text, entry_start(text, node.own_entries[0]))
            for entry in node.own_entries:
                value = entry.value
                if value.kind == "mapping" and value.style == "block" and not value.is_alias:
                    deeper = column(text, entry_start(text, value.own_entries[0]))
                    if deeper > width:
                        return deeper - width
    return 2
