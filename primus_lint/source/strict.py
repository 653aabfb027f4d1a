"""What PyYAML's own scanner refuses and libyaml lets through.

`yaml.safe_load`, which training programs call, is pure Python; it takes no tab between tokens or in a plain scalar,
and no byte order mark behind the first character.
"""

from __future__ import annotations

from primus_lint.source.node import Node
from primus_lint.source.syntax import skip_properties
from primus_lint.source.text import Problem, Span


def strict_problems(text: str, roots: list[Node]) -> list[Problem]:
    """The first such character, if any (the scanner stops there)."""
    gap = 0
    for start, end, plain in [*_scalars(text, roots), (len(text), len(text), False)]:
        found = _first_bad(text, gap, start)
        if found is None and plain and "\t" in text[start:end]:
            found = text.index("\t", start)
        if found is not None:
            return [_problem(text, found)]
        gap = end
    return []


def _scalars(text: str, roots: list[Node]) -> list[tuple[int, int, bool]]:
    found = []
    for root in roots:
        for node in root.walk():
            if node.start < node.value_start:
                found.append((node.start, skip_properties(text, node.start, node.value_start)[0], False))
            if node.style in ("literal", "folded"):
                header = text.find("\n", node.value_start, node.end)
                found.append((node.value_start, node.value_start + 1, False))
                if header >= 0:
                    found.append((header, node.end, False))
            elif node.kind == "scalar" and node.start < node.end and not node.is_alias:
                found.append((node.value_start, node.end, node.style == "plain"))
    return found


def _first_bad(text: str, start: int, end: int) -> int | None:
    """The first tab or byte order mark between two tokens that is not in a comment."""
    at = start
    while at < end:
        char = text[at]
        if char == "#":
            while at < end and text[at] not in "\r\n":
                at += 1
        elif char in "\t\ufeff":
            return at
        else:
            at += 1
    return None


def _problem(text: str, at: int) -> Problem:
    span = Span(at, at + 1)
    if text[at] == "\ufeff":
        return Problem("yaml-syntax", "a byte order mark inside the file", span)
    line = text[text.rfind("\n", 0, at) + 1 : at]
    if not line.strip():
        return Problem("tab-indent", "a tab cannot indent YAML: use spaces", span)
    return Problem("tab-separator", "PyYAML takes no tab outside of quotes and comments: use spaces", span)
