"""Where the cursor stands in a YAML text that need not parse: by indentation, as a person reads it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEY = re.compile(r"""^([ ]*)(?:- +)*(["']?)([^\s#"'{}\[\],:][^#"'{}\[\],:]*?)\2[ ]*:(?=[ ]|$)""")


class Cursor(NamedTuple):
    """`path`: the keys of the mappings around the cursor; `key`: the key whose value is being written (None: a key is
    being written); `start` and `end`: the span of the word to replace; `taken`: the keys that the innermost mapping
    has on its other lines; `without`: the text without the line, which parses where the line alone is unfinished."""

    path: tuple[str, ...]
    key: str | None
    start: int
    end: int
    taken: frozenset[str]
    without: str


def cursor_at(text: str, offset: int) -> Cursor | None:
    """The cursor, or None inside a comment or a list."""
    line_start = text.rfind("\n", 0, offset) + 1
    line_end = text.find("\n", offset)
    line_end = len(text) if line_end < 0 else line_end
    before, line = text[line_start:offset], text[line_start:line_end].rstrip("\r")
    if before.lstrip().startswith(("#", "- ")) or re.search(r"\s#", before):
        return None
    found = _KEY.match(line)
    key, word_start = None, len(before) - len(before.lstrip())
    if found is not None and len(before) > found.end():
        key = found[3]
        word_start = found.end() + len(before[found.end() :]) - len(before[found.end() :].lstrip())
    word = re.match(r"[\w.-]*", line[word_start:])
    word_end = word_start + (len(word[0]) if word is not None else 0)
    if len(before) > word_end:
        return None
    indent = len(line) - len(line.lstrip()) if line.strip() else len(before)
    above, below = text[:line_start].splitlines(), text[line_end:].splitlines()[1:]
    path, parent_indent = _path(above, indent)
    taken = _siblings(reversed(above), indent, parent_indent) | _siblings(below, indent, parent_indent)
    without = text[:line_start] + text[line_end:]
    return Cursor(path, key, line_start + word_start, line_start + word_end, frozenset(taken), without)


def _path(above: list[str], indent: int) -> tuple[tuple[str, ...], int]:
    """The keys around a line of some indentation, and the indentation of the innermost (-1: none)."""
    path: list[str] = []
    parent_indent = -1
    limit = indent
    for line in reversed(above):
        found = _KEY.match(line)
        if found is None or len(found[1]) >= limit:
            continue
        if not path:
            parent_indent = len(found[1])
        path.append(found[3])
        limit = len(found[1])
    return tuple(reversed(path)), parent_indent


def _siblings(lines: Iterable[str], indent: int, parent_indent: int) -> set[str]:
    found: set[str] = set()
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _KEY.match(line)
        here = len(line) - len(line.lstrip(" "))
        if here <= parent_indent:
            break
        if key is not None and here == indent:
            found.add(key[3])
    return found
