"""What a few small commands print: those with which scripts compute a text. None: only a run can know."""

from __future__ import annotations

import ast
import math
import operator
import os
import re
from typing import TYPE_CHECKING, Any

from primus_lint.readers.shell_compute import Unknown, cheap, compute
from primus_lint.readers.shell_text import Segment, Text, joined, plain

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_ITEMS = 10_000


def printed(words: list[Text], given: Text | None) -> Text | None:
    """The output of a command whose words are sure; `given` is its standard input."""
    name = os.path.basename(plain(words[0]))
    command = _COMMANDS.get(name)
    if command is None or (given is not None and any(segment.why is not None for segment in given)):
        return None
    try:
        return command(words[1:], given)
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError, RecursionError, Unknown, re.error):
        return None


def _made(text: str) -> Text:
    return (Segment(text, -1),)


def echo(words: list[Text]) -> Text:
    while words and plain(words[0]) in ("-n", "-e", "-ne", "-en", "-E"):
        words = words[1:]
    return (*joined(words), Segment("\n", -1))


def _printf(words: list[Text], given: Text | None) -> Text | None:
    form = plain(words[0])
    if re.fullmatch(r"(%s(\\n)?|%s[ ,])", form):
        tail = form[2:].replace("\\n", "\n")
        return tuple(segment for word in words[1:] for segment in (*word, Segment(tail, -1)))
    found = form.replace("\\n", "\n").replace("\\t", "\t")
    values = tuple(plain(word) for word in words[1:])
    if re.search(r"%[^%sd]", found.replace("%%", "")):
        return None
    return _made(found.replace("%d", "%s") % values)


def _cat(words: list[Text], given: Text | None) -> Text | None:
    return given if not words or plain(words[0]) == "-" else None


def _dirname(words: list[Text], given: Text | None) -> Text:
    path = plain(words[-1]).rstrip("/") or "/"
    return _made(os.path.dirname(path) or ("/" if path.startswith("/") else "."))


def _basename(words: list[Text], given: Text | None) -> Text:
    name = os.path.basename(plain(words[0]).rstrip("/"))
    suffix = plain(words[1]) if len(words) > 1 else ""
    return _made(name.removesuffix(suffix) if suffix and name != suffix else name)


def _path(words: list[Text], given: Text | None) -> Text | None:
    return _made(os.path.abspath(plain(words[-1]))) if os.path.isabs(plain(words[-1])) else None


def _expr(words: list[Text], given: Text | None) -> Text | None:
    found = compute(" ".join(plain(word) for word in words))
    return None if found is None else _made(str(found))


def _seq(words: list[Text], given: Text | None) -> Text:
    between = "\n"
    if words and plain(words[0]).startswith("-s"):
        between = plain(words[0])[2:] or plain(words[1])
        words = words[1:] if plain(words[0])[2:] else words[2:]
    numbers = [int(plain(word)) for word in words]
    first, step, last = {1: (1, 1, numbers[-1]), 2: (numbers[0], 1, numbers[-1])}.get(len(numbers)) or tuple(numbers)
    items = range(first, last + (1 if step > 0 else -1), step)
    if len(items) > _MAX_ITEMS:
        raise ValueError
    return _made(between.join(map(str, items)))


def _cut(words: list[Text], given: Text | None) -> Text | None:
    options = " ".join(plain(word) for word in words)
    sep = re.search(r"(?:^| )-d ?(?:'(.)'|\"(.)\"|(\S))", options)
    column = re.search(r"(?:^| )-f ?(\d+)(-?)(?= |$)", options)
    if column is None or given is None:
        return None
    mark = next((part for part in sep.groups() if part), "\t") if sep else "\t"
    index, rest = int(column.group(1)), column.group(2)
    out = []
    for line in plain(given).splitlines():
        parts = line.split(mark)
        picked = parts if len(parts) == 1 else parts[index - 1 :] if rest else parts[index - 1 : index]
        out.append(mark.join(picked))
    return _made("\n".join(out))


