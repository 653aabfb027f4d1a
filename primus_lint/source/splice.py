"""Splices: the only way in which this package changes a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from primus_lint.source.text import Span


class Splice(NamedTuple):
    """Replace the characters start:end by `text`."""

    start: int
    end: int
    text: str


class EditError:
    """An edit that cannot be made; `message` says why. Returned, never raised."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"EditError({self.message!r})"


def apply_splices(text: str, splices: Iterable[Splice]) -> str | EditError:
    """The text with all splices made. Insertions at one place keep the order given; an overlap is an error."""
    parts: list[str] = []
    at = 0
    for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        if splice.start < at or not splice.start <= splice.end <= len(text):
            return EditError(f"edits overlap at character {splice.start}")
        parts += text[at : splice.start], splice.text
        at = splice.end
    return "".join(parts) + text[at:]


class Draft:
    """A text under several edits, one after the other, each with places in the text as it then stands.

    `splices()` says what they do together, in places of the original text.
    """

    __slots__ = ("_pieces", "original", "text")

    def __init__(self, text: str) -> None:
        self.original = text
        self.text = text
        self._pieces: list[Span | str] = [Span(0, len(text))]  # kept stretches of the original, and new text

    def apply(self, splices: Iterable[Splice]) -> EditError | None:
        """Make some splices, all with places in `text` as it is before the call."""
        todo = sorted(splices, key=lambda splice: (splice.start, splice.end))
        text = apply_splices(self.text, todo)
        if isinstance(text, EditError):
            return text
        pieces: list[Span | str] = []
        at = 0
        for splice in todo:
            pieces += self._cut(at, splice.start)
            pieces.append(splice.text)
            at = splice.end
        pieces += self._cut(at, len(self.text))
        self._pieces = pieces
        self.text = text
        return None

    def splices(self) -> list[Splice]:
        """All edits so far as splices of the original text."""
        result: list[Splice] = []
        at = 0
        new: list[str] = []
        for piece in [*self._pieces, Span(len(self.original), len(self.original))]:
            if isinstance(piece, str):
                new.append(piece)
                continue
            text = "".join(new)
            if text != self.original[at : piece.start]:
                result.append(Splice(at, piece.start, text))
            new = []
            at = piece.end
        return result

    def _cut(self, start: int, end: int) -> list[Span | str]:
        """The pieces that make up start:end of the present text."""
        cut: list[Span | str] = []
        at = 0
        for piece in self._pieces:
            length = len(piece) if isinstance(piece, str) else piece.end - piece.start
            low, high = max(start - at, 0), min(end - at, length)
            if low < high:
                cut.append(piece[low:high] if isinstance(piece, str) else Span(piece.start + low, piece.start + high))
            at += length
        return cut
