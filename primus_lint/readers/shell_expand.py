"""Expansion of words: fields, texts, patterns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.readers.shell_compute import split_blanks
from primus_lint.readers.shell_lexer import Lexer, Piece, Word
from primus_lint.readers.shell_text import Segment, Text, Unit, capped, plain, waits_for
from primus_lint.readers.shell_values import Values

if TYPE_CHECKING:
    from primus_lint.readers.shell_lexer import Heredoc

_MAX_BRACES = 1_000
_SOMETHING = (Piece("arith", 0, 0, True, inner=(0, 0)),)  # stands for an alternative that is not looked at


class Expander(Values):
    def fields(self, word: Word) -> list[Text]:
        """A word after expansion and field splitting."""
        if "{" in word.keyword and len(several := braces(word.keyword)) > 1:
            return [(Segment(text, -1),) for text in several]
        fields: list[list[Segment]] = [[]]
        started = False
        for piece in word.pieces:
            if piece.kind == "text":
                cut = word.unit.cut(piece.start, piece.end)
                for segment in cut:
                    fields[-1].append(segment)
                started = started or piece.quoted or bool(cut)
                continue
            if piece.op in ("+", ":+") and not piece.quoted:
                started = self._alternative(word.unit, piece, fields) or started
                continue
            items, apart = self.values(word.unit, piece)
            if piece.quoted and not (apart and not items):
                started = True
            for index, item in enumerate(items):
                if index and fields[-1]:
                    fields.append([])
                if piece.quoted:
                    fields[-1].extend(item or (Segment("", -1),) if apart else item)
                elif self._split(item, fields):
                    started = True
        if len(fields) > 1 and not fields[-1]:
            fields.pop()
        return [capped(tuple(field)) for field in fields] if started else []

    def _alternative(self, unit: Unit, piece: Piece, fields: list[list[Segment]]) -> bool:
        """`${NAME+words}`: words of their own, as far as they are quoted. Whether there was anything."""
        present = self.values(unit, piece._replace(argument=_SOMETHING))[0]
        if not any(present):
            return False
        started = False
        for part in piece.argument:
            if part.kind == "text" and not part.quoted:
                started = self._split(unit.cut(part.start, part.end), fields) or started
                continue
            for index, text in enumerate(self.fields(Word(unit, (part,), part.start, part.end))):
                if index and fields[-1]:
                    fields.append([])
                fields[-1].extend(text)
                started = True
        return started

    def _split(self, text: Text, fields: list[list[Segment]]) -> bool:
        """Append a text to the fields, split at blanks; whether there was anything."""
        started = False
        for segment in text:
            if segment.why is not None:
                fields[-1].append(segment)
                started = True
                continue
            for part, offset, new in split_blanks(segment.text):
                if new and fields[-1]:
                    fields.append([])
                if part:
                    start = segment.start + offset if segment.start >= 0 else -1
                    fields[-1].append(segment._replace(text=part, start=start))
                    started = True
        return started

    def body(self, unit: Unit, heredoc: Heredoc) -> Text:
        """The text of a here-document."""
        if not heredoc.expands:
            return unit.cut(heredoc.start, heredoc.end)
        return self.text(unit, Lexer(unit, heredoc.start, heredoc.end).inside(True))

    def pattern_of(self, word: Word) -> str | None:
        """A word as a pattern: what is quoted stands for itself. None: not known."""
        out = []
        for piece in word.pieces:
            text = self.text(word.unit, (piece,))
            if waits_for(text) is not None:
                return None
            raw = plain(segment for segment in text if segment.why is None)  # type: ignore[arg-type]
            out.append(re.sub(r"([*?\[\]\\])", r"\\\1", raw) if piece.quoted else raw)
        return "".join(out)


def braces(text: str) -> list[str]:
    """`a{1..3}b`, `a{x,y}b` of one word without expansions, at most _MAX_BRACES of them; else the word itself."""
    match = re.match(r"([^{}]*)\{(?:(-?\d{1,9})\.\.(-?\d{1,9})|([^{}]*,[^{}]*))\}(.*)", text, re.DOTALL)
    if match is None:
        return [text]
    head, first, last, items, tail = match.groups()
    if items is not None:
        middle = items.split(",")
    else:
        a, b = int(first), int(last)
        if abs(b - a) >= _MAX_BRACES:
            return [text]
        width = max(len(first), len(last)) if re.match(r"-?0\d", first) or re.match(r"-?0\d", last) else 0
        middle = [str(n).zfill(width) for n in range(a, b + (1 if b >= a else -1), 1 if b >= a else -1)]
    found = [head + one + rest for one in middle for rest in braces(tail)]
    return found if len(found) <= _MAX_BRACES else [text]
