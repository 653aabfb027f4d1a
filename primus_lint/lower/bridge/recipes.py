"""Megatron-Bridge recipes: which function a section calls, what it takes, and what its arguments come to.

Primus calls `recipe.flavor(**overrides)` and drops the arguments that the function does not take; nested blocks named
like a part of the configuration are laid over the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table

if TYPE_CHECKING:
    from primus_lint.readers.document import Section

PREFIXES = ("megatron.bridge.recipes.", "primus.backends.megatron_bridge.recipes.")


def recipe_name(section: Section) -> str | None:
    """`module:function` of a section; None when it names no recipe."""
    module, flavor = section.get("recipe"), section.get("flavor")
    if not isinstance(module, str) or not isinstance(flavor, str):
        return None
    for prefix in PREFIXES:
        module = module.removeprefix(prefix)
    return f"{module}:{flavor}"


def _chain(name: str) -> list[dict[str, Any]]:
    """The facts of a recipe function and of the helpers that it passes its arguments to; [] when one is unknown."""
    data = table("megatron_bridge")
    entry = data["recipes"].get(name)
    found: list[dict[str, Any]] = []
    while entry is not None and entry not in found:
        found.append(entry)
        target = entry.get("passes_to")
        if target is None:
            return found
        following = data["helpers"].get(target) or data["recipes"].get(target.removeprefix(PREFIXES[0]))
        if following is None:
            return []
        entry = following
    return found


def arguments(section: Section) -> set[str] | None:
    """Names that the recipe function and its helpers take; None for an unknown recipe or one that takes everything."""
    chain = _chain(recipe_name(section) or "")
    if not chain:
        return None
    return {argument for entry in chain for field in ("own", "pops") for argument in entry.get(field, ())}


def annotation(section: Section, argument: str) -> str:
    """The type that the recipe function or a helper states for an argument; "" when none does."""
    for entry in _chain(recipe_name(section) or ""):
        facts = entry.get("own", {}).get(argument)
        if isinstance(facts, list) and facts:
            return str(facts[0])
    return ""


def effective(section: Section) -> dict[str, Any] | None:
    """Argument -> the value that the recipe works with, as far as it is known; None for an unknown recipe.

    The helpers' defaults, then what the recipe recommends, then the section's own values where the function takes
    them, then what the recipe fixes. A value that depends on another argument is left out.
    """
    name = recipe_name(section)
    chain = _chain(name or "")
    if not chain:
        return None
    values: dict[str, Any] = {}
    for entry in reversed(chain):
        for argument, facts in entry.get("own", {}).items():
            if isinstance(facts, list) and len(facts) > 1:
                values[argument] = facts[1]
        values.update(entry.get("pops", {}))
        values.update(entry.get("recommended", {}))
    taken = arguments(section) or set()
    values.update({key: value.value for key, value in section.values.items() if key in taken})
    for entry in chain:
        values.update(entry.get("fixed", {}))
    return {key: value for key, value in values.items() if not (isinstance(value, str) and value.startswith("<"))}
