"""What an operation should do to a tree and to the lines of a text, worked out without the code under test."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from primus_lint.source.edits import Operation


def intend(tree: Any, operation: Operation) -> Any:
    """The tree that an operation on `tree` (plain, without shared parts) means."""
    tree = copy.deepcopy(tree)
    if not operation.path:
        return operation.value
    *steps, last = operation.path
    holder = tree
    for index, step in enumerate(steps):
        if holder[step] is None and index == len(steps) - 1:
            holder[step] = [] if operation.op == "insert-item" else {}
        holder = holder[step]
    if operation.op == "delete":
        holder.pop(last)
    elif operation.op == "rename":
        holder[operation.value] = holder.pop(last)
    elif operation.op == "insert-item":
        holder.insert(last, operation.value)
    elif operation.op == "set-default":
        before, _, rest = holder[last].partition("${")
        name, _, rest = rest.partition(":")
        holder[last] = f"{before}${{{name}:{operation.value}{rest[rest.index('}') :]}"
    else:
        holder[last] = operation.value
    return tree


def unshared(value: Any) -> Any:
    """A copy in which no two places are one object."""
    if isinstance(value, dict):
        return {key: unshared(item) for key, item in value.items()}
    return [unshared(item) for item in value] if isinstance(value, list) else value


def allowed_lines(text: str, operation: Operation) -> tuple[int, int]:
    """First and last line (from 0) of the old text that may change, by PyYAML's own marks.

    For an insertion these are the lines of what it goes into or beside; new lines may come behind the last of them.
    """
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    start = node.start_mark.line
    path = operation.path
    if operation.op in ("insert", "insert-item"):
        path = path[:-1]
        beside = operation.after if operation.after is not None else operation.before
        if beside is not None:
            path = (*path, beside)
    if operation.op == "delete":
        path = path[: len(path) - _emptied(node, path)]
    moves_up = before = None
    for step in path:
        holder, parts = node, node.value
        if isinstance(node, yaml.SequenceNode):
            places = [step]
            head = parts[step]
            node = parts[step]
        else:  # PyYAML's constructor types the keys
            places = [at for at, pair in enumerate(parts) if _value(pair[0]) == step]
            head = parts[places[0 if operation.op == "delete" else -1]][0]
            node = parts[places[-1]][1]
        start = head.start_mark.line
        # what follows the first part behind a dash moves up to the dash when that part goes
        below = parts[places[-1] + 1] if places[-1] + 1 < len(parts) else None
        moves_up = below[0] if isinstance(below, tuple) else below
        flow = holder.flow_style and below is None and places[0] > 0  # the comma before it goes too
        before = parts[places[0] - 1] if flow else None
    last = _last_line(node, text)
    if operation.op == "delete" and before is not None:
        start = min(start, _last_line(before[1] if isinstance(before, tuple) else before, text))
    if operation.op == "delete" and moves_up is not None and text.split("\n")[start].lstrip()[:1] in ("-", "?"):
        last = max(last, moves_up.start_mark.line)
    return start, last


def _value(key: yaml.Node) -> Any:
    return yaml.SafeLoader("").construct_object(key)


def _emptied(node: yaml.Node, path: tuple[Any, ...]) -> int:
    """1 when what goes is the only part of its holder, whose lines then change too."""
    for step in path[:-1]:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[step]
        else:
            node = [pair for pair in node.value if _value(pair[0]) == step][-1][1]
    keys = {_value(pair[0]) for pair in node.value} if isinstance(node, yaml.MappingNode) else node.value
    return 1 if path and len(keys) == 1 else 0


def _last_line(node: yaml.Node, text: str) -> int:
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1] if isinstance(node, yaml.SequenceNode) else node.value[-1][1]
    end = node.end_mark
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return int(end.line) if end.column else int(end.line) - 1
    return int(end.line)


def untouched(old: str, new: str, first: int, last: int) -> bool:
    """Are the lines of `old` before `first` and behind `last` still there, at the head and the tail of `new`?"""
    one, two = _lines(old, new)
    head, tail = one[:first], one[last + 1 :]
    return len(two) >= len(head) + len(tail) and two[: len(head)] == head and two[len(two) - len(tail) :] == tail


def changed_lines(old: str, new: str) -> tuple[int, int]:
    """(first, last) line of `old` that is not in the common head or tail of both; first > last if lines only came."""
    one, two = _lines(old, new)
    head = 0
    while head < min(len(one), len(two)) and one[head] == two[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(two)) - head and one[-1 - tail] == two[-1 - tail]:
        tail += 1
    return head, len(one) - tail - 1


def _lines(old: str, new: str) -> tuple[list[str], list[str]]:
    if old.count("\r\n") == old.count("\n") > 0:
        assert new.count("\r\n") == new.count("\n")
        old, new = old.replace("\r", ""), new.replace("\r", "")
    return old.split("\n"), new.split("\n")
