"""A file's bytes as text, with everything needed to give the same bytes back.

Positions inside the package are offsets in characters of `SourceText.text`; lines, columns and byte offsets are
computed only when something is reported.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right

from primus_lint.tuples import NamedTuple

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)

STREAMS = ("/dev/fd/", "/dev/stdin", "/dev/null", "/proc/")


class Span(NamedTuple):
    """Half-open range of character offsets in `SourceText.text`."""

    start: int
    end: int


class Location(NamedTuple):
    """A span for people and for reports: lines and columns from 1 (in characters), bytes from 0 in the file."""

    line: int
    column: int
    end_line: int
    end_column: int
    byte_start: int
    byte_end: int


class Problem(NamedTuple):
    """Something wrong with the text itself.

    `fatal` means that PyYAML's safe loader refuses the file (or that we refuse it to stay within bounds), so that
    nothing behind it can be trusted; otherwise the tree is the one a training run would see.
    """

    code: str
    message: str
    span: Span
    related: tuple[tuple[str, Span], ...] = ()
    fatal: bool = True


class SourceText:
    """One file: its bytes, and its text without byte order mark.

    `newline` is the line break that inserted lines get: the commoner of the two in the file.
    `problems` holds what went wrong when decoding (`not-utf8`); such bytes are kept as lone surrogates, so that
    offsets and `encode` stay exact.
    """

    __slots__ = ("_line_starts", "bom", "data", "encoding", "newline", "path", "problems", "text")

    def __init__(
        self, path: str, data: bytes, text: str, bom: bool, encoding: str, problems: tuple[Problem, ...] = ()
    ) -> None:
        self.path = path
        self.data = data
        self.text = text
        self.bom = bom
        self.encoding = encoding
        self.problems = problems
        crlf = text.count("\r\n")
        self.newline = "\r\n" if crlf and 2 * crlf >= text.count("\n") else "\n"
        self._line_starts: list[int] | None = None

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> SourceText:
        """Decode; never raises. UTF-16 is read by its byte order mark, as PyYAML reads it, and reported."""
        for mark, encoding in _BOMS:
            if data.startswith(mark):
                return cls._decode(path, data, encoding, mark)
        return cls._decode(path, data, "utf-8", b"")

    @classmethod
    def from_path(cls, path: str) -> SourceText:
        """Read a file. Raises OSError; so does what is no file and may never end, such as a named pipe (the shell's own
        streams under /dev and /proc are read)."""
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or path.startswith(STREAMS)):
            raise OSError(None, "not a regular file (a pipe, socket or device)", path)
        with open(path, "rb") as file:
            return cls.from_bytes(path, file.read())

    @classmethod
    def from_text(cls, path: str, text: str) -> SourceText:
        """A text that is in memory, as if it had been read from a UTF-8 file."""
        bom = text.startswith("\ufeff")
        return cls(path, text.encode("utf-8", "surrogatepass"), text[1:] if bom else text, bom, "utf-8")

    @classmethod
    def _decode(cls, path: str, data: bytes, encoding: str, mark: bytes) -> SourceText:
        body = data[len(mark) :]
        problems: tuple[Problem, ...] = ()
        if encoding != "utf-8":
            message = f"the file is {encoding.upper()}: a program that opens it as UTF-8 text cannot read it"
            problems = (Problem("not-utf8", message, Span(0, 0), fatal=encoding.startswith("utf-32")),)
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError as error:
            if encoding == "utf-8":
                text = body.decode("utf-8", "surrogateescape")
                start = len(body[: error.start].decode("utf-8"))
                message = f"the file is not UTF-8: byte 0x{body[error.start]:02x} at offset {len(mark) + error.start}"
            else:  # a torn or wrong UTF-16: only its good beginning can be shown
                text = body[: error.start].decode(encoding, "ignore")
                start = len(text)
                message = f"the file is not {encoding.upper()} (its byte order mark says so): {error.reason}"
            problems = (Problem("not-utf8", message, Span(start, min(start + 1, len(text)))),)
        return cls(path, data, text, bool(mark), encoding, problems)

    @property
    def line_starts(self) -> list[int]:
        """Offset of the first character of every line. Lines end at LF, CRLF or a lone CR."""
        starts = self._line_starts
        if starts is None:
            text = self.text
            starts = [0]
            if text.count("\r") == text.count("\r\n"):
                offset = text.find("\n")
                while offset >= 0:
                    starts.append(offset + 1)
                    offset = text.find("\n", offset + 1)
            else:
                for offset, char in enumerate(text):
                    if char == "\n" or (char == "\r" and text[offset + 1 : offset + 2] != "\n"):
                        starts.append(offset + 1)
            self._line_starts = starts
        return starts

    def position(self, char_offset: int) -> tuple[int, int]:
        """(line, column), both from 1, column in characters. Offsets past the end give the end."""
        offset = max(0, min(char_offset, len(self.text)))
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def byte_offset(self, char_offset: int) -> int:
        """Offset in `data` (byte order mark counted) of a character offset."""
        mark = len(self._mark())
        if self.encoding == "utf-8" and self.text.isascii():
            return mark + char_offset
        return mark + len(self._encode(self.text[:char_offset]))

    def location(self, span: Span) -> Location:
        """Lines, columns and bytes of a span."""
        line, column = self.position(span.start)
        end_line, end_column = self.position(span.end)
        return Location(line, column, end_line, end_column, self.byte_offset(span.start), self.byte_offset(span.end))

    def line_text(self, line: int) -> str:
        """The text of a line (from 1) without its line break; empty when there is no such line."""
        starts = self.line_starts
        if not 1 <= line <= len(starts):
            return ""
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n")

    def encode(self, text: str) -> bytes:
        """A new text of this file as bytes: the same encoding and byte order mark."""
        return self._mark() + self._encode(text)

    def _encode(self, text: str) -> bytes:
        return text.encode(self.encoding, "surrogateescape" if self.encoding == "utf-8" else "strict")

    def _mark(self) -> bytes:
        if not self.bom:
            return b""
        return next(mark for mark, encoding in _BOMS if encoding == self.encoding)
