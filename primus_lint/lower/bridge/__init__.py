"""ResolvedDocument section -> Lowered, for `framework: megatron_bridge`."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from primus_lint.lower.bridge.made import makes
from primus_lint.lower.bridge.namespace import FIELDS, BridgeNamespace
from primus_lint.lower.bridge.recipes import arguments, effective
from primus_lint.lower.megatron import Lowered, arch_of
from primus_lint.readers.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron.namespace import Namespace
    from primus_lint.readers.document import Section

PART_OF = {"precision_config": "mixed_precision", "comm_overlap_config": "comm_overlap"}
ARGUMENTS = {"tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size"}


def lower(
    section: Section,
    target: Target,
    version: str,
    framework: str,
    env: Mapping[str, str] | None = None,
    stack: Mapping[str, Any] | None = None,
) -> Lowered:
    """The namespace of a Megatron-Bridge section: the configuration that its recipe makes, as far as it is known."""
    config = table("megatron_bridge")["config"]
    names = BridgeNamespace({key: facts.get("default") for key, facts in config.items() if "." in key})
    names.update({key: value.value for key, value in section.values.items() if "." not in key})
    values = effective(section)
    if values is not None:
        names["checkpoint.save"] = "(folder of the run)"
        for argument, field in FIELDS.items():
            if argument in values:
                names[field] = values[argument]
        _add_made(names, section)
        facts = _model_facts(values.get("hf_path"))
        names.update({"of_model." + key: value for key, value in facts.items()})
        names["made.own_model"] = facts == _model_facts(names.get("made.hf_path"))
    nested = {key: value.value for key, value in section.values.items() if "." in key and laid_over(section, key)}
    names.update(nested)
    names["made.nested"] = tuple(nested)
    names["world_size"], names["gpus_per_node"] = target.world_size, target.gpus_per_node
    names["framework"], names["version"] = framework, version
    names["arch"] = (stack or {}).get("arch", arch_of(target.gpu))
    names["env_known"] = env is not None
    for name, text in (env or {}).items():
        names["env_" + name] = text
    return Lowered(names, [], None, section, target, version, framework)


def laid_over(section: Section, key: str) -> bool:
    """Whether Primus lays a nested value over what the recipe makes: it skips one of another type, so that of a field that
    is None only null is taken (primus/backends/megatron_bridge, `_merge_dict_to_dataclass`)."""
    fields = makes(section) or {}
    value = section.get(key)
    return key not in fields or value is None or isinstance(value, type(fields[key]))


def _add_made(names: BridgeNamespace, section: Section) -> None:
    """The fields that the recipe makes, where it is known; what the section gives and the recipe takes goes before."""
    fields = makes(section)
    if fields is None:
        return
    taken = arguments(section) or set()
    given = {
        key: value.value
        for key, value in section.values.items()
        if key in taken and not (value.value is None and key in fields["null_keeps"])
    }
    names.update({key if "." in key else "made." + key: value for key, value in fields.items()})
    degrees = ("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size")
    moved = any(key in given and given[key] != fields[FIELDS[key]] for key in degrees)
    names["made.moved_layout"] = moved and fields.get("model.pipeline_model_parallel_layout") is not None
    names.update({FIELDS[key]: value for key, value in given.items() if "." in FIELDS.get(key, "")})
    names.update({"made." + part: given[key] for key, part in PART_OF.items() if key in given})
    names["made.own_degrees"] = ", ".join(
        f"{name} {names[name]}" for name in ("tp", "pp", "cp") if ARGUMENTS[name] not in taken
    )


def _model_facts(path: Any) -> Mapping[str, Any]:
    """The sizes of a model by its path on Hugging Face; {} when it is not in the table."""
    from primus_lint.readers.models import model_facts

    facts = model_facts(path.rpartition("/")[2]) if isinstance(path, str) else None
    return {} if facts is None else facts["args"]


def candidates(names: Namespace, limit: int) -> list[int]:
    """World sizes at which the grid and the batch are whole."""
    grid, batch, micro = names["dense_grid"], names["gbs"], names["mbs"]
    if grid < 1:
        return []
    if batch is None or micro is None:
        return list(range(grid, limit + 1, grid))
    if micro < 1 or batch < 1 or batch % micro:
        return []
    return [
        size
        for size in range(grid, min(limit, batch // micro * grid) + 1, grid)
        if gcd(batch // micro, size // grid) == size // grid
    ]
