"""Megatron-Bridge recipes: which overrides reach the recipe function, and which stop it.

Primus calls `recipe:flavor(**overrides)`. An argument that the function does not take makes the call fail, and Primus
tries again without it: the key is dropped. An argument that the recipe itself passes on is a TypeError that the retry
does not catch. Nested blocks named like a field of the configuration are laid over the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.bridge import recipes
from primus_lint.readers.tables import table
from primus_lint.rules.checks.key_facts import WRITTEN, listed, nearest, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

CHOOSES = frozenset(("recipe", "flavor"))
# Keys that Primus sets on the finished configuration, whatever the recipe takes.
OF_PRIMUS = frozenset(("log_interval", "eval_interval", "eval_iters", "save_interval", "skip_save"))


def unknown_recipe(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """The recipe or its flavor does not exist."""
    name = recipe_name(subject)
    recipes = table("megatron_bridge")["recipes"]
    if name is None or name in recipes:
        return
    module, _, flavor = name.partition(":")
    flavors = [other.partition(":")[2] for other in recipes if other.startswith(module + ":")]
    if not flavors:  # a recipe of one's own may have any name: only a misspelt one is said
        near = nearest(module, sorted({other.partition(":")[0] for other in recipes}), 0.85)
        if near is not None:
            yield say(rule, subject, f"there is no recipe module {module}; near: {near}", ("recipe",))
        return
    near = nearest(flavor, flavors, 0.5)
    yield say(
        rule, subject, f"recipe {module} has no function {flavor}" + (f"; near: {near}" if near else ""), ("flavor",)
    )


def dropped(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Overrides that the recipe function does not take."""
    taken = arguments(subject)
    if taken is None:
        return
    blocks, known = table("megatron_bridge")["config"], table("megatron_bridge")["keys"]
    own = {key for key, facts in known.items() if not facts.get("recipes") and facts["state"] == "live"}
    lost = []
    for key, value in subject.section.values.items():
        root = key.split(".")[0]
        if root in taken or root in own or root in blocks or root in CHOOSES or root in OF_PRIMUS:
            continue
        if root in refused(subject) or root not in known:  # another rule says what no recipe takes
            continue
        if value.origins[0].layer in WRITTEN and root not in lost:
            lost.append(root)
    if lost:
        flavor = subject.section.get("flavor")
        message = (
            f"{listed(lost, 8)} {'is' if len(lost) == 1 else 'are'} dropped: {flavor} takes no such "
            f"argument{'' if len(lost) == 1 else 's'}, and its own settings run"
        )
        labels = tuple((key, "dropped") for key in lost[1:])
        yield say(rule, subject, message, tuple(lost), labels=labels, at_key=True)


def skipped(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Nested values of another type than the recipe's."""
    from primus_lint.lower.bridge import laid_over
    from primus_lint.lower.bridge.made import makes

    fields = makes(subject.section) or {}
    for key, value in subject.section.values.items():
        if "." in key and not laid_over(subject.section, key) and value.origins[0].layer in WRITTEN:
            its, ours = fields[key], type(value.value).__name__
            wanted = "the recipe leaves it null" if its is None else f"the recipe has {its!r}, {type(its).__name__}"
            message = f"{key} is not laid over the recipe's: {wanted}, and {value.value!r} is {ours}; Primus skips another type"
            yield say(rule, subject, message, (key,))


def refuses(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Arguments that the recipe passes itself."""
    for key in refused(subject):
        if key in subject.section.values:
            flavor = subject.section.get("flavor")
            message = f"{flavor} passes {key} itself: giving it again is a TypeError at the start"
            origin = subject.section.origin(key)
            layer = (
                ""
                if origin is None or origin.layer in WRITTEN
                else f" (set by the model preset {subject.section.model})"
            )
            yield say(rule, subject, message + layer, (key,))


def recipe_name(subject: Subject) -> str | None:
    """`module:function` of the section; None when it names no recipe."""
    return recipes.recipe_name(subject.section)


def refused(subject: Subject) -> tuple[str, ...]:
    recipe = table("megatron_bridge")["recipes"].get(recipe_name(subject) or "")
    return tuple(recipe.get("refuses", ())) if recipe else ()


def arguments(subject: Subject) -> set[str] | None:
    """Names that the recipe function and its helpers take; None for an unknown recipe or one that takes everything."""
    return recipes.arguments(subject.section)
