"""The comments of a script: what bash passes over, not a `#` in a word, a quote or a here-document."""

from __future__ import annotations

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
    lexer = Lexer(Unit([Segment(text, 0)]))
    while (token := lexer.token()) is not None:
        if token in ("<<", "<<-") and isinstance(mark := lexer.token(), Word):
            lexer.heredocs.append(Heredoc.of(mark, token == "<<-"))
    return [
        Comment(Span(start, end), text[start:end], first_on_line(text, start), source.position(start)[0])
        for start, end in lexer.comments
    ]
