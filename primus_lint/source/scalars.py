"""YAML 1.1 scalars as PyYAML reads them: what a text means, and how a value is written so that it means the same.

Which pattern a plain scalar matches is asked of PyYAML's own table (already compiled when `yaml` is imported); the
common types are then built here, the rare ones by PyYAML's constructor. So the values are those of the PyYAML that is
installed, by construction.
"""

from __future__ import annotations

from typing import Any

from primus_lint.source.pyyaml import Resolver

_PREFIX = "tag:yaml.org,2002:"
_RESOLVERS: dict[str, list[tuple[str, Any]]] = Resolver.yaml_implicit_resolvers
_BOOLS = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
_MAX_INT_BITS = 14_000  # CPython refuses to print an int of more than 4,300 digits (about 14,284 bits)
_MAX_SEXAGESIMAL_PARTS = 100  # 1:00:00... is quadratic in its parts


class ScalarError:
    """A scalar that the safe loader cannot build, such as the date 2024-02-31."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"ScalarError({self.message!r})"


def plain_tag(text: str) -> str:
    """Short tag of a plain scalar: str, null, bool, int, float, timestamp, merge or value."""
    for tag, pattern in _RESOLVERS.get(text[:1], ()):
        if pattern.match(text):
            return tag[len(_PREFIX) :]
    return "str"


def resolve_plain(text: str) -> Any:
    """Value of a plain scalar, or a ScalarError where PyYAML's safe loader raises."""
    return construct(plain_tag(text), text)


def construct(tag: str, text: str) -> Any:
    """Value of a scalar `text` with the short YAML 1.1 tag `tag`, or a ScalarError."""
    if tag == "str":
        return text
    try:
        if tag == "int":
            return _int(text)
        if tag == "float":
            return _float(text)
        if tag == "null":
            return None
        if tag == "bool":
            return _BOOLS[text.lower()]
        return _rare(tag, text)
    except Exception as error:  # PyYAML lets ValueError, KeyError, AttributeError ... of a bad scalar through
        reason = getattr(error, "problem", None) or str(error)
        return ScalarError(f"{shorten(text)!r} is no {tag}: {reason}")


def looks_like_float(text: str) -> bool:
    """Is this a string for YAML 1.1, though it is a number for everybody else: `1e-5`, `163.0e12`?

    A float of YAML 1.1 has a point, and a sign in its exponent.
    """
    if plain_tag(text) != "str" or not text.isascii() or not any(char.isdigit() for char in text):
        return False
    if "_" in text or text != text.strip():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return "e" in text or "E" in text


def shorten(text: str, limit: int = 40) -> str:
    """At most `limit` characters of a text, for messages."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _int(text: str) -> Any:
    if text.isdigit() and text[0] != "0" and len(text) < 4000:
        return int(text)
    value = _rare("int", text)
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        return ScalarError("an integer of more than 4,000 digits")
    return value


def _float(text: str) -> Any:
    try:
        return float(text)
    except ValueError:  # .inf, .nan, base 60, odd underscores
        return _rare("float", text)


def _rare(tag: str, text: str) -> Any:
    from yaml.constructor import SafeConstructor
    from yaml.nodes import ScalarNode

    if tag in ("int", "float") and text.count(":") > _MAX_SEXAGESIMAL_PARTS:
        return ScalarError(f"a base-60 number of more than {_MAX_SEXAGESIMAL_PARTS} parts")
    return SafeConstructor().construct_object(ScalarNode(_PREFIX + tag, text))
