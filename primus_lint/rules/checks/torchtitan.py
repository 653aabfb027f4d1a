"""TorchTitan model names, flavors and model overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table
from primus_lint.rules.checks.key_facts import listed, nearest, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

CHOOSES = frozenset(("model.name", "model.flavor"))
ALIASES = {"llama3_ft": "llama3"}  # fine-tuning shares the flavors


def model_of(subject: Subject) -> tuple[str | None, str | None]:
    """(name, flavor) of the section's model."""
    name, flavor = subject.section.get("model.name"), subject.section.get("model.flavor")
    name = ALIASES.get(name, name) if isinstance(name, str) else None
    return name, str(flavor) if flavor is not None else None


def flavor(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """The flavor does not exist for the model."""
    name, wanted = model_of(subject)
    flavors = [key.partition("/")[2] for key in table("torchtitan")["flavors"] if key.startswith(f"{name}/")]
    if flavors and wanted is not None and wanted not in flavors:
        near = nearest(wanted, flavors, 0.5)
        hint = f"; did you mean {near}?" if near else ""
        message = f"model {name} has no flavor {wanted}; there are {listed(sorted(flavors), 12)}{hint}"
        yield say(rule, subject, message, ("model.flavor", "model.name"))


def model_key(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A key under `model:` that the model's arguments do not have: the run fails when it is set on them."""
    name, _ = model_of(subject)
    known = table("torchtitan")["model_overrides"].get(name or "")
    if known is None:
        return
    tabled = {key[6:] for key in table("torchtitan")["keys"] if key.startswith("model.")}
    for key in subject.section.values:
        field = key[6:].split(".")[0]
        if key.startswith("model.") and field not in known and field not in tabled:
            near = nearest(field, [*known, *tabled])
            hint = f"; did you mean {near}?" if near else ""
            yield say(rule, subject, f"the arguments of {name} have no field {field}{hint}", (key,))
