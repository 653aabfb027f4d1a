"""What ruamel.yaml, which shares no code with this package, sees in a text."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML


def comment_lines(text: str) -> list[str]:
    """Every comment in order, without the blanks behind it. (It does not see one behind `|` or `>`.)"""
    found: dict[int, str] = {}

    def collect(part: Any) -> None:
        if isinstance(part, (list, tuple)):
            for each in part:
                collect(each)
        elif part is not None and getattr(part, "start_mark", None) is not None:
            found[part.start_mark.index] = part.value

    for token in YAML().scan(text):
        collect(getattr(token, "_comment", None))
    lines = [line.strip() for _, value in sorted(found.items()) for line in value.splitlines()]
    return [line for line in lines if line.startswith("#")]


def untyped(text: str) -> Any:
    """The tree with every scalar as its text."""
    loader = YAML(typ="base", pure=True)
    loader.allow_duplicate_keys = True
    return loader.load(text)
