"""Hypothesis strategies: YAML texts in many layouts, and operations on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from primus_lint.source.edits import Operation

KEYS = ["a", "bb", "tensor_model_parallel_size", "x-y", "k 1", "on", "7", "lr", "z.z"]
QUOTED = ["'q r'", '"d\\tq"', "'#h'", '"a: b"']
PLAIN = [
    "1", "0", "8.5", "1.0e-5", "1e-5", "true", "no", "null", "~", "text", "two words", "a#b", "x:y", "-3", "0x1F",
    "010", "1_000", "12:30:45", "2001-01-01", "http://h/p", "é漢",
]  # fmt: skip
BLOCK_ONLY = ["${A:8}", "${B:x}/y", "a, b", "x [1]", "{{ no".replace("{{", "b{")]
SCALARS = ["'#no'", "'it''s'", '"# no"', '"a\\n#b"', '""', "''", '"${C:16}"', "'${D:}'"]
COMMENTS = ["# c", "#c", "# a: 1", "# 'quote", '# "x', "# [", "#", "# é"]
VALUES: list[Any] = [
    None, True, 1, 16, 1e-5, 0.1, 2.5e20, "", "text", "yes", "1e-5", "a: b", "#x", "it's", "tab\t", "two\nlines", "é",
    "${A:4}", [], {}, [1, "a,b"], {"k": None, "l": [1.5]}, "-", "a #b", "<<", "=", "null", "12:30",
]  # fmt: skip


Pick = Callable[[Sequence[Any]], Any]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A YAML text with a mapping at its root: block and flow, comments, anchors, any line break, any end."""
    return write_document(lambda choices: draw(st.sampled_from(choices)))


def write_document(pick: Pick) -> str:
    """Such a text, every choice of which `pick` makes."""
    lines = _Writer(pick).mapping(0, 3)
    start = pick([None, None, None, "---", "# top", "", "%YAML 1.1\n---", "--- # start"])
    text = "\n".join(lines if start is None else [start, *lines])
    text += pick(["\n", "\n", "\n", "", "\n\n", "\n# end\n", "\n# end", "\n...\n"])
    return text.replace("\n", pick(["\n", "\n", "\n", "\r\n"]))


