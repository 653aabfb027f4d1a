"""Texts of a shell that remember where each of their parts is written."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOLE = "\ue000"  # stands in a unit's text for a part that is not known
MAX_SEGMENTS = 4_000  # of one variable: A="$A$A" doubles each time
MAX_CHARS = 1 << 19


class Segment(NamedTuple):
    """A run of text. `start` is its place in the script (-1: computed or from outside), `variable` the variable that
    it came through. `why` names what the value waits for (a variable, a command); None: the text is sure. `unset`: a
    variable without value, where a shell puts nothing. `way`: of a text that hangs on an undecided condition, what it is
    where the condition does not hold."""

    text: str
    start: int
    variable: str | None = None
    why: str | None = None
    unset: bool = False
    way: tuple[Segment, ...] | None = None


Text = tuple[Segment, ...]


class Field(NamedTuple):
    """A word of a command after expansion. `start`..`end` is its place when it is one run of the script, else -1;
    `at` is a place to point at; `unknown` names what a part of it waits for. `way`: flags (or nothing) that stand for it
    where an undecided condition does not hold."""

    text: str
    start: int
    end: int
    at: int
    variable: str | None = None
    unknown: str | None = None
    unset: bool = False
    way: Text | None = None


class Unit:
    """A text to be parsed: the script, or what `eval`, `bash -c` and `source` read. It maps places back."""

    __slots__ = ("segments", "starts", "text")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = [segment for segment in segments if segment.text or segment.why is not None]
        self.text = "".join(segment.text if segment.why is None else HOLE for segment in self.segments)
        self.starts = [0]
        for segment in self.segments:
            self.starts.append(self.starts[-1] + (len(segment.text) if segment.why is None else 1))

    def cut(self, start: int, end: int) -> Text:
        """The part between two offsets."""
        found: list[Segment] = []
        index = max(bisect_right(self.starts, start) - 1, 0)
        while index < len(self.segments) and self.starts[index] < end:
            segment, first = self.segments[index], self.starts[index]
            if segment.why is None:
                a, b = max(start - first, 0), min(end - first, len(segment.text))
                if a < b:
                    place = segment.start + a if segment.start >= 0 else -1
                    found.append(segment._replace(text=segment.text[a:b], start=place))
            else:
                found.append(segment)
            index += 1
        return tuple(found)

    def place(self, offset: int) -> int:
        """The place in the script of an offset, -1 when it is not written there."""
        index = bisect_right(self.starts, offset) - 1
        if not 0 <= index < len(self.segments) or self.segments[index].start < 0:
            return -1
        return self.segments[index].start + offset - self.starts[index]


def plain(text: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in text)


def waits_for(text: Sequence[Segment]) -> str | None:
    """What a text waits for, None when it is sure. Variables without value are no reason here."""
    return next((segment.why for segment in text if segment.why is not None and not segment.unset), None)


def capped(text: Text) -> Text:
    """At most MAX_SEGMENTS runs and MAX_CHARS characters of a text."""
    text = text[:MAX_SEGMENTS]
    room = MAX_CHARS
    for index, segment in enumerate(text):
        room -= len(segment.text)
        if room < 0:
            return text[:index]
    return text


def joined(texts: Sequence[Text]) -> Text:
    """Texts with a blank between them."""
    found: list[Segment] = []
    for index, text in enumerate(texts):
        if index:
            found.append(Segment(" ", -1))
        found.extend(text)
    return tuple(found)


def field_of(text: Text, at: int) -> Field:
    open_part = next((segment for segment in text if segment.why is not None), None)
    variable = next((segment.variable for segment in text if segment.variable), None)
    start = end = -1
    filled = [segment for segment in text if segment.text]
    if filled and filled[0].start >= 0:
        at = filled[0].start
        start, end = at, at
        for segment in filled:
            if segment.start != end:
                start = end = -1
                break
            end = segment.start + len(segment.text)
    if open_part is None:
        return Field(plain(text), start, end, at, variable)
    return Field(plain(text), start, end, at, variable, open_part.why, open_part.unset, _flags(text, open_part))


def _flags(text: Text, part: Segment) -> Text | None:
    """The other way of a word that is nothing else, where it is flags or nothing."""
    way = part.way
    return (
        way
        if way is not None and len(text) == 1 and (not plain(way).strip() or plain(way).lstrip()[:2] == "--")
        else None
    )


def split_field(field: Field) -> list[Field]:
    """The words inside one field (a command line that some launcher takes as one word)."""
    found = []
    for match in re.finditer(r"\S+", field.text):
        place = (field.start + match.start(), field.start + match.end()) if field.start >= 0 else (-1, -1)
        at = place[0] if place[0] >= 0 else field.at
        unknown = field.unknown if field.unknown and ("$" in match.group() or "`" in match.group()) else None
        if unknown and field.unset and (name := re.fullmatch(r"\$\{?(\w+)\}?", match.group())):
            unknown = "$" + name.group(1)
        found.append(Field(match.group(), *place, at, field.variable, unknown, field.unset and unknown is not None))
    return found
