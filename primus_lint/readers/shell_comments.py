"""The comments of a script: what bash passes over, not a `#` in a word, a quote or a here-document."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from primus_lint.readers.shell_lexer import Heredoc, Lexer, Word
from primus_lint.readers.shell_text import Segment, Unit
from primus_lint.source.comments import Comment
from primus_lint.source.places import first_on_line
from primus_lint.source.text import Span

if TYPE_CHECKING:
    from primus_lint.source.text import SourceText


def comments(source: SourceText) -> list[Comment]:
    """Every comment in the order of the text."""
    text = source.text
    lexer = _read(text)
    return [
        Comment(Span(start, end), text[start:end], first_on_line(text, start), source.position(start)[0])
        for start, end in lexer.comments
    ]


def unclosed(text: str) -> int | None:
    """Where a quote begins that nothing ends: bash reads on to the end of the file, and leaves."""
    return None if "$'" in text else _read(text).unclosed  # the quotes in $'it\'s' are not followed


@lru_cache(maxsize=1)
def _read(text: str) -> Lexer:
    """The lexer at the end of a script; of the same script once."""
    lexer = Lexer(Unit([Segment(text, 0)]))
    while (token := lexer.token()) is not None:
        if token in ("<<", "<<-") and isinstance(mark := lexer.token(), Word):
            lexer.heredocs.append(Heredoc.of(mark, token == "<<-"))
    return lexer
