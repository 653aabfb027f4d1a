"""The shell's words, operators and expansions, with their places."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BRACED = re.compile(r"(\w+)(\[[@*]\])?(?:(:?[-=])(.*))?", re.ASCII | re.DOTALL)
_BLANK = " \t\r"
_BREAK = _BLANK + "\n;&|<>()"
_MAX_DEPTH = 20  # of ${A:-${B:-...}}


class Piece(NamedTuple):
    """A part of a word. kind: "text" (equal to the source between start and end), "var", "array", "arith", "opaque"
    (what only a shell can know). `name` is the variable, `op` and `default` those of `${NAME:-default}`."""

    kind: str
    text: str
    start: int
    end: int
    quoted: bool
    name: str = ""
    op: str = ""
    default: tuple[Piece, ...] = ()


class Word(NamedTuple):
    pieces: tuple[Piece, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """The text of a word without any expansion, else None."""
        if all(piece.kind == "text" for piece in self.pieces):
            return "".join(piece.text for piece in self.pieces)
        return None


class Lexer:
    """Words and operators of a text. A token is a Word or a string (the operator)."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.depth = depth
        self.heredocs: list[str] = []

    def token(self) -> Word | str | None:
        text = self.text
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
                self.at = len(text) if end < 0 else end
            elif char == "\n":
                self.at += 1
                self._skip_heredocs()
                return "\n"
            elif char in ";&|<>()":
                return self._operator()
            else:
                return self.word()
        return None

    def _operator(self) -> str:
        for op in (";;&", "<<<", "<<-", ";;", "&&", "||", "<<", ">>", ">&", "<&", "&>", ">|"):
            if self.text.startswith(op, self.at):
                self.at += len(op)
                return op
        self.at += 1
        return self.text[self.at - 1]

    def _skip_heredocs(self) -> None:
        for mark in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end].strip("\t\r")
                self.at = min(end + 1, len(self.text))
                if line == mark:
                    break
        self.heredocs = []

    def word(self) -> Word:
        start = self.at
        pieces: list[Piece] = []
        while self.at < len(self.text) and self.text[self.at] not in _BREAK:
            self._piece(pieces, False)
        if self.at == start:
            self.at += 1
        return Word(tuple(pieces), start, self.at)

    def _piece(self, pieces: list[Piece], quoted: bool) -> None:
        text, at = self.text, self.at
        char = text[at]
        if char == "$":
            self._dollar(pieces, quoted)
        elif char == "`":
            end = text.find("`", at + 1)
            self.at = len(text) if end < 0 else end + 1
            pieces.append(Piece("opaque", text[at : self.at], at, self.at, quoted))
        elif char == "'" and not quoted:
            end = text.find("'", at + 1)
            end = len(text) if end < 0 else end
            pieces.append(Piece("text", text[at + 1 : end], at + 1, end, True))
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
                start = at if keep else at + 1
                pieces.append(Piece("text", text[start : at + 2], start, min(at + 2, len(text)), True))
        else:
            stop = '$`"\\' if quoted else _BREAK + "$`'\"\\"
            end = at + 1
            while end < len(text) and text[end] not in stop:
                end += 1
            pieces.append(Piece("text", text[at:end], at, end, quoted))
            self.at = end

    def _double(self, pieces: list[Piece]) -> None:
        self.at += 1
        count = len(pieces)
        while self.at < len(self.text) and self.text[self.at] != '"':
            self._piece(pieces, True)
        if len(pieces) == count:  # "" is a word of its own
            pieces.append(Piece("text", "", self.at, self.at, True))
        self.at = min(self.at + 1, len(self.text))

    def _dollar(self, pieces: list[Piece], quoted: bool) -> None:
        text, at = self.text, self.at
        if text.startswith("$((", at):
            end = text.find("))", at)
            self.at = len(text) if end < 0 else end + 2
            pieces.append(Piece("arith", text[at + 3 : max(at + 3, self.at - 2)], at, self.at, quoted))
        elif text.startswith("$(", at):
            self.at = _matching(text, at + 1, "(", ")")
            pieces.append(Piece("opaque", text[at : self.at], at, self.at, quoted))
        elif text.startswith("${", at):
            self.at = _matching(text, at + 1, "{", "}")
            pieces.append(self._braced(text[at + 2 : self.at - 1], at, quoted))
        else:
            match = _NAME.match(text, at + 1)
            end = match.end() if match else min(at + 2, len(text))
            self.at = end
            name = text[at + 1 : end]
            special = name in ("@", "*", "?", "#", "$", "!")
            kind = "var" if match or name.isdecimal() else "opaque" if special else "text"
            pieces.append(Piece(kind, text[at:end], at, end, quoted, name))

    def _braced(self, inner: str, at: int, quoted: bool) -> Piece:
        end = self.at
        match = _BRACED.fullmatch(inner)
        if match is None or self.depth >= _MAX_DEPTH:
            return Piece("opaque", self.text[at:end], at, end, quoted)
        name, array, op, _ = match.groups()
        default: tuple[Piece, ...] = ()
        if op is not None:
            default = self._default(at + 2 + match.start(4), end - 1, quoted)
        return Piece("array" if array else "var", self.text[at:end], at, end, quoted, name, op or "", default)

    def _default(self, start: int, end: int, quoted: bool) -> tuple[Piece, ...]:
        inner = Lexer(self.text[:end], self.depth + 1)
        inner.at = start
        pieces: list[Piece] = []
        while inner.at < end:
            if self.text[inner.at] == '"':
                inner._double(pieces)
            else:
                inner._piece(pieces, True)
        return tuple(piece._replace(quoted=quoted) for piece in pieces)


def _matching(text: str, at: int, opener: str, closer: str) -> int:
    """Index behind the bracket that closes the one at `at`."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == opener:
            depth += 1
        elif char == closer:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)
