"""Pieces of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell holds no line break and no bar."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def cell(text: str) -> str:
    """A text inside a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Inline code, whatever the text holds."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def fence(text: str, language: str = "text") -> str:
    """A block of code, whatever the text holds."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}{language}\n{text.rstrip()}\n{marks}"


def paragraph(text: str) -> str:
    """A folded text of a rule: its lines joined, angle brackets kept as they stand."""
    return " ".join(text.split()).replace("<", "&lt;")
