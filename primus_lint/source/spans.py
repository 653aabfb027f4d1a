"""YAML text -> tree with positions and PyYAML values, on libyaml's events.

The tree is the one that `yaml.safe_load` builds (YAML 1.1); what the safe loader refuses or silently drops is a
`Problem` with its place. Nothing raises, and work is bounded: nesting depth, expanded aliases, huge integers.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from primus_lint.source.node import YAML_TAG, Entry, Node
from primus_lint.source.scalars import ScalarError, construct, plain_tag, shorten
from primus_lint.source.text import Problem, SourceText, Span

try:
    from yaml._yaml import CParser as _Parser
except ImportError:  # PyYAML without libyaml: the same events, slower
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

MAX_DEPTH = 200
MAX_NODES = 100_000  # after aliases are expanded, when there are aliases

_SCALAR_STYLES = {None: "plain", "": "plain", "'": "single", '"': "double", "|": "literal", ">": "folded"}


class SpanDoc:
    """A parsed file.

    source     the text
    root       the (first) document's node; None if there is no content or the text could not be parsed
    roots      the root of every document (more than one only with `multi`)
    problems   what is wrong with it, in the order found
    documents  how many documents were read
    """

    __slots__ = ("documents", "problems", "roots", "source")

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.roots: list[Node] = []
        self.problems: list[Problem] = list(source.problems)
        self.documents = 0

    @classmethod
    def parse(cls, source: SourceText, *, multi: bool = False) -> SpanDoc:
        """Parse; never raises. Without `multi` a second document is a fatal problem, as for `yaml.safe_load`."""
        doc = cls(source)
        if any(problem.fatal for problem in source.problems):
            return doc
        try:
            _Builder(doc, multi).run()
        except yaml.YAMLError as error:
            doc.roots = []
            doc.problems.append(_syntax_problem(error, source.text))
        except _Stop as stop:
            doc.roots = []
            doc.problems.append(stop.problem)
        return doc

    @classmethod
    def parse_text(cls, text: str, path: str = "<text>") -> SpanDoc:
        """Parse a text that is in memory."""
        return cls.parse(SourceText.from_text(path, text))

    @property
    def root(self) -> Node | None:
        """The first document's node."""
        return self.roots[0] if self.roots else None

    @property
    def fatal(self) -> bool:
        """Does the safe loader refuse this file (or do we)?"""
        return any(problem.fatal for problem in self.problems)

    def node(self, path: tuple[Any, ...]) -> Node | None:
        """The node at a path of keys and sequence indices; None if there is none."""
        node = self.root
        for step in path:
            if node is None:
                return None
            if node.kind == "mapping":
                node = node.get(step)
            elif node.kind == "sequence" and type(step) is int and -len(node.items) <= step < len(node.items):
                node = node.items[step]
            else:
                return None
        return node

    def entry(self, path: tuple[Any, ...]) -> Entry | None:
        """The mapping entry at a path; None if there is none or the path ends in a sequence."""
        if not path:
            return None
        parent = self.node(path[:-1])
        return parent.get_entry(path[-1]) if parent is not None and parent.kind == "mapping" else None

    def to_python(self) -> Any:
        """What `yaml.safe_load` returns; None when there is no root."""
        return None if self.root is None else self.root.value


