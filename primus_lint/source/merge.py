"""The merge key `<<`, as the installed PyYAML merges."""

from __future__ import annotations

from typing import Any

from primus_lint.source.node import Entry, Node
from primus_lint.source.scalars import shorten
from primus_lint.source.text import Problem

_keeps_order: bool | None = None


def merged_entries(node: Node, room: int) -> tuple[list[Entry], list[Problem]]:
    """Effective entries of a mapping that has `<<`: the merged ones first, then its own; and what is wrong.

    Of one key in several mappings of a `<<: [*a, *b]` the first won up to PyYAML 6.0.3, as the merge specification
    says. Since 6.0.4 the last wins, save for names of one character (it compares the identity of key strings), so
    the outcome depends on the version and is reported. Stops at more than `room` entries.
    """
    merged: list[Entry] = []
    problems: list[Problem] = []
    for entry in node.own_entries:
        if not entry.is_merge:
            continue
        value = entry.value
        sources = value.items if value.kind == "sequence" else [value]
        bad = next((source for source in sources if source.kind != "mapping"), None)
        if bad is not None:
            message = f"`<<` merges a mapping or a list of mappings, not a {bad.kind}"
            problems.append(Problem("merge-key-invalid", message, bad.span))
            continue
        if sum(len(source.entries) for source in sources) <= room:
            problems += _conflicts(sources)
        if value.kind == "sequence" and len(sources) > 1 and not _list_merge_keeps_order():
            sources = sources[::-1]
        for source in sources:
            if len(merged) > room:
                return merged, problems
            merged += [Entry(each.key, each.value, True) for each in source.entries]
    if len(merged) > 1 and _list_merge_keeps_order():
        merged = _first_of_each(merged)
    return merged + [entry for entry in node.own_entries if not entry.is_merge], problems


def _first_of_each(entries: list[Entry]) -> list[Entry]:
    seen: set[Any] = set()
    kept = []
    for entry in entries:
        key = entry.key.target or entry.key
        shared = len(key.scalar) < 2 and key.scalar <= "\xff"  # CPython keeps one object of each such string
        identity: Any = key.scalar if shared else id(key)
        if identity not in seen:
            seen.add(identity)
            kept.append(entry)
    return kept


def _conflicts(sources: list[Node]) -> list[Problem]:
    first: dict[Any, Node] = {}
    problems = []
    for source in sources if len(sources) > 1 else ():
        for entry in source.entries:
            key = entry.key
            if key.kind != "scalar":
                continue
            other = first.setdefault(key.value, source)
            if other is not source:
                name = shorten(key.raw)
                message = f"{name} is in several merged mappings: which one wins depends on the PyYAML version"
                related = (("also merged from here", other.span),)
                problems.append(Problem("merge-conflict", message, source.span, related, fatal=False))
                break
    return problems


def _list_merge_keeps_order() -> bool:
    """Does the installed PyYAML let the last mapping of a merge list win (6.0.4 and later)?"""
    global _keeps_order
    if _keeps_order is None:
        import yaml

        merged = yaml.safe_load("[&a {key: first}, &b {key: last}, {<<: [*a, *b]}]")[2]
        _keeps_order = merged["key"] == "last"
    return _keeps_order
