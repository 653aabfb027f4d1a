"""Small computations of the shell: integer arithmetic, tests, patterns, field splitting."""

from __future__ import annotations

import math
import operator
import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%]=|[-+*/%<>=!~&|^?:(),]|\S)",
    re.ASCII,
)
_LEVELS = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10, "**": 11,
}  # fmt: skip
_LIMIT = 1 << 63
_TRIES = 10_000_000  # of a pattern on a text, at most


class Unknown(Exception):
    """A computation needs what is not known."""


class _Arithmetic:
    def __init__(self, text: str, get: Callable[[str], int], put: Callable[[str, int], None]) -> None:
        self.tokens: list[str] = _TOKEN.findall(text)
        if len(self.tokens) > 200 or any(len(token) > 40 for token in self.tokens):
            raise Unknown
        self.at = 0
        self.get, self.put = get, put

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def all(self) -> int:
        value = self.choice()
        while self.peek() == ",":
            self.take()
            value = self.choice()
        if self.at != len(self.tokens):
            raise ValueError
        return value

    def choice(self) -> int:
        name = self.peek()
        follow = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""
        if _is_name(name) and follow in ("=", "+=", "-=", "*=", "/=", "%="):
            self.at += 2
            value = self.choice()
            if follow != "=":
                value = _apply(follow[0], self.get(name), value)
            self.put(name, value)
            return value
        condition = self.binary(1)
        if self.peek() != "?":
            return condition
        self.take()
        left = self.choice()
        if self.take() != ":":
            raise ValueError
        right = self.choice()
        return left if condition else right

    def binary(self, level: int) -> int:
        left = self.unary()
        while (op := self.peek()) in _LEVELS and _LEVELS[op] >= level:
            self.take()
            right = self.binary(_LEVELS[op] + (op != "**"))
            left = _apply(op, left, right)
        return left

    def unary(self) -> int:
        token = self.take()
        if token in ("-", "+", "!", "~"):
            value = self.unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[token]
        if token in ("++", "--"):
            name = self.take()
            value = self.get(name) + (1 if token == "++" else -1)
            self.put(name, value)
            return value
        if token == "(":
            value = self.choice()
            if self.take() != ")":
                raise ValueError
            return value
        if _is_name(token):
            value = self.get(token)
            if self.peek() in ("++", "--"):
                self.put(token, value + (1 if self.take() == "++" else -1))
            return value
        if len(token) > 18:
            raise Unknown
        return int(token, 16) if token[:2] in ("0x", "0X") else int(token, 8 if token[:1] == "0" else 10)


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or token[:1] == "_"


def _apply(op: str, a: int, b: int) -> int:
    if op in ("/", "%"):
        if b == 0:
            raise ValueError
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if op == "/" else a - quotient * b
    if (op == "**" and not 0 <= b < 64) or (op in ("<<", ">>") and not 0 <= b < 63):
        raise ValueError
    value = _OPERATIONS[op](a, b)
    if not -_LIMIT <= value < _LIMIT:
        raise Unknown
    return int(value)


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)), "&&": lambda a, b: int(bool(a and b)), "|": operator.or_, "^": operator.xor,
    "&": operator.and_, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "<<": operator.lshift, ">>": operator.rshift, "+": operator.add, "-": operator.sub,
    "*": operator.mul, "**": operator.pow,
}  # fmt: skip


def _no_name(name: str) -> int:
    raise Unknown


def _no_place(name: str, value: int) -> None:
    raise Unknown


def compute(text: str, get: Callable[[str], int] = _no_name, put: Callable[[str, int], None] = _no_place) -> int | None:
    """An integer expression as the shell computes it; None for what the shell refuses. Raises Unknown for what hangs
    on something unknown (or is too large to follow)."""
    if not text.strip():
        return 0
    try:
        return _Arithmetic(text, get, put).all()
    except (ValueError, ZeroDivisionError):
        return None
    except RecursionError:
        raise Unknown from None


