"""What kind of value a key takes, from the annotations of the key tables: `Optional[int]`, `NonNegativeInt`, `Literal[...]`."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import keys_of, name_of, shown

if TYPE_CHECKING:
    from primus_lint.subject import Subject

INTS = ("int", "NonNegativeInt", "PositiveInt")
FLOATS = ("float", "NonNegativeFloat", "PositiveFloat", "float | int", "int | float")
BOOLS = ("bool",)
SIGNS = {"NonNegative": "ge", "Positive": "gt"}
WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def kind(subject: Subject, key: str) -> str:
    """The annotation of a key without its None; "" when it is not known."""
    if name_of(subject) == "megatron_bridge":
        from primus_lint.lower.bridge.recipes import annotation

        return _without_none(annotation(subject.section, key))
    return _without_none(str(keys_of(subject).get(key, {}).get("type", "")))


def _without_none(text: str) -> str:
    if text.startswith("Optional[") and text.endswith("]"):
        text = text[9:-1]
    return " | ".join(part for part in text.split(" | ") if part != "None") if "None" in text else text


def outside(subject: Subject, key: str, value: Any) -> str:
    """Why a value of the right type is not one of the key's, by the framework's own bounds and choices; "" when it is."""
    annotation = kind(subject, key)
    facts = keys_of(subject).get(key, {})
    if choices := [str(choice) for choice in facts.get("choices", ())]:
        if value is None or str(value) in choices or isinstance(value, (list, dict)):
            return ""
        return f"is {shown(value)}; legal are {', '.join(choice or chr(34) * 2 for choice in choices)}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    bounds = {word: facts[word] for word in WORDS if word in facts}
    for name, word in SIGNS.items():
        if annotation.startswith(name):
            bounds.setdefault(word, 0)
    for word, bound in bounds.items():
        if not getattr(operator, word)(value, bound):
            return f"is {shown(value)}; it must be {WORDS[word]} {shown(bound)}"
    return ""