class _Stop(Exception):
    """Parsing cannot go on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class _Builder:
    def __init__(self, doc: SpanDoc, multi: bool) -> None:
        self.doc = doc
        self.text = doc.source.text
        self.multi = multi
        self.anchors: dict[str, Node] = {}
        self.aliased = False
        self.keys_only: list[Node] = []  # `<<` and `=`: good as keys, refused elsewhere

    def problem(self, code: str, message: str, span: Span, *related: tuple[str, Span], fatal: bool = True) -> None:
        self.doc.problems.append(Problem(code, message, span, related, fatal))

    def run(self) -> None:
        next_event: Any = _Parser(self.text).get_event
        text = self.text
        stack: list[tuple[Node, list[Any]]] = []  # open collections with their children so far (keys and values mixed)
        children: list[Any] = []
        while True:
            event = next_event()
            kind = type(event)
            if kind is ScalarEvent:
                node = self.scalar(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                node = Node(
                    "mapping" if kind is MappingStartEvent else "sequence",
                    text, event.start_mark.index, event.end_mark.index, "flow" if event.flow_style else "block",
                    event.anchor, event.tag,
                )  # fmt: skip
                if event.anchor is not None or event.tag is not None:
                    self.properties(node)
                children.append(node)
                stack.append((node, children))
                if len(stack) > MAX_DEPTH:
                    raise _Stop(Problem("too-deep", f"nested more than {MAX_DEPTH} levels deep", node.span))
                children = []
                continue
            elif kind is AliasEvent:
                node = self.alias(event, stack)
            elif kind is DocumentStartEvent:
                if self.doc.documents and not self.multi:
                    at = event.start_mark.index
                    self.problem(
                        "multiple-documents", "expected a single document, but another one begins here",
                        Span(at, min(at + 3, len(text))),
                    )  # fmt: skip
                    return
                self.doc.documents += 1
                continue
            elif kind is DocumentEndEvent:
                root: Node = children.pop()
                if self.aliased:
                    _check_expansion(root)
                self.doc.roots.append(root)
                for odd in self.keys_only:
                    self.problem("invalid-scalar", f"a plain {odd.raw!r} is only good as a key: quote it", odd.span)
                self.keys_only = []
                self.anchors = {}
                self.aliased = False
                continue
            elif kind is StreamEndEvent:
                if not self.doc.documents:
                    self.problem("empty-file", "the file has no content", Span(0, 0), fatal=False)
                return
            elif kind is StreamStartEvent:
                continue
            else:  # the end of a collection
                node, outer = stack.pop()
                self.close(node, children, event)
                children = outer
                continue
            children.append(node)

    def scalar(self, event: Any) -> Node:
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
            self.properties(node)
        if style == "literal" or style == "folded":
            node.end = _block_scalar_end(self.text, node.value_start, end)
        if short == "str":
            node.set_value(value)
        elif short == "merge" or short == "value":
            node.set_value(value)
            self.keys_only.append(node)
        else:
            typed = construct(short, value)
            if isinstance(typed, ScalarError):
                code = "unknown-tag" if short == tag else "invalid-scalar"
                self.problem(code, typed.message, node.span)
                typed = value
            node.set_value(typed)
        return node

    def alias(self, event: Any, stack: list[tuple[Node, list[Any]]]) -> Node:
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

    def properties(self, node: Node) -> None:
        """Find where the content begins behind anchor and tag; remember the anchor."""
        node.value_start = _skip_properties(self.text, node.start, node.end if node.kind == "scalar" else None)
        if node.anchor is not None:
            first = self.anchors.get(node.anchor)
            if first is not None:
                related = (("first set here", Span(first.start, first.value_start)),)
                self.problem("duplicate-anchor", f"anchor &{node.anchor} is set twice", node.span, *related)
            self.anchors[node.anchor] = node

    def close(self, node: Node, children: list[Any], event: Any) -> None:
        if node.style == "flow":
            node.end = event.end_mark.index
        elif children:
            node.end = children[-1].end
        if node.kind == "sequence":
            node.items = children
        else:
            rest = iter(children)
            node.own_entries = node.entries = [Entry(key, next(rest)) for key in rest]
            self.check_keys(node)
        if node.tag is not None:
            self.check_tag(node)

    def check_keys(self, node: Node) -> None:
        seen: dict[Any, Node] = {}
        merges = False
        for entry in node.own_entries:
            key = entry.key
            if key.kind != "scalar":
                self.problem("unhashable-key", f"a {key.kind} cannot be a key", key.span)
                continue
            if key.scalar == "<<" and entry.is_merge:
                merges = True
            else:
                value = key.value
                if value in seen:
                    related = ("first set here", seen[value].span)
                    message = f"key {shorten(key.raw)} is set twice: the last one wins"
                    self.problem("duplicate-key", message, key.span, related, fatal=False)
                else:
                    seen[value] = key
                if type(value) is not str:
                    message = f"key {shorten(key.raw)} is not a string but {type(value).__name__} {value!r}"
                    self.problem("non-string-key", message, key.span, fatal=False)
        if self.keys_only:
            keys = {id(entry.key) for entry in node.own_entries}
            self.keys_only = [odd for odd in self.keys_only if id(odd) not in keys]
        if merges:
            from primus_lint.source.merge import merged_entries

            entries, problems = merged_entries(node)
            node.entries = entries
            self.doc.problems += problems

    def check_tag(self, node: Node) -> None:
        tag = node.tag or "!"
        short = tag[len(YAML_TAG) :] if tag.startswith(YAML_TAG) else tag
        if short == "!" or short in (("map", "set") if node.kind == "mapping" else ("seq", "omap", "pairs")):
            if short not in ("omap", "pairs"):
                return
            for item in node.items:
                if item.kind != "mapping" or len(item.own_entries) != 1 or item.own_entries[0].is_merge:
                    self.problem("tag-mismatch", f"an item of !!{short} is a mapping with one key", item.span)
        elif short in _KNOWN_TAGS:
            self.problem("tag-mismatch", f"!!{short} on a {node.kind}", node.span)
        else:
            self.problem("unknown-tag", f"the safe loader knows no tag {shorten(tag)}", node.span)


_KNOWN_TAGS = ("null", "bool", "int", "float", "binary", "timestamp", "omap", "pairs", "set", "str", "seq", "map")


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


def _block_scalar_end(text: str, start: int, end: int) -> int:
    """Without the line breaks behind it, which libyaml counts in (all but one of them are content under `+`)."""
    content = text[start:end]
    if "+" in content[1:3]:
        return end - (2 if content.endswith("\r\n") else 1 if content.endswith(("\n", "\r")) else 0)
    return start + len(content.rstrip("\r\n"))


def _skip_properties(text: str, start: int, end: int | None) -> int:
    """Offset of the content behind anchor and tag, at most `end`."""
    stop = len(text) if end is None else end
    at = start
    while at < stop:
        char = text[at]
        if char in "&!":
            if text.startswith("!<", at):
                at = text.index(">", at) + 1
            else:
                while at < stop and text[at] not in " \t\r\n,[]{}":
                    at += 1
        elif char in " \t\r\n\x85\u2028\u2029":
            at += 1
        elif char == "#":
            while at < stop and text[at] not in "\r\n":
                at += 1
        else:
            break
    return min(at, stop)


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # the reader: a character that YAML does not allow
        position = getattr(error, "position", 0) or 0
        at = position if _Parser.__name__ == "SafeLoader" else len(text.encode()[:position].decode("utf-8", "ignore"))
        reason = str(getattr(error, "reason", error))
        return Problem("yaml-syntax", f"{reason} (U+{ord(text[at]):04X})" if at < len(text) else reason, _one(at, text))
    at = mark.index
    what = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    context_mark = getattr(error, "context_mark", None)
    related: tuple[tuple[str, Span], ...] = ()
    if context is not None and context_mark is not None:
        related = ((context, _one(context_mark.index, text)),)
    if text[at : at + 1] == "\t":
        return Problem("tab-indent", "a tab cannot indent YAML: use spaces", _one(at, text), related)
    return Problem("yaml-syntax", f"{context}: {what}" if context else what, _one(at, text), related)


def _one(at: int, text: str) -> Span:
    at = min(at, len(text))
    return Span(at, min(at + 1, len(text)))