def number(text: str) -> int | None:
    """An integer as `[ ... -eq ... ]` reads it."""
    return int(text) if re.fullmatch(r"\s*[-+]?\d{1,18}\s*", text) else None


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip


def holds(words: Sequence[str | None], double: bool = False) -> bool | None:
    """`[ ... ]`, or one comparison of `[[ ... ]]`, by the number of its words as a shell decides. None among the words
    is a word that is not known; the result None: not decided. What a shell refuses is false."""
    for op in ("-o", "-a"):
        if not double and op in words[1:-1] and len(words) > 3:
            at = list(words).index(op, 1)
            left, right = holds(words[:at]), holds(words[at + 1 :])
            decides = op == "-o"
            if decides in (left, right):
                return decides
            return None if None in (left, right) else not decides
    if words[:1] == ["!"] and len(words) > 1:
        inner = holds(words[1:], double)
        return None if inner is None else not inner
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return None if words[1] is None else (words[1] == "") == (words[0] == "-z")
    if len(words) < 2:
        return None if None in words else bool(words) and words[0] != ""
    if len(words) == 2:
        return None if words[0] is None or words[0][:1] == "-" else False
    if len(words) != 3:
        return None if None in words else False
    left_word, op_word, right_word = words
    if left_word is None or op_word is None or right_word is None:
        return None
    if op_word in ("=", "=="):
        return matches(left_word, right_word) if double else left_word == right_word
    if op_word == "!=":
        equal = matches(left_word, right_word) if double else left_word == right_word
        return None if equal is None else not equal
    if op_word == "=~":
        nested = re.search(r"[+*}]\)[+*{]", right_word)
        shape = None if nested or not cheap(right_word, len(left_word)) else _regex(right_word)
        return None if shape is None else shape.search(left_word) is not None
    if op_word in ("<", ">"):
        return left_word < right_word if op_word == "<" else left_word > right_word
    if op_word in _NUMBERS:
        a, b = number(left_word), number(right_word)
        if a is None or b is None:
            return None if double else False
        return _NUMBERS[op_word](a, b)
    return None if op_word[:1] == "-" else False


def cheap(shape: str, length: int) -> bool:
    """Whether a pattern is tried on a text of some length in a short time, however often it goes back."""
    powers = len(re.findall(r"[*+{]+", shape))
    return math.log(length + 1) * powers <= math.log(_TRIES)


def matches(text: str, shape: str) -> bool | None:
    """Whether a whole text fits a shell pattern; None when that is not tried."""
    return bool(re.fullmatch(glob(shape), text, re.DOTALL)) if cheap(shape, len(text)) else None


def glob(text: str) -> str:
    """A shell pattern (`*`, `?`, `[...]`, `\\x`) as a regular expression."""
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            out.append("" if out[-1:] == [".*"] else ".*")
        elif char == "?":
            out.append(".")
        elif char == "\\" and at < len(text):
            out.append(re.escape(text[at]))
            at += 1
        elif char == "[" and (end := text.find("]", max(at + 1, text.find(":]", at) + 2))) > 0:
            inside = text[at:end].replace("\\", "\\\\")
            inside = re.sub(r"\[:(\w+):\]?", lambda match: _CLASSES.get(match.group(1), ""), inside)
            out.append("[" + ("^" + inside[1:] if inside[:1] in "!^" else inside) + "]")
            at = end + 1
        else:
            out.append(re.escape(char))
    found = "".join(out)
    return re.escape(text) if _regex(found) is None else found


def _regex(text: str) -> re.Pattern[str] | None:
    """A compiled expression with POSIX classes; None when it is none."""
    text = re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match.group(1), ""), text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that Python may read otherwise one day
        try:
            return re.compile(text, re.DOTALL)
        except (re.error, OverflowError, RecursionError):
            return None


_CLASSES = {"digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "space": r"\s", "upper": "A-Z", "lower": "a-z"}


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
