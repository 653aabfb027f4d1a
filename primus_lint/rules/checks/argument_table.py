"""What Megatron's argument parser refuses: names, values and types, from the shipped key table of the version.

Only for Megatron-LM itself: Primus puts the values on the parsed defaults, so nothing is refused there. Types as in
the key tables: an `int|list-text` is a number or a Python list expression, a list belongs to an argument with `nargs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.aliases import aliases
from primus_lint.lower.megatron.namespace import evaluate_pattern
from primus_lint.lower.megatron.tables import keys, programs
from primus_lint.rules.checks.choice_effects import meant
from primus_lint.rules.engine import make, words
from primus_lint.rules.finding import Change, Fix
from primus_lint.rules.functions import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.lower.megatron import Lowered
    from primus_lint.rules.finding import Finding

# Conditions of the catalogue that are met first as a choice or a type of the parser.
_ROWS = {
    "linear_attention_freq": "T30",
    "moe_layer_freq": "M05",
    "no_rope_freq": "T33",
    "optimizer": "O37",
    "pipeline_model_parallel_comm_backend": "T13",
    "recompute_granularity": "R02",
    "recompute_method": "R03",
    "rope_type": "T27",
}
_LIST_EXPRESSION = frozenset("0123456789,[]()+*")
# Texts that are whole numbers with commas between them, and the brackets that may stand around them.
_NUMBERS = {"window_size": "()", "phase_transition_iterations": ""}


def unknown(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """Arguments that this version of Megatron does not have."""
    table = keys(lowered.version)
    # A program with flags of its own may add what other programs of the repository add.
    more = programs(lowered.version) if lowered.section.own_flags else {}
    for key in lowered.section.values:
        if key in table or key in aliases(lowered.version) or key in more:
            continue
        other = "d3528a21" if lowered.version == "d98e8a64" else "d98e8a64"
        if key in keys(other):
            hint = f"; Megatron-LM {other} has it"
        else:
            import difflib

            close = difflib.get_close_matches(key, table, n=1, cutoff=0.8)
            hint = f"; did you mean {close[0]}?" if close else ""
        yield make(rule, lowered, f"this Megatron version has no argument {key}{hint}", (key,))


def choices(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values outside the choices of their argument."""
    for key, entry, value in _given(lowered):
        legal = entry.get("choices")
        if legal:
            bad = [item for item in as_list(value) if item not in legal]
            if bad:
                text = f"{key} cannot be {words(bad)}; legal are {words(sorted(legal, key=str))}"
                near = meant(bad[0], legal) if bad == [value] else None
                fixes = () if near is None else (Fix(f"write {near}", "safe", (Change("set", key, near),)),)
                yield make(rule, lowered, text, (key,), catalogue=_rows(rule, key), fixes=fixes)


def types(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values that the type of their argument does not take."""
    for key, entry, value in _given(lowered):
        text = _type_problem(entry, value) or _numbers_problem(key, value)
        if text:
            yield make(rule, lowered, f"{key}: {text}", (key,), catalogue=_rows(rule, key))


def _given(lowered: Lowered) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(key, table entry, value) of every argument that is given a value and known."""
    table = keys(lowered.version)
    for key, value in lowered.section.values.items():
        entry = table.get(key if key in table else aliases(lowered.version).get(key, key))
        if entry is not None and value.value is not None:
            yield key, entry, value.value


def _rows(rule: dict[str, Any], key: str) -> tuple[str, ...]:
    return (*rule["catalogue"], _ROWS[key]) if key in _ROWS else tuple(rule["catalogue"])


def _type_problem(entry: dict[str, Any], value: Any) -> str:
    kind, count = entry["type"], entry.get("nargs")
    if isinstance(count, int) and len(as_list(value)) != count:
        return f"takes {count} values, not {len(as_list(value))}"
    if count is None and isinstance(value, (list, tuple)) and kind in ("bool", "int", "float", "str"):
        return "takes one value, not a list"
    test = _TESTS.get(kind)
    bad = [item for item in as_list(value) if not test(item)] if test is not None else []
    if kind == "int|list-text" and isinstance(value, str):
        return "" if _number_or_list(value) else f"{value!r} is neither a number nor a list such as [1]*3+[0]"
    return f"{bad[0]!r} is no {_NAMES[kind]}" if bad else ""


def _numbers_problem(key: str, value: Any) -> str:
    if key not in _NUMBERS or not isinstance(value, str) or not value:
        return ""
    if all(map(_is_int, value.strip(_NUMBERS[key]).split(","))):
        return ""
    return f"{value!r} is no list of whole numbers such as 1024,0"


def _number_or_list(text: str) -> bool:
    """What Megatron's pattern types take: a number, or a list expression of digits and `,[]()+*` alone."""
    if "[" not in text:
        return _is_int(text)
    return set(text) <= _LIST_EXPRESSION and evaluate_pattern(text) is not None


def _is_int(value: Any) -> bool:
    if isinstance(value, str):
        try:
            int(value)
        except ValueError:
            return False
        return True
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


def _is_float(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or value in (0, 1)


_TESTS = {"int": _is_int, "float": _is_float, "bool": _is_bool}
_NAMES = {"int": "whole number", "float": "number", "bool": "true or false"}
