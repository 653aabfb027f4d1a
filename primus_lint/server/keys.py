"""What the shipped key tables know about a key: type, default, choices, state."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import DEFAULT_VERSIONS, table

if TYPE_CHECKING:
    from primus_lint.subject import Subject

_TABLES = {"primus-megatron": ("megatron", "primus-megatron")}
GONE = ("dead", "removed", "renamed", "refused", "deprecated")  # states of keys that nobody should write any more


@cache
def keys(framework: str) -> dict[str, dict[str, Any]]:
    """Key -> facts of a framework's newest table; Primus's own facts win over Megatron's. Empty when unknown."""
    found: dict[str, dict[str, Any]] = {}
    for name in _TABLES.get(framework, (framework,)):
        if name not in DEFAULT_VERSIONS:
            continue
        for key, facts in table(name)["keys"].items():
            found[key] = {**found.get(key, {}), **facts}
    return found


def framework_of(subject: Subject) -> str:
    """The name of the key tables of a section: Megatron under Primus has more keys than Megatron alone."""
    return subject.framework if subject.section.framework == "megatron" else subject.section.framework


def facts_of(framework: str, key: str) -> dict[str, Any]:
    """The facts of one key; empty when it is in no table."""
    return keys(framework).get(key, {})


def choices(facts: dict[str, Any]) -> list[Any]:
    """The values that a key may have, when they are few: its choices, or true and false."""
    given = facts.get("choices")
    if given:
        return list(given)
    kind = str(facts.get("type", ""))
    literals = re.findall(r'"([^"]*)"', kind) if "Literal[" in kind else []
    if literals:
        return literals
    return [True, False] if "bool" in kind else []


def is_count(facts: dict[str, Any]) -> bool:
    """Whether the values of a key are whole numbers."""
    kind = str(facts.get("type", "")).lower()
    return "bool" not in kind and bool(re.search(r"\bint\b|positiveint|nonnegativeint", kind))


def about(facts: dict[str, Any]) -> list[str]:
    """Lines for people: type, default, choices, state, successor, note."""
    words = []
    kind = facts.get("type")
    if kind and kind != "?":
        words.append(f"`{kind}`")
    if "default" in facts:
        words.append(f"default `{text(facts['default'])}`")
    if facts.get("megatron_default") is not None:
        words.append(f"Megatron's own default `{text(facts['megatron_default'])}`")
    if facts.get("choices"):
        words.append("one of " + ", ".join(f"`{text(choice)}`" for choice in facts["choices"]))
    lines = [", ".join(words)] if words else []
    state = facts.get("state")
    if state and state != "live":
        to = f", use `{facts['to']}`" if facts.get("to") else ""
        lines.append(f"**{state}**{to}")
    if facts.get("note"):
        lines.append(str(facts["note"]))
    return lines


def text(value: Any) -> str:
    """A value as YAML writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
