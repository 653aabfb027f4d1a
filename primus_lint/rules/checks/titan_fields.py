"""What TorchTitan's typed configuration refuses: unknown fields, values outside a field's choices, wrong types.

Only for a configuration of TorchTitan's own: Primus sets the values on the finished object, so nothing is refused there
(the rules about keys say what is lost).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.torchtitan.keys import GONE, HEAD
from primus_lint.lower.torchtitan.models import ALIASES
from primus_lint.readers.tables import table
from primus_lint.rules.engine import make, words
from primus_lint.rules.functions import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.lower.megatron import Lowered
    from primus_lint.rules.finding import Finding

_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
_NAMES = {"int": "whole number", "float": "number", "bool": "true or false", "str": "text"}


def fields(version: str) -> dict[str, dict[str, Any]]:
    """Dotted field -> facts of a version."""
    known: dict[str, dict[str, Any]] = {
        key: facts for key, facts in table("torchtitan")["keys"].items() if facts["type"] != "section"
    }
    if version == "b5bcd76c":
        known = {key: facts for key, facts in known.items() if key not in GONE} | {key: {"type": "?"} for key in HEAD}
        known["parallelism.expert_parallel_comm_backend"] = {"type": "str"}  # more backends, checked by the model
    return known


def titan_unknown(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """Fields that the configuration does not have. Arguments of the model are no fields: Primus overrides them."""
    if lowered.section.meta:
        return
    known = fields(lowered.version)
    name = lowered.section.get("model.name")
    of_model = table("torchtitan")["model_overrides"].get(ALIASES.get(name, name), ()) if isinstance(name, str) else ()
    for key in lowered.section.values:
        if key in known or (key.startswith("model.") and key.split(".")[1] in (*of_model, "moe_args")):
            continue
        from difflib import get_close_matches

        close = get_close_matches(key, known, 1, 0.8)
        hint = f"; did you mean {close[0]}?" if close else ""
        yield make(rule, lowered, f"torchtitan {lowered.version} has no field {key}{hint}", (key,))


def titan_choices(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values outside the choices of their field."""
    for key, facts, value in _given(lowered):
        legal = list(facts.get("choices") or ())
        bad = [item for item in as_list(value) if item not in legal] if legal else []
        if bad:
            yield make(rule, lowered, f"{key} cannot be {words(bad)}; legal are {words(legal)}", (key,))


def titan_types(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values of another type than their field's."""
    for key, facts, value in _given(lowered):
        kinds = [part.strip() for part in facts["type"].split("|")]
        simple = [_KINDS[kind] for kind in kinds if kind in _KINDS]
        if len(simple) < len([kind for kind in kinds if kind != "None"]):
            continue  # lists and unions of them
        legal = {item for kind in simple for item in kind}
        if legal and type(value) not in legal:
            wanted = " or ".join(_NAMES[kind] for kind in kinds if kind in _NAMES)
            yield make(rule, lowered, f"{key}: {value!r} is no {wanted}", (key,))


def _given(lowered: Lowered) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(field, facts, value) of every field that is given a value and known."""
    if not lowered.section.meta:
        known = fields(lowered.version)
        for key, value in lowered.section.values.items():
            if key in known and value.value is not None:
                yield key, known[key], value.value
