"""YAML text -> tree with positions and PyYAML values, on libyaml's events.

The tree is the one that `yaml.safe_load` builds (YAML 1.1); what the safe loader refuses or silently drops is a
`Problem` with its place. Nothing raises, and work is bounded: nesting depth, expanded aliases, huge integers.
"""

from __future__ import annotations

from typing import Any

from primus_lint.source.builder import MAX_DEPTH, MAX_NODES, TreeBuilder
from primus_lint.source.node import Entry, Node
from primus_lint.source.text import Problem, SourceText, Span

__all__ = ["MAX_DEPTH", "MAX_NODES", "Entry", "Node", "Problem", "SourceText", "Span", "SpanDoc"]


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
        builder = TreeBuilder(source.text, multi=multi)
        builder.run()
        doc.roots = builder.roots
        doc.documents = builder.documents
        doc.problems += builder.problems
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
