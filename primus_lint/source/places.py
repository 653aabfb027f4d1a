"""Where things are in the text: lines, colons, dashes, commas."""

from __future__ import annotations

from typing import Any

from primus_lint.source.node import Entry, Node
from primus_lint.source.spans import SpanDoc
from primus_lint.source.splice import EditError, Splice


class Place:
    """A node and what holds it.

    parent   the mapping or sequence; None for the root
    entry    the entry, when the parent is a mapping
    index    the index, when the parent is a sequence
    """

    __slots__ = ("entry", "index", "node", "parent")

    def __init__(self, node: Node, parent: Node | None = None, entry: Entry | None = None, index: int = -1) -> None:
        self.node = node
        self.parent = parent
        self.entry = entry
        self.index = index

    @property
    def flow(self) -> bool:
        """Does it stand inside [] or {}?"""
        return self.parent is not None and self.parent.style == "flow"


def locate(doc: SpanDoc, path: tuple[Any, ...], *, removed: bool = False) -> Place | EditError:
    """The place of a path, if an edit there changes nothing but that path.

    Refused: what stands inside an alias, or in a node that is used again through an alias. With `removed` the node
    itself goes, so no anchor inside it may be used outside.
    """
    node = doc.root
    if node is None:
        return EditError("the file has no content")
    place = Place(node)
    holders = []
    for step in path:
        if node.is_alias:
            return EditError(f"{name(path)} is reached through the alias {node.raw}")
        holders.append(node)
        if node.kind == "mapping":
            entry = node.get_entry(step)
            if entry is None:
                return EditError(f"there is no {name(path)}")
            place = Place(entry.value, node, entry)
            if entry.merged:
                if len(holders) < len(path):
                    return EditError(f"{name(path)} comes from a merged mapping")
                break
        elif node.kind == "sequence" and type(step) is int and 0 <= step < len(node.items):
            place = Place(node.items[step], node, index=step)
        else:
            return EditError(f"there is no {name(path)}")
        node = place.node
    if "*" in doc.source.text:
        error = _shared(doc, holders, place, removed)
        if error is not None:
            return error
    return place


def own_entry(doc: SpanDoc, path: tuple[Any, ...]) -> tuple[Node, Entry] | EditError:
    """The mapping and the entry of a key that stands in the text at a path (not merged, not behind an alias)."""
    if not path:
        return EditError("the document itself has no key")
    holder = locate(doc, path[:-1])
    if isinstance(holder, EditError):
        return holder
    parent = holder.node
    entry = parent.get_entry(path[-1]) if parent.kind == "mapping" and not parent.is_alias else None
    if entry is None or entry.merged:
        return EditError(f"there is no key {name(path)} of its own")
    return parent, entry


def _shared(doc: SpanDoc, holders: list[Node], place: Place, removed: bool) -> EditError | None:
    whole = place.entry if place.entry is not None and not place.entry.merged else place.node
    span = whole.span
    for root in doc.roots:
        for alias in root.walk():
            target = alias.target
            if target is None:
                continue
            inside = removed and span.start <= target.start < span.end and not span.start <= alias.start < span.end
            if inside or target in holders or (target is place.node and not removed):
                line = doc.source.position(alias.start)[0]
                return EditError(f"&{target.anchor} is used again on line {line}: an edit would change both places")
    return None


def name(path: tuple[Any, ...]) -> str:
    """A path for messages."""
    return ".".join(str(step) for step in path) or "the document"


