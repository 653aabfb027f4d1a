"""libyaml's events -> nodes, and the problems that show on the way.

What PyYAML's safe loader refuses when it builds values (unknown tags, unhashable keys, bad dates) or silently drops
(duplicate keys) is found here. Work is bounded: nesting depth, expanded aliases.
"""

from __future__ import annotations

from typing import Any

from primus_lint.source.node import YAML_TAG, Entry, Node
from primus_lint.source.pyyaml import (
    IN_BYTES,
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    Parser,
    ScalarEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
    YAMLError,
)
from primus_lint.source.scalars import ScalarError, construct, plain_tag, shorten
from primus_lint.source.syntax import block_scalar_end, skip_properties, syntax_problem
from primus_lint.source.text import Problem, Span

MAX_DEPTH = 200
MAX_NODES = 100_000  # after aliases are expanded, when there are aliases

_SCALAR_STYLES = {None: "plain", "": "plain", "'": "single", '"': "double", "|": "literal", ">": "folded"}
_SCALAR_TAGS = ("str", "null", "bool", "int", "float", "timestamp", "binary", "merge", "value")
_COLLECTION_TAGS = ("seq", "map", "set", "omap", "pairs")


class _Stop(Exception):
    """Parsing cannot go on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class TreeBuilder:
    """One run over a text: `roots`, `problems` and the number of `documents`."""

    def __init__(self, text: str, *, multi: bool) -> None:
        self.text = text
        self.multi = multi
        self.roots: list[Node] = []
        self.problems: list[Problem] = []
        self.documents = 0
        self.anchors: dict[str, Node] = {}
        self.aliased = False
        self.merged = 0  # entries that `<<` has brought in
        self.keys_only: dict[int, Node] = {}  # `<<` and `=`: good as keys, refused elsewhere

    def _problem(self, code: str, message: str, span: Span, *related: tuple[str, Span], fatal: bool = True) -> None:
        self.problems.append(Problem(code, message, span, related, fatal))

    def run(self) -> None:
        """Read the text to its end, or to what stops it: then there are no roots and the last problem says why."""
        if self.text.startswith("\ufeff"):  # behind the one that is no part of the text; libyaml's places would be off
            self._problem("yaml-syntax", "a second byte order mark at the beginning of the file", Span(0, 1))
            return
        try:
            self._read()
            if "\t" in self.text or "\ufeff" in self.text:
                from primus_lint.source.strict import strict_problems

                self.problems += strict_problems(self.text, self.roots)
        except (YAMLError, ValueError, OverflowError) as error:
            self.roots = []
            self.problems.append(syntax_problem(error, self.text, in_bytes=IN_BYTES))
        except _Stop as stop:
            self.roots = []
            self.problems.append(stop.problem)

    def _read(self) -> None:
        next_event: Any = Parser(self.text).get_event
        text = self.text
        stack: list[tuple[Node, list[Any]]] = []  # open collections with their children so far (keys and values mixed)
        children: list[Any] = []
        while True:
            event = next_event()
            kind = type(event)
            if kind is ScalarEvent:
                node = self._scalar(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                node = Node(
                    "mapping" if kind is MappingStartEvent else "sequence",
                    text, event.start_mark.index, event.end_mark.index, "flow" if event.flow_style else "block",
                    event.anchor, event.tag,
                )  # fmt: skip
                if event.anchor is not None or event.tag is not None:
                    self._properties(node)
                children.append(node)
                stack.append((node, children))
                if len(stack) > MAX_DEPTH:
                    raise _Stop(Problem("too-deep", f"nested more than {MAX_DEPTH} levels deep", node.span))
                children = []
                continue
            elif kind is AliasEvent:
                node = self._alias(event, stack)
            elif kind is DocumentStartEvent:
                if self.documents and not self.multi:
                    at = event.start_mark.index
                    self._problem(
                        "multiple-documents", "expected a single document, but another one begins here",
                        Span(at, min(at + 3, len(text))),
                    )  # fmt: skip
                    return
                self.documents += 1
                continue
            elif kind is DocumentEndEvent:
                root: Node = children.pop()
                if self.aliased:
                    _check_expansion(root)
                self.roots.append(root)
                for odd in self.keys_only.values():
                    self._problem("invalid-scalar", f"a plain {odd.raw!r} is only good as a key: quote it", odd.span)
                self.keys_only = {}
                self.anchors = {}
                self.aliased = False
                continue
            elif kind is StreamEndEvent:
                if not self.documents:
                    self._problem("empty-file", "the file has no content", Span(0, 0), fatal=False)
                return
            elif kind is StreamStartEvent:
                continue
            else:  # the end of a collection
                node, outer = stack.pop()
                self._close(node, children, event)
                children = outer
                continue
            children.append(node)

    def _scalar(self, event: Any) -> Node:
        value: str = event.value
        style = _SCALAR_STYLES[event.style]
        tag = event.tag
        end = event.end_mark.index
        node = Node("scalar", self.text, event.start_mark.index, end, style, event.anchor, tag)
        node.scalar = value
        if tag is None:
            short = plain_tag(value) if event.implicit[0] else "str"
        elif tag == "!":
            short = plain_tag(value)
        else:
            short = tag[len(YAML_TAG) :] if tag.startswith(YAML_TAG) else tag
        if tag is not None or event.anchor is not None:
            self._properties(node)
        if style == "literal" or style == "folded":
            node.end = block_scalar_end(self.text, node.value_start, end)
        if short == "str":
            node.set_value(value)
        elif short == "merge" or short == "value":
            node.set_value(value)
            self.keys_only[id(node)] = node
        elif tag is not None and short not in _SCALAR_TAGS:
            node.set_value(value)
            self._wrong_tag(node, tag, short)
        else:
            typed = construct(short, value)
            if isinstance(typed, ScalarError):
                self._problem("invalid-scalar", typed.message, node.span)
                typed = value
            node.set_value(typed)
        return node

    def _alias(self, event: Any, stack: list[tuple[Node, list[Any]]]) -> Node:
        span = Span(event.start_mark.index, event.end_mark.index)
        target = self.anchors.get(event.anchor)
        if target is None:
            raise _Stop(Problem("undefined-alias", f"no anchor &{event.anchor} before this alias", span))
        if any(node is target for node, _ in stack):
            related = (("the anchored node begins here", Span(target.start, target.value_start)),)
            raise _Stop(Problem("recursive-alias", f"*{event.anchor} is inside the node that it names", span, related))
        node = Node(target.kind, self.text, span.start, span.end, "alias")
        node.target = target
        node.scalar = target.scalar
        node.entries = target.entries
        node.own_entries = target.own_entries
        node.items = target.items
        self.aliased = True
        return node

    def _properties(self, node: Node) -> None:
        """Find where the content begins behind anchor and tag; remember the anchor."""
        end = node.end if node.kind == "scalar" else len(self.text)
        node.value_start = skip_properties(self.text, node.start, end)[1]
        if node.anchor is not None:
            first = self.anchors.get(node.anchor)
            if first is not None:
                related = (("first set here", Span(first.start, first.value_start)),)
                self._problem("duplicate-anchor", f"anchor &{node.anchor} is set twice", node.span, *related)
            self.anchors[node.anchor] = node

    def _close(self, node: Node, children: list[Any], event: Any) -> None:
        if node.style == "flow" and self.text[node.value_start] in "{[":
            node.end = event.end_mark.index
        elif children:  # a block collection, or the only pair of `[key: value]`
            node.end = children[-1].end
        if node.kind == "sequence":
            node.items = children
        else:
            rest = iter(children)
            node.own_entries = node.entries = [Entry(key, next(rest)) for key in rest]
            self._check_keys(node)
        if node.tag is not None:
            self._check_tag(node)

    def _check_keys(self, node: Node) -> None:
        seen: dict[Any, Node] = {}
        merges = False
        for entry in node.own_entries:
            key = entry.key
            if key.kind != "scalar":
                self._problem("unhashable-key", f"a {key.kind} cannot be a key", key.span)
                continue
            if key.scalar == "<<" and entry.is_merge:
                merges = True
            else:
                value = key.value
                if value in seen:
                    related = ("first set here", seen[value].span)
                    message = f"key {shorten(key.raw)} is set twice: the last one wins"
                    self._problem("duplicate-key", message, key.span, related, fatal=False)
                else:
                    seen[value] = key
                if type(value) is not str:
                    message = f"key {shorten(key.raw)} is not a string but {type(value).__name__} {value!r}"
                    self._problem("non-string-key", message, key.span, fatal=False)
        if self.keys_only:
            for entry in node.own_entries:
                self.keys_only.pop(id(entry.key), None)
        if merges:
            from primus_lint.source.merge import merged_entries

            room = MAX_NODES - self.merged
            entries, problems = merged_entries(node, room)
            if len(entries) > room:
                raise _Stop(Problem("alias-bomb", f"`<<` merges more than {MAX_NODES} entries", node.span))
            self.merged += len(entries)
            node.entries = entries
            self.problems += problems

    def _check_tag(self, node: Node) -> None:
        tag = node.tag or "!"
        short = tag[len(YAML_TAG) :] if tag.startswith(YAML_TAG) else tag
        if short == "!" or short in (("map", "set") if node.kind == "mapping" else ("seq", "omap", "pairs")):
            if short not in ("omap", "pairs"):
                return
            for item in node.items:
                if item.kind != "mapping" or len(item.own_entries) != 1 or item.own_entries[0].is_merge:
                    self._problem("tag-mismatch", f"an item of !!{short} is a mapping with one key", item.span)
        else:
            self._wrong_tag(node, tag, short)

    def _wrong_tag(self, node: Node, tag: str, short: str) -> None:
        if short in _SCALAR_TAGS or short in _COLLECTION_TAGS:
            self._problem("tag-mismatch", f"!!{short} on a {node.kind}", node.span)
        else:
            self._problem("unknown-tag", f"the safe loader knows no tag {shorten(tag)}", node.span)


def _check_expansion(root: Node) -> None:
    """Stop at an alias bomb: too many nodes, or too deep, once aliases are expanded."""
    measured: dict[int, tuple[int, int]] = {}  # id of a node -> (nodes below and with it, height)
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        node = node.target or node
        if id(node) in measured:
            continue
        below = [part for entry in node.entries for part in (entry.key, entry.value)] or node.items
        if not ready:
            stack.append((node, True))
            stack.extend((part, False) for part in below)
            continue
        sizes = [measured[id(part.target or part)] for part in below]
        size = 1 + sum(size for size, _ in sizes)
        height = 1 + max((height for _, height in sizes), default=0)
        measured[id(node)] = size, height
        if size > MAX_NODES:
            raise _Stop(Problem("alias-bomb", f"more than {MAX_NODES} nodes once aliases are expanded", node.span))
        if height > MAX_DEPTH:
            raise _Stop(Problem("too-deep", f"nested more than {MAX_DEPTH} levels deep through aliases", node.span))