def _tr(words: list[Text], given: Text | None) -> Text | None:
    if given is None:
        return None
    classes = {"[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
               "A-Z": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "a-z": "abcdefghijklmnopqrstuvwxyz", "\\n": "\n", "\\t": "\t",
               "[:space:]": " \t\n"}  # fmt: skip
    sets = [classes.get(plain(word), plain(word)) for word in words if not plain(word).startswith("-")]
    if any("-" in one[1:-1] or "[:" in one for one in sets):
        return None
    text = plain(given)
    if plain(words[0]) == "-d":
        return _made(text.translate({ord(char): None for char in sets[0]}))
    if len(sets) != 2 or plain(words[0]).startswith("-"):
        return None
    new = sets[1] + sets[1][-1:] * (len(sets[0]) - len(sets[1]))
    return _made(text.translate({ord(a): b for a, b in zip(sets[0], new, strict=False)}))


def _sed(words: list[Text], given: Text | None) -> Text | None:
    program = plain(words[-1])
    mark = program[1:2]
    parts = program[2:].split(mark) if program[:1] == "s" and mark else []
    extended = len(words) == 2 and plain(words[0]) in ("-E", "-r")
    if given is None or len(parts) != 3 or parts[2] not in ("", "g") or not (extended or len(words) == 1):
        return None
    if re.search(r"[\\&]", parts[1]) or (not extended and re.search(r"[\\+?(){}|]", parts[0])):
        return None
    if re.search(r"[+*}]\)[+*{]", parts[0]) or not cheap(parts[0], len(plain(given))):
        return None
    lines = [re.sub(parts[0], lambda _: parts[1], line, count=parts[2] != "g") for line in plain(given).splitlines()]
    return _made("\n".join(lines))


def _wc(words: list[Text], given: Text | None) -> Text | None:
    if given is None or len(words) != 1:
        return None
    text = plain(given)
    found = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text)}.get(plain(words[0]))
    return None if found is None else _made(str(found))


def _head(words: list[Text], given: Text | None) -> Text | None:
    match = re.fullmatch(r"(?:-n ?)?-?(\d+)", " ".join(plain(word) for word in words) or "10")
    if given is None or match is None:
        return None
    return _made("\n".join(plain(given).splitlines()[: int(match.group(1))]))


def _bc(words: list[Text], given: Text | None) -> Text | None:
    if given is None or words:
        return None
    found = compute(plain(given).strip())
    return None if found is None or not re.fullmatch(r"[\d\s()*+/%-]+", plain(given)) else _made(str(found))


def _python(words: list[Text], given: Text | None) -> Text | None:
    """`python -c "print(...)"` of arithmetic."""
    match = re.fullmatch(r"\s*print\((.*)\)\s*", plain(words[1]), re.DOTALL) if plain(words[0]) == "-c" else None
    return None if match is None else _made(str(_value(ast.parse(match.group(1), mode="eval").body)))


def _awk(words: list[Text], given: Text | None) -> Text | None:
    """`awk 'BEGIN {print ...}'` and `BEGIN {printf "%.6g", ...}` of arithmetic."""
    match = re.fullmatch(
        r"""\s*BEGIN\s*\{\s*print(?:f\s+"%(\.\d+)?([dfg])(?:\\n)?",)?\s*(.*?)\s*;?\s*\}\s*""",
        plain(words[0]),
        re.DOTALL,
    )
    if match is None or len(words) != 1:
        return None
    digits, kind, expression = match.groups()
    found = _value(ast.parse(expression, mode="eval").body)
    if kind == "d":
        return _made(str(int(found)))
    return _made(format(found, f"{digits or '.6'}{kind or 'g'}"))


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {"int": int, "round": round, "max": max, "min": min, "float": float, "abs": abs,
                                        "sqrt": math.sqrt, "exp": math.exp, "log": math.log}  # fmt: skip


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return _CALLS[node.func.id](*map(_value, node.args))
    raise ValueError


_COMMANDS: dict[str, Callable[[list[Text], Text | None], Text | None]] = {
    "echo": lambda words, given: echo(words), "printf": _printf, "cat": _cat, "dirname": _dirname,
    "basename": _basename, "realpath": _path, "readlink": _path, "expr": _expr, "seq": _seq, "cut": _cut, "tr": _tr,
    "sed": _sed, "wc": _wc, "head": _head, "bc": _bc, "python": _python, "python3": _python, "awk": _awk,
    "xargs": lambda words, given: None if words or given is None else _made(" ".join(plain(given).split())),
}  # fmt: skip
PRINTERS = frozenset(_COMMANDS)
