"""TorchTitan's models: the arguments of a flavor, and what its training code supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ALIASES = {"llama3_ft": "llama3"}  # fine-tuning shares the flavors
# What v0.2.2 registers for a model (torchtitan/models/*/__init__.py): a pipeline split, a validator.
WITHOUT_PIPELINING = ("flux", "gpt_oss", "qwen3")
WITHOUT_VALIDATION = ("deepseek_v3", "gpt_oss")


def arguments(name: Any, flavor: Any) -> dict[str, Any]:
    """`model.FIELD` -> value of a flavor's model arguments, nested ones with more dots; {} when it is not known."""
    if not isinstance(name, str) or flavor is None:
        return {}
    facts: Mapping[str, Any] = table("torchtitan")["flavors"].get(f"{ALIASES.get(name, name)}/{flavor}", {})
    return dict(_flat("model", facts))


def _flat(path: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(f"{path}.{key}", value)
        else:
            yield f"{path}.{key}", value


def flavor_of(model: str) -> tuple[str, str] | None:
    """(name, flavor) of a model: a flavor (`llama3/70B`) or a model of the shipped table; None when there is none."""
    flavors = table("torchtitan")["flavors"]
    if model in flavors:
        name, _, flavor = model.partition("/")
        return name, flavor
    from primus_lint.readers.models import model_facts

    wanted = model_facts(model)
    for known in flavors:
        if wanted is not None and not known.endswith(("_flex", "_varlen", "_irope")):
            facts = model_facts(known)
            if facts is not None and facts["name"] == wanted["name"]:
                name, _, flavor = known.partition("/")
                return name, flavor
    return None
