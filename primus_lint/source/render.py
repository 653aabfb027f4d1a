"""Python values written as YAML so that PyYAML reads the same value and type back."""

from __future__ import annotations

from typing import Any

from primus_lint.source.scalars import looks_like_float, plain_tag

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_INDICATORS = "-?:,[]{}#&*!|>'\"%@`"


def render_scalar(value: Any, like_style: str | None = None, *, flow: bool = False) -> str:
    """One scalar on one line.

    A string keeps the quotes of `like_style` ("single", "double") and is otherwise plain if it can be; other types are
    always plain, because quotes would make them strings. `flow`: it will stand inside [] or {}.
    Raises TypeError for a value that is no YAML scalar (a bug of the caller).
    """
    if isinstance(value, str):
        return _string(value, like_style, flow)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return render_float(value)
    if isinstance(value, bytes):
        from base64 import b64encode

        return f'!!binary "{b64encode(value).decode()}"'
    from datetime import date, datetime

    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"no YAML scalar: {type(value).__name__}")


def render_float(value: float) -> str:
    """A float with the point and the signed exponent that YAML 1.1 wants: 1.0e-05, not 1e-05."""
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    return text if not mark or "." in mantissa else f"{mantissa}.0e{exponent}"


def render_value(value: Any, like_style: str | None = None, *, flow: bool = False) -> str:
    """A scalar, or a list or dict in flow style, on one line."""
    if isinstance(value, dict):
        pairs = (f"{render_scalar(key, flow=True)}: {render_value(item, flow=True)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(render_value(item, flow=True) for item in value) + "]"
    return render_scalar(value, like_style, flow=flow)


def plain_is_safe(text: str, *, flow: bool) -> bool:
    """Can this text stand as a plain scalar on one line (a key or a value) and be read back as itself?"""
    if not text or text != text.strip(" ") or text.startswith(("---", "...")):
        return False
    if not text.isprintable() or "\ufeff" in text:  # isprintable is False for tabs and all line breaks
        return False
    dash = text[0] == "-" and text[1:2] not in ("", " ", "\t") and not text.startswith("---")
    if text[0] in _INDICATORS and not dash:
        return False
    if ": " in text or " #" in text or text.endswith(":"):
        return False
    return not (flow and any(char in text for char in ",[]{}:?"))


def _string(text: str, like_style: str | None, flow: bool) -> str:
    if like_style == "double":
        return _double(text)
    plain = like_style != "single" and plain_is_safe(text, flow=flow)
    if plain and plain_tag(text) == "str" and not looks_like_float(text):  # 1e-5 is a number for other readers
        return text
    if text.isprintable() and "\ufeff" not in text:
        return "'" + text.replace("'", "''") + "'"
    return _double(text)


def _double(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char) or _escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _timestamp(value: Any) -> str:
    # PyYAML reads a fraction of up to six digits and an offset of whole minutes
    return str(value.isoformat(sep=" "))
