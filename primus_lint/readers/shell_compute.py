"""Small computations of the shell: integer arithmetic, tests, field splitting."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase


def compute(text: str) -> int | None:
    """An integer expression of digits, + - * / % and brackets, as the shell computes it; None for anything else."""
    tokens: list[str] = re.findall(r"\d+|[-+*/%()]|\S", text)
    if len(tokens) > 100 or not tokens or any(len(token) > 18 for token in tokens):
        return None
    position = 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1]

    def factor() -> int:
        token = take() if peek() else ""
        if token == "-":
            return -factor()
        if token == "+":
            return factor()
        if token == "(":
            inner = total()
            if not peek() or take() != ")":
                raise ValueError
            return inner
        return int(token)

    def product() -> int:
        left = factor()
        while peek() in ("*", "/", "%") and peek():
            op, right = take(), factor()
            if op == "*":
                left *= right
            else:
                quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
                left = quotient if op == "/" else left - quotient * right
        return left

    def total() -> int:
        left = product()
        while peek() in ("+", "-") and peek():
            left = left + product() if take() == "+" else left - product()
        return left

    try:
        result = total()
    except (ValueError, ZeroDivisionError, RecursionError):
        return None
    return result if position == len(tokens) else None


def holds(words: list[str]) -> bool | None:
    """`[ ... ]`: comparisons of texts and numbers, -z, -n."""
    if words[:1] == ["!"]:
        inner = holds(words[1:])
        return None if inner is None else not inner
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") == (words[0] == "-z")
    if len(words) == 1:
        return words[0] != ""
    if len(words) != 3:
        return None
    left, op, right = words
    if op in ("=", "=="):
        return fnmatchcase(left, right)
    if op == "!=":
        return not fnmatchcase(left, right)
    try:
        a, b = int(left), int(right)
    except ValueError:
        return None
    tests = {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}
    return tests.get(op)


def split_blanks(text: str) -> list[tuple[str, int, bool]]:
    """(part, offset, begins a new field) of a text at blanks."""
    parts = []
    new = text[:1].isspace()
    for match in re.finditer(r"\S+", text):
        parts.append((match.group(), match.start(), new))
        new = True
    if text and text[-1].isspace():
        parts.append(("", len(text), True))
    return parts
