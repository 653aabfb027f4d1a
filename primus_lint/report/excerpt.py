"""One line of a file as a terminal can show it, and where the marks under it go."""

from __future__ import annotations

from primus_lint.tuples import NamedTuple

LIMIT = 160  # characters of a line that are shown
BEFORE = 60  # of them before a place that is farther to the right


class Excerpt(NamedTuple):
    """`line`, and the columns of the terminal before and under the marks."""

    line: str
    indent: int
    marks: int


def excerpt(text: str, start: int, length: int) -> Excerpt:
    """The part of a line with the place of `length` characters from `start` on. Control characters are shown as `?`, so
    that a file cannot write to the terminal; wide characters count as two columns."""
    text = printable(text.replace("\t", " "))
    begin = 0 if start < LIMIT else start - BEFORE
    lead = "..." if begin else ""
    shown = text[begin : begin + LIMIT]
    at = start - begin
    return Excerpt(lead + shown, len(lead) + width(shown[:at]), max(width(shown[at : at + length]), 1))


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)


def width(text: str) -> int:
    """Columns of a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
