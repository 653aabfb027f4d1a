"""What `--keep` and `--limit` may say: keys that a framework reads, and values that they can have."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from primus_lint.readers.cli_values import set_value
from primus_lint.readers.tables import table
from primus_lint.rules.checks.key_values import EXTRA_CHOICES
from primus_lint.tune.keys import CP, EP, ETP, MBS, NUMBER, PP, TP, TUNED, VPP

if TYPE_CHECKING:
    from collections.abc import Iterable

COUNTS = frozenset((TP, PP, CP, EP, ETP, MBS, VPP, NUMBER))  # keys whose values are whole numbers, or null
LISTS = ("recompute_modules",)  # keys whose value is a list: its words are joined by `+`, as `tune` prints them
FRAMEWORKS = ("megatron", "primus-megatron", "torchtitan", "megatron_bridge")


class LimitError(ValueError):
    """What is wrong with a limit, in words."""


def limits_of(texts: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Key -> the values that it may take, from texts `KEY=VALUE,VALUE`. Raises LimitError."""
    limits: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, words = (part.strip() for part in text.partition("="))
        if not equals or not words:
            raise LimitError(f"--limit wants KEY=VALUE,VALUE,..., not {text!r}")
        check_keys("--limit", [key])
        limits[key] = tuple(_value(key, word.strip()) for word in words.split(","))
        for value in limits[key]:
            if value is not None and (wanted := _wanted(key, value)):
                raise LimitError(f"--limit {key} takes {wanted}, not {value!r}")
    return limits


def check_keys(option: str, names: Iterable[str]) -> None:
    """Raises LimitError for a name that no framework reads."""
    for name in names:
        if name not in TUNED and not any(name in table(framework)["keys"] for framework in FRAMEWORKS):
            known = dict.fromkeys((*TUNED, *(key for framework in FRAMEWORKS for key in table(framework)["keys"])))
            near = get_close_matches(name, known, 3, 0.6)
            hint = f"; near: {', '.join(near)}" if near else f"; a key is, for instance, {TUNED[0]}"
            raise LimitError(f"{option} names {name}, which is no key of a recipe{hint}")


def _value(key: str, word: str) -> Any:
    value = set_value(word)
    return word.split("+") if key in LISTS and isinstance(value, str) else value


def _wanted(key: str, value: Any) -> str:
    """What a key takes, in words, when a value is none of it; else ""."""
    if key in COUNTS:
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        return "" if is_count else "whole numbers from 1 on"
    facts: dict[str, Any] = next((found for name in FRAMEWORKS if (found := table(name)["keys"].get(key))), {})
    kind, choices = str(facts.get("type")), facts.get("choices")
    if choices:
        choices = [*choices, *EXTRA_CHOICES.get(key, ())]
        return "" if value in choices else f"{', '.join(map(str, choices))} or null"
    right = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
        "str": isinstance(value, (str, list)),
    }
    words = {"bool": "true and false", "int": "whole numbers", "float": "numbers", "str": "words"}
    return "" if right.get(kind, True) else words[kind]
