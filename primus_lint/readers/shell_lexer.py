"""Words of a shell script, with their places."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from primus_lint.readers.shell_text import Unit

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BRACED = re.compile(r"([#!]?)(\w+|[@*#?])(?:\[([^\]]*)\])?", re.ASCII)
_OPS = re.compile(r":[-=+?]|[-=+?]|:|##|%%|#|%|//|/#|/%|/|\^\^|,,|\^|,|@")
_FD = re.compile(r"\d+(?=[<>])")
_BLANK = " \t\r"
_BREAK = _BLANK + "\n;&|<>()"
_OPERATORS = (
    ";;&", "<<<", "<<-", "&>>", ";;", ";&", "&&", "||", "|&", "<<", ">>", ">&", "<&", "<>", "&>", ">|",
)  # fmt: skip
_MAX_DEPTH = 20  # of ${A:-${B:-...}}


class Piece(NamedTuple):
    """A part of a word, between two offsets of its unit. kind: "text" (equal to the unit there), "var" (`name`, its
    `subscript` as written, `flag` "#" or "!", `op` and what follows it as `argument`), "arith" and "command" (the inside
    lies between `inner`), "unknown"."""

    kind: str
    start: int
    end: int
    quoted: bool
    name: str = ""
    subscript: str | None = None
    flag: str = ""
    op: str = ""
    argument: tuple[Piece, ...] = ()
    inner: tuple[int, int] = (0, 0)


class Word(NamedTuple):
    unit: Unit
    pieces: tuple[Piece, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """The text of a word without any expansion, else None."""
        if all(piece.kind == "text" for piece in self.pieces):
            return "".join(self.unit.text[piece.start : piece.end] for piece in self.pieces)
        return None

    @property
    def keyword(self) -> str:
        """The text of a word that is not quoted anywhere, else ""."""
        if len(self.pieces) == 1 and self.pieces[0].kind == "text" and not self.pieces[0].quoted:
            return self.unit.text[self.start : self.end]
        return ""


def behind(word: Word, offset: int) -> Word:
    """The part of a word from an offset on (the value of an assignment)."""
    pieces: list[Piece] = []
    for piece in word.pieces:
        if piece.start < offset:
            if piece.end <= offset:
                continue
            piece = piece._replace(start=offset)
        pieces.append(piece)
    return Word(word.unit, tuple(pieces), offset, word.end)


class Heredoc:
    """`<<MARK`: the body lies between `start` and `end` once the line has ended. `expands`: variables hold in it."""

    __slots__ = ("end", "expands", "mark", "start", "strip")

    def __init__(self, mark: str, strip: bool, expands: bool) -> None:
        self.mark, self.strip, self.expands = mark, strip, expands
        self.start = self.end = 0

    @classmethod
    def of(cls, target: Word, strip: bool) -> Heredoc:
        """The here-document of the word behind `<<` (or `<<-`: `strip`)."""
        text = target.unit.text
        mark = "".join(text[piece.start : piece.end] for piece in target.pieces)
        return cls(mark, strip, not any(piece.quoted for piece in target.pieces))


class Lexer:
    """Words and operators of a unit, between two offsets. A token is a Word or a string (the operator)."""

    def __init__(self, unit: Unit, start: int = 0, end: int | None = None, depth: int = 0) -> None:
        self.unit = unit
        self.text = unit.text if end is None else unit.text[:end]
        self.at = start
        self.depth = depth
        self.heredocs: list[Heredoc] = []
        self.comments: list[tuple[int, int]] = []
        self.stream = ""  # the number before a redirection: the 2 of `2>`
        self.unclosed: int | None = None  # where a quote begins that nothing ends

    def token(self) -> Word | str | None:
        text = self.text
        self.stream = ""
        while self.at < len(text):
            char = text[self.at]
            if char in _BLANK:
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text.startswith("\\\r\n", self.at):
                self.at += 3
            elif char == "#":
                end = text.find("\n", self.at)
                end = len(text) if end < 0 else end
                self.comments.append((self.at, end))
                self.at = end
            elif char == "\n":
                self.at += 1
                self._bodies()
                return "\n"
            elif char in "<>" and text.startswith("(", self.at + 1):  # <(command)
                start, self.at = self.at, closing(text, self.at + 2, ")")
                return Word(self.unit, (Piece("unknown", start, self.at, False),), start, self.at)
            elif char in ";&|<>()":
                return self._operator()
            elif char.isdigit() and (number := _FD.match(text, self.at)):
                self.at, self.stream = number.end(), number.group()
            else:
                return self.word()
        return None

    def _operator(self) -> str:
        for op in _OPERATORS:
            if self.text.startswith(op, self.at):
                self.at += len(op)
                return op
        self.at += 1
        return self.text[self.at - 1]

    def _bodies(self) -> None:
        """Take the bodies of the here-documents of the line that ended."""
        for heredoc in self.heredocs:
            heredoc.start = heredoc.end = self.at
            goes_on = False  # a backslash joins the line, and a mark on it is none
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].rstrip("\r")
                heredoc.end = self.at
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if heredoc.strip else line) == heredoc.mark and not goes_on:
                    break
                goes_on = heredoc.expands and (len(line) - len(line.rstrip("\\"))) % 2 == 1
                heredoc.end = self.at
        self.heredocs = []

    def word(self, stops: str = _BREAK) -> Word:
        start = self.at
        pieces: list[Piece] = []
        while self.at < len(self.text) and self.text[self.at] not in stops:
            self._piece(pieces, False, stops)
        if self.at == start:
            self.at += 1
        return Word(self.unit, tuple(pieces), start, self.at)

    def inside(self, quoted: bool) -> tuple[Piece, ...]:
        """All that is left, as the inside of double quotes (of a here-document, of an arithmetic expression)."""
        pieces: list[Piece] = []
        while self.at < len(self.text):
            self._piece(pieces, quoted, "")
        return tuple(pieces)

    def _piece(self, pieces: list[Piece], quoted: bool, stops: str) -> None:
        text, at = self.text, self.at
        char = text[at]
        if char == "$":
            self._dollar(pieces, quoted)
        elif char == "`":
            end = _backquote(text, at + 1)
            self.at = min(end + 1, len(text))
            pieces.append(Piece("command", at, self.at, quoted, inner=(at + 1, end)))
        elif char == "'" and not quoted:
            end = text.find("'", at + 1)
            if end < 0:
                self.unclosed, end = at, len(text)
            pieces.append(Piece("text", at + 1, end, True))
            self.at = min(end + 1, len(text))
        elif char == '"' and not quoted:
            self._double(pieces)
        elif char == "\\":
            follow = text[at + 1 : at + 2]
            self.at += 2
            if follow == "\r" and text[at + 2 : at + 3] == "\n":
                self.at += 1
            elif follow != "\n":
                keep = quoted and follow not in '$`"\\'
                pieces.append(Piece("text", at if keep else at + 1, min(at + 2, len(text)), True))
        else:
            stop = '$`"\\' if quoted else stops + "$`'\"\\"
            end = at + 1
            while end < len(text) and text[end] not in stop:
                end += 1
            pieces.append(Piece("text", at, end, quoted))
            self.at = end

    def _double(self, pieces: list[Piece]) -> None:
        start = self.at
        self.at += 1
        count = len(pieces)
        while self.at < len(self.text) and self.text[self.at] != '"':
            self._piece(pieces, True, "")
        if self.at >= len(self.text):
            self.unclosed = start
        if len(pieces) == count:  # "" is a word of its own
            pieces.append(Piece("text", self.at, self.at, True))
        self.at = min(self.at + 1, len(self.text))

    def _dollar(self, pieces: list[Piece], quoted: bool) -> None:
        text, at = self.text, self.at
        if text.startswith("$((", at) and (end := double_bracket(text, at + 3)) is not None:
            self.at = end + 2
            pieces.append(Piece("arith", at, self.at, quoted, inner=(at + 3, end)))
        elif text.startswith("$(", at):
            self.at = closing(text, at + 2, ")")
            pieces.append(Piece("command", at, self.at, quoted, inner=(at + 2, max(at + 2, self.at - 1))))
        elif text.startswith("${", at):
            self.at = closing(text, at + 2, "}", quoted)
            pieces.append(self._braced(at, quoted))
        elif not quoted and text.startswith(("$'", '$"'), at):
            self.at += 1
        else:
            match = _NAME.match(text, at + 1)
            end = match.end() if match else min(at + 2, len(text))
            self.at = end
            name = text[at + 1 : end]
            known = match or (name and (name.isdecimal() or name in "@*#?$!-"))
            if known:
                index = name if name in ("@", "*") else None
                pieces.append(Piece("var", at, end, quoted, name, index))
            else:
                self.at = at + 1
                pieces.append(Piece("text", at, at + 1, quoted))

    def _braced(self, at: int, quoted: bool) -> Piece:
        end = self.at
        close = end - 1 if self.text[end - 1 : end] == "}" else end
        match = _BRACED.match(self.text, at + 2, close)
        if match is None or self.depth >= _MAX_DEPTH:
            return Piece("unknown", at, end, quoted)
        flag, name, index = match.groups()
        index = name if name in ("@", "*") else index
        op = ""
        argument: tuple[Piece, ...] = ()
        if match.end() < close:
            found = _OPS.match(self.text, match.end(), close)
            if found is None:
                return Piece("unknown", at, end, quoted)
            op = found.group()
            argument = self._argument(found.end(), close, quoted)
        return Piece("var", at, end, quoted, name, index, flag, op, argument)

    def _argument(self, start: int, end: int, quoted: bool) -> tuple[Piece, ...]:
        inner = Lexer(self.unit, start, end, self.depth + 1)
        pieces: list[Piece] = []
        while inner.at < end:
            if inner.text[inner.at] == '"':
                inner._double(pieces)
            else:
                inner._piece(pieces, quoted, "")
        return tuple(piece._replace(quoted=True) for piece in pieces) if quoted else tuple(pieces)


def closing(text: str, at: int, closer: str, quoted: bool = False) -> int:
    """Index behind the bracket that ends what begins at `at`; quotes and inner expansions are stepped over."""
    stack = ['"', closer] if quoted else [closer]
    base = len(stack) - 1
    while at < len(text):
        char = text[at]
        top = stack[-1]
        if char == "\\":
            at += 1
        elif char == top:
            stack.pop()
            if len(stack) == base:
                return at + 1
        elif text.startswith("$(", at) or text.startswith("${", at):
            stack.append(")" if text[at + 1] == "(" else "}")
            at += 1
        elif char == '"':
            stack.append('"')
        elif char == "'" and next((mark for mark in reversed(stack) if mark != "}"), "") != '"':
            end = text.find("'", at + 1)
            at = len(text) if end < 0 else end
        elif char == "(" and top == ")":
            stack.append(")")
        if len(stack) > 200:
            return len(text)
        at += 1
    return len(text)


def double_bracket(text: str, at: int) -> int | None:
    """Index of the `))` that ends an arithmetic expression; None when brackets close otherwise (a subshell)."""
    depth = 0
    while at < len(text):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            if depth == 0:
                return at if text.startswith("))", at) else None
            depth -= 1
        at += 1
    return None


def _backquote(text: str, at: int) -> int:
    while at < len(text) and text[at] != "`":
        at += 2 if text[at] == "\\" else 1
    return min(at, len(text))
