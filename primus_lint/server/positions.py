"""Character offsets of a text <-> positions of the language server protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

if TYPE_CHECKING:
    from primus_lint.source.text import SourceText

_UNIT_BYTES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


class Positions:
    """Positions in one text: lines from 0, characters from 0 in code units of the encoding that client and server
    agreed on (UTF-16 unless the client offers another)."""

    __slots__ = ("encoding", "source")

    def __init__(self, source: SourceText, encoding: str = "utf-16") -> None:
        self.source = source
        self.encoding = encoding if encoding in _UNIT_BYTES else "utf-16"

    def position(self, offset: int) -> types.Position:
        """The position of a character offset; past the end: the end."""
        line, column = self.source.position(offset)
        start = self.source.line_starts[line - 1]
        return types.Position(line - 1, self._units(self.source.text[start : start + column - 1]))

    def offset(self, position: types.Position) -> int:
        """The character offset of a position; past the end of its line: the end of the line."""
        starts = self.source.line_starts
        if position.line >= len(starts):
            return len(self.source.text)
        text = self.source.line_text(position.line + 1)
        if text.isascii():
            return starts[position.line] + min(position.character, len(text))
        units = count = 0
        for character in text:
            units += self._units(character)
            if units > position.character:
                break
            count += 1
        return starts[position.line] + count

    def range(self, start: int, end: int) -> types.Range:
        """The range of a span."""
        return types.Range(self.position(start), self.position(end))

    def first_line(self, start: int, end: int) -> types.Range:
        """The part of a span on its first line, one character at least."""
        line, column = self.source.position(start)
        stop = start - column + 1 + len(self.source.line_text(line))
        return self.range(start, max(min(end, stop), start + 1) if start < stop else start)

    def _units(self, text: str) -> int:
        if text.isascii():
            return len(text)
        codec = "utf-8" if self.encoding == "utf-8" else self.encoding + "-le"
        return len(text.encode(codec, "surrogatepass")) // _UNIT_BYTES[self.encoding]
