"""What is taken of PyYAML: libyaml's events, the table of YAML 1.1's implicit types, and the errors.

On import PyYAML compiles its regular expressions: a set of nearly all characters for its reader in Python, which libyaml
makes unnecessary (half of what a bare interpreter costs: 6 ms of the 104 of a cold check, in 30 paired runs), and those of
types that few files have. Each is left to its first use.
"""

from __future__ import annotations

import re
from typing import Any

_compile = re.compile


class _Later:
    """A regular expression that is compiled when somebody uses it."""

    def __init__(self, pattern: Any, flags: Any = 0) -> None:
        self._wanted = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(_compile(*self._wanted), name)
        setattr(self, name, found)
        return found


re.compile = _Later  # type: ignore[assignment]
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
