"""What is taken of PyYAML: libyaml's events, the table of YAML 1.1's implicit types, and the errors."""

from __future__ import annotations

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
