"""The tree of a YAML document, every part with its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from primus_lint.source.text import Span

_UNSET: Any = object()
YAML_TAG = "tag:yaml.org,2002:"


class Node:
    """A scalar, mapping or sequence.

    kind         "scalar", "mapping" or "sequence"
    start, end   place in the text; anchor and tag are inside. A block collection ends with its last child.
    value_start  where the content itself begins, behind anchor and tag
    style        plain, single, double, literal, folded (scalars); block, flow (collections); alias
    scalar       text of a scalar after quotes, escapes and folding, before typing; "" for collections
    tag          the explicit tag as a full URI, "!" or None
    entries      effective entries of a mapping as PyYAML sees them: first what `<<` merged in, then its own, in
                 order; duplicates are kept and the later wins
    own_entries  the entries that stand in the text, `<<` included
    items        nodes of a sequence
    target       of an alias: the anchored node, whose kind, scalar, entries and items the alias shares
    """

    __slots__ = (
        "_index", "_text", "_value", "anchor", "end", "entries", "items", "kind", "own_entries", "scalar", "start",
        "style", "tag", "target", "value_start",
    )  # fmt: skip

    def __init__(
        self, kind: str, text: str, start: int, end: int, style: str, anchor: str | None = None, tag: str | None = None
    ) -> None:
        self.kind = kind
        self._text = text
        self.start = start
        self.value_start = start
        self.end = end
        self.style = style
        self.anchor = anchor
        self.tag = tag
        self.target: Node | None = None
        self.scalar = ""
        self.entries: list[Entry] = _NO_ENTRIES
        self.own_entries: list[Entry] = _NO_ENTRIES
        self.items: list[Node] = _NO_ITEMS
        self._value = _UNSET
        self._index: dict[Any, Entry] | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.start}:{self.end} {self.raw[:40]!r}>"

    @property
    def span(self) -> Span:
        """Place in the text, anchor and tag included."""
        return Span(self.start, self.end)

    @property
    def value_span(self) -> Span:
        """Place of the content without anchor and tag."""
        return Span(self.value_start, self.end)

    @property
    def raw(self) -> str:
        """The content as it is written, without anchor and tag."""
        return self._text[self.value_start : self.end]

    @property
    def is_alias(self) -> bool:
        """Is this `*name`?"""
        return self.target is not None

    @property
    def is_absent(self) -> bool:
        """Is this a null of which nothing is written, as behind `key:`?"""
        return self.kind == "scalar" and self.start == self.end

    @property
    def value(self) -> Any:
        """The Python value, equal to what PyYAML's safe loader builds; aliases share the object of their anchor."""
        value = self._value
        if value is _UNSET:
            value = self._value = self.target.value if self.target is not None else self._build()
        return value

    def get(self, key: Any) -> Node | None:
        """The value node of a key (the one that wins); None if there is none or this is no mapping."""
        entry = self.get_entry(key)
        return None if entry is None else entry.value

    def get_entry(self, key: Any) -> Entry | None:
        """The entry of a key (the one that wins), merged ones included."""
        index = self._index
        if index is None:
            index = self._index = {entry.key.value: entry for entry in self.entries if entry.key.kind == "scalar"}
        try:
            return index.get(key)
        except TypeError:  # unhashable
            return None

    def walk(self) -> Iterator[Node]:
        """This node and all below it that stand in the text, in the order of the text (aliases are leaves)."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            if node.target is None:
                if node.kind == "mapping":
                    for entry in reversed(node.own_entries):
                        stack.append(entry.value)
                        stack.append(entry.key)
                elif node.kind == "sequence":
                    stack.extend(reversed(node.items))

    def set_value(self, value: Any) -> None:
        """For the parser: the typed value of a scalar."""
        self._value = value

    def _build(self) -> Any:
        if self.kind == "mapping":
            values = {entry.key.value: entry.value.value for entry in self.entries if entry.key.kind == "scalar"}
            return set(values) if self.tag == YAML_TAG + "set" else values
        if self.tag in (YAML_TAG + "omap", YAML_TAG + "pairs"):
            return [(entry.key.value, entry.value.value) for item in self.items for entry in item.own_entries]
        return [item.value for item in self.items]


class Entry:
    """A key and its value in a mapping; `merged` when `<<` brought it in from elsewhere."""

    __slots__ = ("key", "merged", "value")

    def __init__(self, key: Node, value: Node, merged: bool = False) -> None:
        self.key = key
        self.value = value
        self.merged = merged

    @property
    def is_merge(self) -> bool:
        """Is this `<<: ...` itself?"""
        key = self.key.target or self.key
        return key.scalar == "<<" and (
            (key.style == "plain" and key.tag in (None, "!")) or key.tag == YAML_TAG + "merge"
        )

    @property
    def span(self) -> Span:
        """From the key to the end of the value."""
        return Span(self.key.start, self.value.end)


_NO_ENTRIES: list[Entry] = []
_NO_ITEMS: list[Node] = []
