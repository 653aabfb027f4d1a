"""`${NAME}` and `${NAME:default}` in configuration values, as Primus replaces and types them.

The replacement is one pass over a string *value*; the conversion looks at the whole result: true/false in any case
become booleans, digits an int, a decimal number a float (so `${A:1e-5}` is a float where a plain `1e-5` is a string),
all else stays text. A text in which nothing was replaced is left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATTERN = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_MAX_DIGITS = 4000  # CPython refuses to convert more than 4,300


class EnvUse:
    """What the replacements of one file consulted: `used` maps a variable to the value found (None: unset, the
    default was taken), `missing` names those that are unset and have no default."""

    __slots__ = ("missing", "used")

    def __init__(self) -> None:
        self.used: dict[str, str | None] = {}
        self.missing: list[str] = []


def has_variable(text: str) -> bool:
    """True when the replacement would touch this text."""
    return "${" in text and _PATTERN.search(text) is not None


def variables(text: str) -> list[str]:
    """Names of the variables of a text, in order."""
    return [match.group(1) for match in _PATTERN.finditer(text)] if "${" in text else []


def substitute(text: str, env: Mapping[str, str], use: EnvUse) -> Any:
    """The value of a string after replacement and typing. A variable that is unset and has no default is recorded in
    `use.missing` and stays in the text."""
    if "${" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = env.get(name)
        use.used[name] = found
        if found is not None:
            return found
        if default is not None:
            return default
        if name not in use.missing:
            use.missing.append(name)
        return match.group(0)

    replaced = _PATTERN.sub(replace, text)
    return replaced if replaced == text else typed(replaced)


def typed(text: str) -> Any:
    """A replaced text as Primus types it: bool, int, float or the text itself."""
    lowered = text.lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    if len(text) <= _MAX_DIGITS:
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def resolve(value: Any, env: Mapping[str, str], use: EnvUse) -> Any:
    """`substitute` in every string of a plain value (lists and mappings included; keys are not touched)."""
    if isinstance(value, str):
        return substitute(value, env, use)
    if isinstance(value, list):
        return [resolve(item, env, use) for item in value]
    if isinstance(value, dict):
        return {key: resolve(item, env, use) for key, item in value.items()}
    return value


def expand_shell(text: str, env: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` as the `env:` block expands them (like the shell; unset names stay)."""

    def replace(match: re.Match[str]) -> str:
        return env.get(match.group(1) or match.group(2), match.group(0))

    return re.sub(r"\$(?:(\w+)|\{([^}]*)\})", replace, text, flags=re.ASCII) if "$" in text else text
