"""What a recipe function of Megatron-Bridge makes, field by field.

`schemas/megatron_bridge/made-*.json` was written by running the functions themselves (tools/bridge_recipes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.bridge.recipes import arguments, recipe_name
from primus_lint.readers.tables import table

if TYPE_CHECKING:
    from primus_lint.readers.document import Section

VERSION = "made-0.3.0"
# Arguments that a recipe decides by: more than the field of their own name follows from them.
SWITCHES: dict[str, tuple[object, ...]] = {
    "peft": ("none", "lora", "dora"), "packed_sequence": (False, True), "enable_recompute": (False, True),
}  # fmt: skip
# Arguments whose null leaves the choice to some of the functions.
NULLABLE = ("global_batch_size", "seq_length", "comm_overlap_config", "precision_config")


def makes(section: Section) -> dict[str, Any] | None:
    """Field -> value of the configuration that the section's recipe makes of its switches; None for an unknown recipe.

    `model.…`, `ddp.…`, `optimizer.…`, `train.…`, `comm_overlap.…` and `peft.…` are fields of those parts; the name of a part
    alone is the class of it, or None; `family` is the architecture, `hf_path` the model, `null_keeps` names the arguments
    whose null leaves the choice to the function.
    """
    data = table("megatron_bridge", VERSION)
    entry = data["recipes"].get(recipe_name(section))
    if entry is None:
        return None
    chosen = {**entry["defaults"], **_switches(section)}
    out = {**data["families"][entry["family"]], **entry["makes"]}
    out.update({key: entry[key] for key in ("family", "hf_path", "null_keeps")})
    for case in entry["when"]:
        if all(chosen.get(name) == value for name, value in case["arguments"].items()):
            out.update(case["makes"])
    return out


def _switches(section: Section) -> dict[str, Any]:
    """The switches that a section sets and its recipe takes, as the recipe reads them."""
    taken = arguments(section) or set()
    out: dict[str, Any] = {}
    for name in SWITCHES:
        if name in taken and name in section.values:
            value = section.get(name)
            out[name] = (str(value).lower() if value is not None else "none") if name == "peft" else bool(value)
    return out


def precision(name: str) -> dict[str, Any] | None:
    """The fields of a mixed precision by its name, beyond the defaults; None for an unknown name."""
    found: dict[str, Any] | None = table("megatron_bridge", VERSION)["precisions"].get(name.replace("-", "_"))
    return found
