"""Change a value, the default inside a value, or a key's name."""

from __future__ import annotations

from typing import Any

from primus_lint.source.insert import append
from primus_lint.source.places import locate, name, own_entry, replace_keeping_comment
from primus_lint.source.render import plain_is_safe, render_scalar
from primus_lint.source.replace import replace_node
from primus_lint.source.spans import SpanDoc
from primus_lint.source.splice import EditError, Splice


def replace_value(doc: SpanDoc, path: tuple[Any, ...], text: str) -> list[Splice] | EditError:
    """Put another value at a path (the last one of a key that is set twice).

    An anchor on the value stays, an explicit tag goes. What `<<` merged in is left alone: the key is set beside it.
    """
    place = locate(doc, path, removed=True)
    if isinstance(place, EditError):
        return place
    if place.entry is not None and place.entry.merged:
        return append(doc, path[:-1], path[-1], text)
    return replace_node(doc, place, text)


def replace_default(doc: SpanDoc, path: tuple[Any, ...], text: str) -> list[Splice] | EditError:
    """In a scalar that holds one `${NAME:default}`, plain or quoted, put another default."""
    place = locate(doc, path, removed=True)
    if isinstance(place, EditError):
        return place
    node = place.node
    if node.kind != "scalar" or node.is_alias or (place.entry is not None and place.entry.merged):
        return EditError(f"{name(path)} is no scalar of its own")
    span = default_span(node.raw)
    if span is None or node.style not in ("plain", "single", "double") or "}" in text or "${" in text:
        return EditError(f"{name(path)} has no single ${{NAME:default}} that could hold {text!r}")
    start, end = span
    if node.style == "plain" and not plain_is_safe(node.raw[:start] + text + node.raw[end:], flow=False):
        return EditError(f"{text!r} cannot stand in a plain scalar")
    if node.style != "plain":
        text = render_scalar(text, node.style)[1:-1]
    raw = node.raw[:start] + text + node.raw[end:]
    return [replace_keeping_comment(doc.source.text, node.value_start, node.end, raw)]


def default_span(raw: str) -> tuple[int, int] | None:
    """Where the default of the only `${NAME:default}` stands in a text; None if there is none or more than one."""
    start = raw.find("${")
    if start < 0 or raw.find("${", start + 2) >= 0:
        return None
    end = raw.find("}", start)
    first = raw.find(":", start)
    if first < 0 or end < first or "{" in raw[start + 2 : first] or first == start + 2:
        return None
    return first + 1, end


def rename_key(doc: SpanDoc, path: tuple[Any, ...], new: Any) -> list[Splice] | EditError:
    """Give a key another name, in the quotes it has."""
    found = own_entry(doc, path)
    if isinstance(found, EditError):
        return found
    parent, entry = found
    key = entry.key
    if key.is_alias or sum(1 for each in parent.own_entries if each.key.value == key.value) > 1:
        return EditError(f"key {name(path)} is an alias or set twice")
    if new != key.value and parent.get_entry(new) is not None:
        return EditError(f"there is a key {new!r} already")
    text = render_scalar(new, key.style, flow=parent.style == "flow")
    start = key.start if key.tag is not None else key.value_start
    return [Splice(start, key.end, text)]
