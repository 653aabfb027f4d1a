"""What is taken of PyYAML: libyaml's events, the table of YAML 1.1's implicit types, and the errors.

PyYAML's reader in Python, which libyaml makes unnecessary, compiles a set of nearly all characters when it is imported.
That alone takes half as long as Python takes to start, so here it is compiled when somebody uses it.
"""

from __future__ import annotations

import re
from typing import Any

_compile = re.compile


class _Later:
    """A regular expression that is compiled at its first use."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __getattr__(self, name: str) -> Any:
        return getattr(_compile(self._pattern), name)


def _compile_others(pattern: Any, flags: Any = 0) -> Any:
    return _Later(pattern) if "\U00010000" in str(pattern) else _compile(pattern, flags)


re.compile = _compile_others
try:
    from yaml import YAMLError
    from yaml.events import (
        AliasEvent,
        DocumentEndEvent,
        DocumentStartEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceStartEvent,
        StreamEndEvent,
        StreamStartEvent,
    )
    from yaml.resolver import Resolver

    try:
        from yaml._yaml import CParser as Parser

        IN_BYTES = True
    except ImportError:  # PyYAML without libyaml: the same events, slower
        from yaml import SafeLoader as Parser  # type: ignore[assignment]

        IN_BYTES = False
finally:
    re.compile = _compile

__all__ = [
    "IN_BYTES",
    "AliasEvent",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "MappingStartEvent",
    "Parser",
    "Resolver",
    "ScalarEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
    "StreamStartEvent",
    "YAMLError",
]