class _Writer:
    def __init__(self, choose: Pick) -> None:
        self.choose = choose
        self.anchors = 0

    def pick(self, *choices: Any) -> Any:
        return self.choose(choices)

    def chance(self, one_in: int) -> bool:
        return bool(self.choose(range(one_in)) == one_in - 1)

    def keys(self) -> list[str]:
        some = [str(self.choose(KEYS + QUOTED)) for _ in range(self.choose(range(1, 5)))]
        return some if self.chance(20) else list(dict.fromkeys(some))  # now and then a key twice

    def tail(self) -> str:
        return self.pick("  ", " ", "      ") + self.pick(*COMMENTS) if self.chance(3) else self.pick("", "", "", " ")

    def between(self, indent: int) -> list[str]:
        if not self.chance(4):
            return []
        return [" " * self.pick(indent, indent, indent + 2, 0) + self.pick(*COMMENTS)] if self.chance(2) else [""]

    def scalar(self, *, flow: bool) -> str:
        choices = PLAIN + SCALARS if flow else PLAIN + SCALARS + BLOCK_ONLY
        prefix = ""
        if self.chance(15):
            self.anchors += 1
            prefix = f"&n{self.anchors} "
        elif self.chance(25):
            prefix = "!!str "
        elif self.anchors and self.chance(6):
            return f"*n{self.choose(range(1, self.anchors + 1))}" + (" " if flow else "")
        return prefix + str(self.choose(choices))

    def mapping(self, indent: int, depth: int, *, head: str = "") -> list[str]:
        pad = " " * indent
        lines: list[str] = []
        for index, key in enumerate(self.keys()):
            if index or not head:
                lines += self.between(indent)
            start = head if head and not index else pad
            lines += self.value(f"{start}{key}:", indent, depth)
        return lines

    def value(self, start: str, indent: int, depth: int) -> list[str]:
        kind = self.pick("scalar", "scalar", "scalar", "map", "seq", "flow", "block", "absent")
        step = self.pick(2, 2, 4, 1)
        if kind == "map" and depth:
            anchor = f" &m{self.choose(range(10**6))}" if self.chance(12) else ""
            return [start + anchor + self.tail(), *self.between(indent + step), *self.mapping(indent + step, depth - 1)]
        if kind == "seq" and depth:
            inner = self.pick(indent, indent + step)
            return [start + self.tail(), *self.sequence(inner, depth - 1)]
        if kind == "flow":
            return [start + " " + self.flow(2, indent + 1) + self.tail()]
        if kind == "block":
            header = self.pick("|", ">", "|-", ">-", "|+", "|2-") if step == 2 else self.pick("|", "|+")
            comment = self.pick("", "", " # hdr")
            body = self.pick(["x"], ["x # no", "", "y"], ["# no", "  z"], ["x", "", ""])
            return [start + " " + header + comment, *(" " * (indent + 2) + line if line else "" for line in body)]
        if kind == "absent":
            return [start + self.tail()]
        return [start + " " + self.scalar(flow=False) + self.tail()]

    def sequence(self, indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        for index in range(self.choose(range(1, 4))):
            if index:
                lines += self.between(indent)
            dash = " " * indent + "-" + self.pick(" ", " ", "   ")
            if depth and self.chance(3):
                lines += self.mapping(len(dash), depth - 1, head=dash)
            elif depth and self.chance(6):
                nested = self.sequence(len(dash), depth - 1)
                lines += [dash + nested[0].lstrip(), *nested[1:]]
            else:
                lines += self.value(" " * indent + "-", indent, 0)
        return lines

    def flow(self, depth: int, indent: int) -> str:
        gap = self.pick(" ", "", " ", "\n" + " " * (indent + 1), " # in\n" + " " * (indent + 1))
        comma = self.pick("," + gap, ", ", f" ,{gap}") if gap else ", "
        end = self.pick("", " ", gap, ",")
        parts = []
        if self.chance(2):
            for key in self.keys() if not self.chance(6) else []:
                alone = self.chance(9) and key[0] not in "'\""
                parts.append(key if alone else f"{key}: {self._flow_value(depth, indent)}")
            return "{" + self.pick("", gap) + comma.join(parts) + (end if parts else "") + "}"
        for _ in range(self.choose(range(4))):
            parts.append(self._flow_value(depth, indent))
        return "[" + self.pick("", gap) + comma.join(parts) + (end if parts else "") + "]"

    def _flow_value(self, depth: int, indent: int) -> str:
        return self.flow(depth - 1, indent + 2) if depth and self.chance(5) else self.scalar(flow=True)


def paths(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path below a Python tree, the root's () first."""
    found = [prefix]
    if isinstance(tree, dict):
        for key, item in tree.items():
            found += paths(item, (*prefix, key))
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            found += paths(item, (*prefix, index))
    return found


def get(tree: Any, path: tuple[Any, ...]) -> Any:
    """What stands at a path of a Python tree."""
    for step in path:
        tree = tree[step]
    return tree


@st.composite
def operations(draw: st.DrawFn, tree: Any) -> Operation:
    """An operation that makes sense for a tree (which does not say that every text allows it)."""
    return pick_operation(tree, lambda choices: draw(st.sampled_from(choices)), VALUES)


def pick_operation(tree: Any, pick: Pick, values: list[Any]) -> Operation:
    """An operation on a tree; `pick` chooses one of a list."""
    path = pick(paths(tree))
    item = get(tree, path)
    choices = ["set", "delete"] if path else []
    if isinstance(item, dict) or item is None:
        choices += ["insert", "insert"]
    if isinstance(item, list):
        choices += ["insert-item", "insert-item"]
    holder = get(tree, path[:-1]) if path else None
    if isinstance(holder, dict):
        choices += ["rename", "insert-after", "insert-before"]
        if isinstance(item, str) and item.count("${") == 1 and ":" in item:
            choices += ["set-default"] * 4
    if not choices:
        return Operation("set", path, pick(values))
    op = pick(choices)
    if op == "insert":
        return Operation("insert", (*path, pick(["new", "new key", "on2", "1"])), pick(values), pick([None, "why"]))
    if op == "insert-item":
        return Operation("insert-item", (*path, pick(range(len(item) + 1))), pick(values))
    if op == "rename":
        return Operation("rename", path, pick(["new", "new: key", "renamed_key", "no"]))
    if op == "set-default":
        return Operation("set-default", path, pick(["1", "32", "x y", ""]))
    if op in ("insert-after", "insert-before"):
        where = {op.removeprefix("insert-"): path[-1]}
        return Operation("insert", (*path[:-1], "new"), pick(values), pick([None, "why"]), **where)
    return Operation(op, path, pick(values) if op == "set" else None)
