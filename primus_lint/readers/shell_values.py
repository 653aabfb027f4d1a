"""The value of one expansion: variables with their operators, arrays, arithmetic, commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.readers.shell_compute import Unknown, cheap, compute, glob
from primus_lint.readers.shell_lexer import Lexer, Piece, Word
from primus_lint.readers.shell_text import HOLE, Segment, Text, Unit, capped, joined, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# What a shell or a system always sets, to values that only a run can know.
_SYSTEM = frozenset(("HOME", "PWD", "OLDPWD", "USER", "LOGNAME", "HOSTNAME", "UID", "EUID", "PPID", "RANDOM", "SECONDS",
                     "LINENO", "PATH", "SHELL", "TMPDIR", "?", "$", "!", "-"))  # fmt: skip
_SHOWN = 60


class Values:
    """The variables of a shell and what expansions make of them. `env` are the values that the caller gives.

    `asked` collects the variables without value that a condition looked at; `trace` every variable that was read."""

    def __init__(self, env: Mapping[str, str], path: str) -> None:
        self.env = env
        self.variables: dict[str, Text] = {
            name: (Segment(value, -1),) for name, value in env.items() if not name.isdecimal()
        }
        self.arrays: dict[str, dict[str, Text]] = {}
        self.positional: list[Text] = []
        while str(len(self.positional) + 1) in env:
            self.positional.append((Segment(env[str(len(self.positional) + 1)], -1),))
        self.given_positional = True  # the positional parameters are those of the script itself
        self.path = path
        self.used: dict[str, str | None] = {}
        self.trace: set[str] = set()
        self.asked: set[str] = set()
        self.as_shell = False  # a variable without value is empty (in conditions), not something to be given

    def output(self, unit: Unit, start: int, end: int, shown: str) -> Text:
        """What a command prints; the evaluator knows commands."""
        raise NotImplementedError

    def text(self, unit: Unit, pieces: Sequence[Piece]) -> Text:
        """Pieces after expansion, without splitting (an assignment, quotes)."""
        found: list[Segment] = []
        for piece in pieces:
            if piece.kind == "text":
                found.extend(unit.cut(piece.start, piece.end))
            else:
                found.extend(joined(self.values(unit, piece)[0]))
        return capped(tuple(found))

    def word_text(self, word: Word) -> Text:
        return self.text(word.unit, word.pieces)

    # one expansion

    def values(self, unit: Unit, piece: Piece) -> tuple[list[Text], bool]:
        """The texts of an expansion, and whether they stay words of their own even in quotes (`[@]`)."""
        raw = unit.text[piece.start : piece.end]
        if piece.kind == "arith":
            return [self.arithmetic_text(unit, *piece.inner)], False
        if piece.kind == "command":
            return [self.output(unit, *piece.inner, shown=raw[:_SHOWN])], False
        if piece.kind == "unknown":
            return [(Segment(raw, unit.place(piece.start), None, raw[:_SHOWN]),)], False
        if piece.subscript in ("@", "*"):
            return self._all(unit, piece, raw)
        return [self._seen(self._one(unit, piece, raw))], False

    def _seen(self, text: Text) -> Text:
        """In a condition, variables without value are empty as for a shell, and remembered."""
        if not self.as_shell:
            return text
        for segment in text:
            if segment.unset and segment.why is not None:
                self.asked.add(segment.why.removeprefix("$"))
        return tuple(segment for segment in text if not segment.unset)

    def _all(self, unit: Unit, piece: Piece, raw: str) -> tuple[list[Text], bool]:
        items = self.positional if piece.name in ("@", "*") else self._items(piece.name)
        if items is None:
            if piece.op[-1:] in ("-", "+") or piece.flag:
                items = []
            elif piece.name in self.variables:
                items = [self.lookup(unit, piece.name, piece) or ()]
            else:
                return [self._seen((self._open(unit, piece, piece.name),))], False
        if piece.flag == "!":
            items = [(Segment(key, -1),) for key in self.arrays.get(piece.name, {})]
        elif piece.flag == "#":
            if piece.name in ("@", "*") and self.given_positional:
                self.asked.add("#")
            why = next((s.why for item in items for s in item if s.text == f"${{{piece.name}[@]}}"), None)
            return [(Segment(raw if why else str(len(items)), -1, piece.name, why),)], False
        elif piece.op == ":":
            bounds = self._bounds(unit, piece)
            if bounds is not None:
                first, count = bounds
                first = max(first - 1, 0) if piece.name in ("@", "*") else first
                items = items[first:] if count is None else items[first : first + count]
        elif piece.op in ("-", ":-") and not items:
            return [self.text(unit, piece.argument)], False
        elif piece.op in ("+", ":+"):
            return ([self.text(unit, piece.argument)] if items else []), True
        elif piece.op:
            items = [self._operate(unit, piece, item, raw) for item in items]
        if piece.subscript == "*" and piece.quoted:
            return [joined(items)], False
        return list(items), True

    def _items(self, name: str) -> list[Text] | None:
        self.trace.add(name)
        found = self.arrays.get(name)
        return None if found is None else list(found.values())

    def _one(self, unit: Unit, piece: Piece, raw: str) -> Text:
        name = piece.name
        if piece.flag == "!":
            target = self.lookup(unit, name, piece)
            if target is None or any(segment.why for segment in target):
                return (Segment(raw, unit.place(piece.start), None, raw),)
            name = plain(target)
        if name == "#" or (piece.flag == "#" and not name):
            if self.given_positional:
                self.asked.add("#")
            return (Segment(str(len(self.positional)), -1),)
        value = self._element(unit, piece) if piece.subscript is not None else self.lookup(unit, name, piece)
        if name in self.env or piece.op[-1:] in ("-", "=", "+"):
            self.used[name] = self.env.get(name)
        if piece.op:
            return self._operated(unit, piece, name, value, raw)
        if value is None:
            return (self._open(unit, piece, name),)
        if piece.flag == "#":
            why = next((segment.why for segment in value if segment.why), None)
            return (Segment(str(len(plain(value))), -1, name, why),)
        return tuple(segment if segment.variable else segment._replace(variable=name) for segment in value)

    def _open(self, unit: Unit, piece: Piece, name: str) -> Segment:
        """The place of a variable that has no value."""
        raw = unit.text[piece.start : piece.end]
        return Segment(raw, unit.place(piece.start), name, f"${name}", name not in _SYSTEM)

    def lookup(self, unit: Unit, name: str, piece: Piece) -> Text | None:
        self.trace.add(name)
        if name in self.variables:
            return self.variables[name]
        if name in self.arrays:
            return next(iter(self.arrays[name].values()), ())
        if name.isdecimal():
            index = int(name) if len(name) < 6 else 0
            if index == 0:
                return (Segment(self.path, -1),)
            return self.positional[index - 1] if index <= len(self.positional) else None
        if name == "BASH_SOURCE":
            return (Segment(self.path, -1),)
        return None

    def _element(self, unit: Unit, piece: Piece) -> Text | None:
        if piece.name == "BASH_SOURCE":
            return (Segment(self.path, -1),)
        self.trace.add(piece.name)
        found = self.arrays.get(piece.name, {})
        if not found:
            return self.lookup(unit, piece.name, piece) if piece.subscript == "0" else None
        text = self.text(
            Unit((Segment(piece.subscript or "", -1),)), Lexer(Unit((Segment(piece.subscript or "", -1),))).inside(True)
        )
        key = plain(text).strip("'\"")
        if key in found:
            return found[key]
        try:
            number = compute(key, self.number_of)
        except Unknown:
            return None
        if number is not None and number < 0:
            keys = list(found)
            return found[keys[number]] if -number <= len(keys) else None
        return found.get(str(number))

    # operators

    def _operated(self, unit: Unit, piece: Piece, name: str, value: Text | None, raw: str) -> Text:
        op = piece.op
        empty = value is None or all(segment.unset or (segment.why is None and not segment.text) for segment in value)
        missing = empty if op[:1] == ":" else value is None or (bool(value) and all(s.unset for s in value))
        if op in ("-", ":-", "=", ":="):
            if not missing:
                return tuple(s if s.variable else s._replace(variable=name) for s in value or ())
            default = tuple(s._replace(variable=s.variable or name) for s in self.text(unit, piece.argument))
            default = tuple(s if s.why is not None else s._replace(variable=name) for s in default)
            if op[-1] == "=":
                self.variables[name] = default
            return default
        if op in ("+", ":+"):
            return () if missing else self.text(unit, piece.argument)
        if op in ("?", ":?"):
            return (self._open(unit, piece, name),) if missing else value or ()
        if value is None:
            return (self._open(unit, piece, name),)
        return self._operate(unit, piece, value, raw)

    def _operate(self, unit: Unit, piece: Piece, value: Text, raw: str) -> Text:
        """`#`, `%`, `/`, `:offset`, `^`, `,`, `@` on a value."""
        if piece.op != "@" and any(segment.why is not None for segment in value):
            why = next(segment.why for segment in value if segment.why is not None)
            return (Segment(raw, -1, piece.name, why, all(segment.unset for segment in value)),)
        whole, op = plain(value), piece.op
        if op == ":":
            bounds = self._bounds(unit, piece)
            if bounds is None:
                return (Segment(raw, -1, piece.name, raw),)
            first, count = bounds
            first = max(len(whole) + first, 0) if first < 0 else min(first, len(whole))
            end = len(whole) if count is None else len(whole) + count if count < 0 else first + count
            return Unit(value).cut(first, max(min(end, len(whole)), first))
        if op in ("^", "^^", ",", ",,"):
            change = str.upper if op[0] == "^" else str.lower
            return (Segment(change(whole) if len(op) == 2 else change(whole[:1]) + whole[1:], -1, piece.name),)
        if op == "@":
            quotes = plain(self.text(unit, piece.argument)) == "Q" and "'" not in whole
            return (Segment("'", -1), *value, Segment("'", -1)) if quotes else value
        argument = self.text(unit, piece.argument)
        hard = len(whole) > 4096 or not cheap(plain(argument), len(whole))
        if any(segment.why is not None for segment in argument) or hard:
            return (Segment(raw, -1, piece.name, raw),)
        if op in ("#", "##", "%", "%%"):
            return _trim(value, whole, op, plain(argument))
        old, _, new = _slash(plain(argument))
        head = {"/#": r"\A", "/%": ""}.get(op, "")
        tail = r"\Z" if op == "/%" else ""
        found = re.sub(head + glob(old) + tail, lambda _: new, whole, count=0 if op == "//" else 1, flags=re.DOTALL)
        return (Segment(found, -1, piece.name),) if old else value

    def _bounds(self, unit: Unit, piece: Piece) -> tuple[int, int | None] | None:
        argument = self.text(unit, piece.argument)
        if any(segment.why is not None for segment in argument):
            return None
        first, colon, count = plain(argument).partition(":")
        try:
            start, length = compute(first, self.number_of), compute(count, self.number_of) if colon else None
        except Unknown:
            return None
        return None if start is None else (start, length)

    # arithmetic

    def arithmetic(self, unit: Unit, start: int, end: int) -> tuple[int | None, str | None]:
        """The value of an expression between two offsets, and what it waits for. (None, None): the shell refuses it."""
        text = self.text(unit, Lexer(unit, start, end).inside(True))
        why = next((segment.why for segment in text if segment.why is not None), None)
        if why is not None:
            return None, why
        waits: list[str] = []
        try:
            return compute(plain(text), lambda name: self.number_of(name, waits), self._put_number), None
        except Unknown:
            return None, waits[0] if waits else f"$(({unit.text[start:end][:_SHOWN]}))"

    def arithmetic_text(self, unit: Unit, start: int, end: int) -> Text:
        value, why = self.arithmetic(unit, start, end)
        if value is not None:
            return (Segment(str(value), -1),)
        raw = f"$(({unit.text[start:end]}))"
        return (Segment(raw.replace(HOLE, "?"), -1, None, why or raw),)

    def number_of(self, name: str, waits: list[str] | None = None) -> int:
        """The number that a variable holds; 0 for an empty one. Raises Unknown."""
        self.trace.add(name)
        value = self.variables.get(name)
        if value is None and name in self.arrays:
            value = next(iter(self.arrays[name].values()), ())
        why = f"${name}" if value is None else next((segment.why for segment in value if segment.why is not None), None)
        if why is not None and self.as_shell and (value is None or all(segment.unset for segment in value)):
            self.asked.add(why.removeprefix("$"))
            return 0
        if why is not None:
            if waits is not None:
                waits.append(why)
            raise Unknown
        text = plain(value or ())
        if not text.strip():
            return 0
        if re.fullmatch(r"\s*-?\d{1,18}\s*", text):
            return int(text)
        number = compute(text)
        if number is None:
            raise Unknown
        return number

    def _put_number(self, name: str, value: int) -> None:
        self.variables[name] = (Segment(str(value), -1),)


def _trim(value: Text, whole: str, op: str, argument: str) -> Text:
    """The value without the shortest (`#`, `%`) or longest (`##`, `%%`) head or tail that a pattern matches."""
    shape = re.compile(glob(argument), re.DOTALL)
    lengths = range(len(whole) + 1) if len(op) == 1 else range(len(whole), -1, -1)
    for length in lengths:
        if op[0] == "#" and shape.fullmatch(whole, 0, length):
            return Unit(value).cut(length, len(whole))
        if op[0] == "%" and shape.fullmatch(whole, len(whole) - length):
            return Unit(value).cut(0, len(whole) - length)
    return value


def _slash(text: str) -> tuple[str, str, str]:
    """Pattern and replacement at the first slash that is not escaped."""
    match = re.match(r"((?:[^/\\]|\\.)*)/?(.*)", text, re.DOTALL)
    return (match.group(1), "/", match.group(2)) if match else (text, "", "")
