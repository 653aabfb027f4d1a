"""`key=value` words of a command line as values.

Two command lines exist and they type differently. Primus's own (`primus-cli train pretrain --lr 1e-5`): true/false,
a text with a point that is a float, an int, `None`, a bracketed Python literal; all else is text, so `1e-5` and `null`
stay strings. Ours (`primus-lint --set lr=1e-5`): a YAML 1.1 scalar, as if the value stood in the file; `1e-5` is a
string there as well, and `primus-lint` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def primus_value(text: str) -> Any:
    """A word of Primus's command line, typed as Primus types it."""
    stripped = text.strip()
    lowered = stripped.lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    if stripped == "None":
        return None
    if stripped[:1] in "[({" and stripped:
        return _literal(stripped)
    try:
        return float(stripped) if "." in stripped else int(stripped)
    except ValueError:
        return stripped


def _literal(text: str) -> Any:
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def primus_words(words: Sequence[str]) -> list[tuple[str, Any]]:
    """`--key value`, `--key=value`, `key=value` and bare `--flag` (True) as (dotted key, typed value), in order.

    A word that is none of these is skipped, as Primus does (it prints a warning).
    """
    pairs: list[tuple[str, Any]] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if "=" in word:
            key, _, value = word.partition("=")
            pairs.append((key.lstrip("-").strip(), primus_value(value)))
        elif word.startswith("--"):
            key = word.lstrip("-")
            following = words[index] if index < len(words) else None
            if following is None or following.startswith("--") or "=" in following:
                pairs.append((key, True))
            else:
                pairs.append((key, primus_value(following)))
                index += 1
    return pairs


def set_value(text: str) -> Any:
    """The value of `--set key=value`: YAML 1.1, flow collections included (`[0, 1]`). Text that is no YAML stays."""
    from primus_lint.source.scalars import ScalarError, resolve_plain

    stripped = text.strip()
    if stripped[:1] in ("[", "{", '"', "'"):
        import yaml

        try:
            return yaml.load(stripped, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, ValueError, RecursionError):
            return stripped
    value = resolve_plain(stripped)
    return stripped if isinstance(value, ScalarError) else value
