"""Remove a key or an item, and its own line with it."""

from __future__ import annotations

from typing import Any

from primus_lint.source.node import Entry, Node
from primus_lint.source.places import (
    Place,
    comma,
    dash,
    delete_lines,
    entry_end,
    entry_start,
    first_on_line,
    line_end,
    locate,
    name,
    next_line,
    skip_blank,
)
from primus_lint.source.replace import replace_node
from primus_lint.source.spans import SpanDoc
from primus_lint.source.splice import EditError, Splice, apply_splices


def delete(doc: SpanDoc, path: tuple[Any, ...]) -> list[Splice] | EditError:
    """Remove a key (all its duplicates with it) or an item, with its trailing comment.

    A collection's only key or item leaves {} or [] behind. Comments on lines of their own stay.
    """
    place = locate(doc, path, removed=True)
    if isinstance(place, EditError):
        return place
    parent, entry = place.parent, place.entry
    if parent is None:
        return EditError("the document itself cannot be removed")
    if entry is None:
        return _delete(doc, path, place, parent, [place.index])
    if entry.merged:
        return EditError(f"{name(path)} comes from a merged mapping")
    doomed = [
        index
        for index, each in enumerate(parent.own_entries)
        if each.key.kind == "scalar" and not each.is_merge and each.key.value == entry.key.value
    ]
    return _delete(doc, path, place, parent, doomed)


def delete_entry(doc: SpanDoc, mapping_path: tuple[Any, ...], entry: Entry) -> list[Splice] | EditError:
    """Remove one entry of a mapping, for instance the one of two equal keys that does not count."""
    holder = locate(doc, mapping_path)
    if isinstance(holder, EditError):
        return holder
    parent = holder.node
    if parent.is_alias or entry not in parent.own_entries:
        return EditError(f"the entry does not stand in {name(mapping_path)}")
    index = parent.own_entries.index(entry)
    return _delete(doc, (*mapping_path, None), Place(entry.value, parent, entry), parent, [index])


def _delete(
    doc: SpanDoc, path: tuple[Any, ...], place: Place, parent: Node, doomed: list[int]
) -> list[Splice] | EditError:
    parts = _parts(doc, parent)
    if len(doomed) == len(parts):
        holder = locate(doc, path[:-1])
        return holder if isinstance(holder, EditError) else _empty(doc, holder)
    remove = _delete_flow if parent.style == "flow" else _delete_block
    splices = [splice for index in doomed for splice in remove(doc, parts, index)]
    if isinstance(apply_splices(doc.source.text, splices), EditError):
        return EditError(f"{name(path)} is set several times: remove the duplicates first")
    return splices


def _parts(doc: SpanDoc, parent: Node) -> list[tuple[int, int]]:
    """Start and end of every entry or item, `?` and dash included."""
    text = doc.source.text
    if parent.kind == "mapping":
        return [(entry_start(text, entry), entry_end(text, entry)) for entry in parent.own_entries]
    if parent.style == "flow":
        return [(item.start, item.end) for item in parent.items]
    return [(dash(text, parent, index), item.end) for index, item in enumerate(parent.items)]


def _empty(doc: SpanDoc, holder: Place) -> list[Splice] | EditError:
    node, text = holder.node, doc.source.text
    brackets = "{}" if node.kind == "mapping" else "[]"
    if node.style == "flow" and text[node.value_start] == brackets[0]:
        return [Splice(node.value_start + 1, node.end - 1, "")]
    return replace_node(doc, holder, brackets)


def _delete_block(doc: SpanDoc, parts: list[tuple[int, int]], index: int) -> list[Splice]:
    text = doc.source.text
    start, end = parts[index]
    if first_on_line(text, start):
        return [delete_lines(doc, start, end)]
    # behind a dash: what follows (a comment or the next key, on a line of its own) moves up to it
    return [Splice(start, skip_blank(text, next_line(text, end), comments=False), "")]


def _delete_flow(doc: SpanDoc, parts: list[tuple[int, int]], index: int) -> list[Splice]:
    text = doc.source.text
    start, end = parts[index]
    behind = comma(text, end)
    before = comma(text, parts[index - 1][1]) if index else None
    stop = end if behind is None else behind + 1
    rest = text[stop : line_end(text, stop)].strip()
    own_lines = first_on_line(text, start) and (not rest or rest.startswith("#"))
    last_comma = [Splice(before, before + 1, "")] if behind is None and before is not None else []
    if own_lines and line_end(text, end) == line_end(text, stop):
        return [*last_comma, delete_lines(doc, start, stop)]
    if behind is None and before is not None and not text[before + 1 : start].strip():
        return [Splice(before, end, "")]
    while text[stop : stop + 1] == " ":
        stop += 1
    return [*last_comma, Splice(start, stop, "")]