def line_start(text: str, at: int) -> int:
    """Where the line begins in which `at` stands."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def line_end(text: str, at: int) -> int:
    """Where the line ends in which `at` stands, before its line break."""
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def next_line(text: str, at: int) -> int:
    """Where the next line begins, or the end of the text."""
    end = line_end(text, at)
    return min(end + (2 if text.startswith("\r\n", end) else 1), len(text))


def previous_line_end(text: str, at: int) -> int:
    """Where the line above ends, before its line break; 0 in the first line."""
    first = line_start(text, at)
    return max(first - (2 if text.endswith("\r\n", 0, first) else 1), 0)


def column(text: str, at: int) -> int:
    """Column from 0."""
    return at - line_start(text, at)


def first_on_line(text: str, at: int) -> bool:
    """Is there nothing but blanks before it on its line?"""
    return not text[line_start(text, at) : at].strip(" \t\ufeff")


def skip_blank(text: str, at: int, *, comments: bool = True) -> int:
    """The next character that is no white space (and no comment)."""
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
        elif comments and text[at] == "#":
            at = line_end(text, at)
        else:
            break
    return at


def entry_start(text: str, entry: Entry) -> int:
    """Where an entry begins: its key, or the `?` before it."""
    start = entry.key.start
    before = text[line_start(text, start) : start].rstrip(" ")
    if before.endswith("?") and (len(before) == 1 or before[-2] in " {[,"):
        return line_start(text, start) + len(before) - 1
    return start


def colon(text: str, entry: Entry) -> int | None:
    """The colon of an entry; None if it has none (`{a}`, `? a`)."""
    at = skip_blank(text, entry.key.end)
    return at if text.startswith(":", at) else None


def entry_end(text: str, entry: Entry) -> int:
    """Where an entry ends: its value, or its colon, or its key."""
    if not entry.value.is_absent:
        return entry.value.end
    at = colon(text, entry)
    return entry.key.end if at is None else at + 1


def dash(text: str, sequence: Node, index: int) -> int:
    """The dash of an item of a block sequence."""
    if index == 0:
        return sequence.value_start
    return skip_blank(text, sequence.items[index - 1].end)


def comma(text: str, end: int) -> int | None:
    """The comma behind an element of a flow collection that ends at `end`; None if it is the last without one."""
    at = skip_blank(text, end)
    return at if text.startswith(",", at) else None


def line_break(doc: SpanDoc, at: int) -> str:
    """The line break of the line in which `at` stands, or the file's."""
    text = doc.source.text
    end = line_end(text, at)
    if end == len(text):
        return doc.source.newline
    return "\r\n" if text.startswith("\r\n", end) else text[end]


def delete_lines(doc: SpanDoc, start: int, end: int) -> Splice:
    """Remove the lines from the one of `start` to the one of `end`; a text without a last line break stays so.

    A block scalar right above keeps its value: it neither loses its last line break, nor wins empty lines.
    """
    text = doc.source.text
    first, after = line_start(text, start), next_line(text, end)
    if first == 0:
        return Splice(first, after, "")
    above = previous_line_end(text, first)
    scalar = _block_scalar_at(doc, line_start(text, above))
    if scalar is None and line_end(text, end) == len(text) and text[-1] not in "\r\n":
        return Splice(above, after, "")
    if scalar is not None and "+" in scalar.raw[1:3]:
        while after < len(text) and not text[after : line_end(text, after)].strip(" "):
            after = next_line(text, after)
    return Splice(first, after, "")


def _block_scalar_at(doc: SpanDoc, line: int) -> Node | None:
    """The block scalar that ends on the line that begins at `line`."""
    text = doc.source.text
    for root in doc.roots:
        for node in root.walk():
            if node.style in ("literal", "folded") and line_start(text, node.end) == line:
                return node
    return None


def replace_keeping_comment(text: str, start: int, end: int, new: str) -> Splice:
    """Replace start:end; a trailing comment keeps its column if it is set off or aligned with a neighbour's."""
    stop = line_end(text, end)
    rest = text[end:stop]
    gap = len(rest) - len(rest.lstrip(" "))
    old = text[start:end]
    growth = len(new) - len(old)
    if not gap or rest[gap : gap + 1] != "#" or not growth or "\n" in new or "\n" in old:
        return Splice(start, end, new)
    if gap < 3 and not _aligned(text, start, stop, column(text, end + gap)):
        return Splice(start, end, new)
    wanted = gap - growth if gap > growth else min(gap, 2)
    return Splice(start, end + gap, new + " " * wanted)


def _aligned(text: str, start: int, stop: int, at: int) -> bool:
    above_end = previous_line_end(text, start)
    above = text[line_start(text, above_end) : above_end]
    after = next_line(text, stop)
    below = text[after : line_end(text, after)]
    return any(line[at : at + 1] == "#" and line[at - 1 : at] == " " and line[:at].strip() for line in (above, below))
