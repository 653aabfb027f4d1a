"""Follow a script as far as that is possible without running it: variables, arrays, simple conditions.

A value keeps the places of its parts, so that a flag's value can be found (and edited) where it is written.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.readers.shell_compute import compute, holds, split_blanks
from primus_lint.readers.shell_syntax import Assign, Choice, Command, Loop, Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.readers.shell_lexer import Piece, Word


class Segment(NamedTuple):
    """A run of text. `start` is its place in the script (-1: computed or from outside); `variable` the variable that
    it came through; `known` is false for what only a shell can know."""

    text: str
    start: int
    variable: str | None = None
    known: bool = True


class Field(NamedTuple):
    """A word of a command after expansion. `start`..`end` is its place when it is one run of the script, else -1;
    `at` is a place to point at; `unknown` names the variable that could not be resolved."""

    text: str
    start: int
    end: int
    at: int
    variable: str | None = None
    unknown: str | None = None


Text = tuple[Segment, ...]
_MAX_SEGMENTS = 4_000  # of one variable: A="$A$A" doubles each time
_MAX_COMMANDS = 10_000


class Shell:
    """The state of a script. `commands` collects the expanded commands in order; `exported` the exported variables;
    `maybe` the variables whose value hangs on a condition that cannot be decided."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.variables: dict[str, Text] = {name: (Segment(value, -1),) for name, value in env.items()}
        self.arrays: dict[str, list[Text]] = {}
        self.commands: list[list[Field]] = []
        self.exported: dict[str, Field] = {}
        self.maybe: set[str] = set()
        self.used: dict[str, str | None] = {}
        self.env = env

    def run(self, statements: Sequence[Statement], unsure: bool = False) -> None:
        for statement in statements:
            if isinstance(statement, Assign):
                self._assign(statement, unsure)
            elif isinstance(statement, Command):
                self._command(statement)
            elif isinstance(statement, Choice):
                self._choose(statement, unsure)
            elif isinstance(statement, Loop):
                if statement.variable:
                    self.variables.pop(statement.variable, None)
                    self.maybe.add(statement.variable)
                self.run(statement.body, True)

    def _assign(self, item: Assign, unsure: bool) -> None:
        name = item.name
        if item.array:
            fields = [field for word in item.words for field in self._texts(word)]
            self.arrays[name] = ((self.arrays.get(name, []) if item.append else []) + fields)[:_MAX_SEGMENTS]
        else:
            value = self._text(item.words[0].pieces) if item.words else ()
            if not item.append and not unsure:
                self.maybe.discard(name)
            old = self.variables.get(name, ()) if item.append else ()
            if unsure and not item.append:
                self.maybe.add(name)
            self.variables[name] = (old + value)[:_MAX_SEGMENTS]
            if item.exported:
                self.exported[name] = field_of(value, item.words[0].start if item.words else 0)

    def _command(self, item: Command) -> None:
        if item.words and item.words[0].literal == ":":  # : "${NAME:=default}"
            for word in item.words[1:]:
                self._texts(word)
            return
        fields: list[Field] = []
        for word in item.words:
            fields.extend(field_of(text, word.start) for text in self._texts(word))
        if fields and fields[0].text == "export":
            for field in fields[1:]:
                if field.text in self.variables:
                    self.exported[field.text] = field_of(self.variables[field.text], field.at)
            return
        if len(self.commands) < _MAX_COMMANDS:
            self.commands.append(fields)

    def _choose(self, item: Choice, unsure: bool) -> None:
        decided = True
        for condition, body in item.branches:
            true = True if condition is None else self._holds(condition, item.subject)
            if true is False and decided:
                continue
            if true is True and decided:
                self.run(body, unsure)
                return
            decided = False
            self.run(body, True)

    def _holds(self, words: Sequence[Word], subject: Word | None) -> bool | None:
        """Whether a condition holds; None: unknown."""
        if subject is not None:
            value = self._plain(subject)
            if value is None:
                return None
            patterns = [self._plain(word) for word in words]
            if any(pattern is not None and fnmatchcase(value, pattern) for pattern in patterns):
                return True
            return None if None in patterns else False
        texts = [self._plain(word) for word in words]
        if not texts or texts[0] not in ("[", "[[", "test") or None in texts:
            return None
        body = [text for text in texts[1:] if text not in ("]", "]]")]
        return holds([text or "" for text in body])

    def _plain(self, word: Word) -> str | None:
        text = self._text(word.pieces)
        if not all(segment.known for segment in text):
            return None
        return "".join(segment.text for segment in text)

    def _texts(self, word: Word) -> list[Text]:
        """A word after expansion and field splitting."""
        fields: list[list[Segment]] = [[]]
        started = False
        for piece in word.pieces:
            if piece.kind == "array" and piece.name in self.arrays:
                items = self.arrays[piece.name]
                for index, item in enumerate(items):
                    if index:
                        fields.append([])
                    fields[-1].extend(item)
                started = started or bool(items)
                continue
            for segment in self._expand(piece):
                if piece.quoted or piece.kind == "text" or not segment.known:
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
        if fields and not fields[-1] and len(fields) > 1:
            fields.pop()
        return [tuple(field) for field in fields] if started else []

    def _text(self, pieces: Sequence[Piece]) -> Text:
        found: list[Segment] = []
        for piece in pieces:
            if piece.kind == "array" and piece.name in self.arrays:
                for index, item in enumerate(self.arrays[piece.name]):
                    if index:
                        found.append(Segment(" ", -1))
                    found.extend(item)
            else:
                found.extend(self._expand(piece))
        return tuple(found)

    def _expand(self, piece: Piece) -> Text:
        if piece.kind == "text":
            return (Segment(piece.text, piece.start),)
        if piece.kind == "arith":
            number = self._arithmetic(piece.text)
            if number is None:
                return (Segment(piece.text, -1, f"$(({piece.text}))", False),)
            return (Segment(str(number), -1),)
        if piece.kind == "opaque":
            return (Segment(piece.text, piece.start, piece.text, False),)
        name = piece.name
        value = self.variables.get(name)
        if value is None and name in self.arrays and self.arrays[name]:
            value = self.arrays[name][0]
        if name in self.env or piece.op:
            self.used[name] = self.env.get(name)
        if value is not None and name in self.maybe:
            if name in self.env:
                return (Segment(self.env[name], -1, name),)
            return (Segment(piece.text, piece.start, name, False),)
        if value is not None and (value or not piece.op.startswith(":")):
            return tuple(segment if segment.variable else segment._replace(variable=name) for segment in value)
        if piece.op:
            default = tuple(segment._replace(variable=name) for segment in self._text(piece.default))
            if piece.op.endswith("="):
                self.variables[name] = default
            return default
        return (Segment(piece.text, piece.start, name, False),)

    def _arithmetic(self, text: str) -> int | None:
        def value(match: re.Match[str]) -> str:
            name = match.group(1) or match.group(2)
            segments = self.variables.get(name)
            if segments is None or name in self.maybe or not all(segment.known for segment in segments):
                return "?"
            return "".join(segment.text for segment in segments) or "0"

        plain = re.sub(r"\$?\{(\w+)\}|\$?\b([A-Za-z_]\w*)", value, text)
        return compute(plain)


def field_of(text: Text, at: int) -> Field:
    value = "".join(segment.text for segment in text)
    unknown = next((segment.variable or segment.text for segment in text if not segment.known), None)
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
    return Field(value, start, end, at, variable, unknown)


def split_field(field: Field) -> list[Field]:
    """The words inside one field (the command line handed to `bash -c` or `srun`)."""
    found = []
    for match in re.finditer(r"\S+", field.text):
        place = (field.start + match.start(), field.start + match.end()) if field.start >= 0 else (-1, -1)
        at = place[0] if place[0] >= 0 else field.at
        unknown = field.unknown if field.unknown and "$" in match.group() else None
        found.append(Field(match.group(), *place, at, field.variable, unknown))
    return found
