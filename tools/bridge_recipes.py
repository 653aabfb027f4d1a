"""Write `schemas/megatron_bridge/made-VERSION.json`: what the recipe functions of Megatron-Bridge make.

    python tools/bridge_recipes.py [--to schemas/megatron_bridge]

Runs every recipe function of the installed `megatron-bridge` (with its `transformers` and `megatron-core`) and writes which
fields of the finished configuration differ from the class's own defaults, for every value of the arguments that a
recipe decides by. Configurations of Hugging Face are made with the default sizes of their class: sizes are not written, they
come from the table of public models. GPU libraries are stood in for: no recipe computes anything with them.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib
import importlib.abc
import importlib.machinery
import inspect
import itertools
import json
import os
import sys
import types
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from primus_lint.lower.bridge.made import NULLABLE, SWITCHES  # noqa: E402
from primus_lint.lower.bridge.megatron import COMM_OVERLAP, MODEL, PARTS, PEFT  # noqa: E402

STOOD_IN = (
    "transformer_engine", "modelopt", "wandb", "nvidia_resiliency_ext", "qwen_vl_utils", "mamba_ssm", "causal_conv1d", "timm",
    "open_clip", "nemo_run", "nvdlfw_inspect", "fla", "mlflow", "hydra", "megatron.energon", "multistorageclient", "torchvision",
)  # fmt: skip
FIELDS = {**PARTS, "comm_overlap": COMM_OVERLAP, "peft": PEFT}
# Part of a path on Hugging Face -> the configuration class and the architecture that Megatron-Bridge converts.
FAMILIES = (
    ("Qwen3-Next", "Qwen3NextConfig", "Qwen3NextForCausalLM"),
    ("Qwen3-30B", "Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    ("Qwen3-235B", "Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    ("Qwen3-", "Qwen3Config", "Qwen3ForCausalLM"),
    ("Qwen2", "Qwen2Config", "Qwen2ForCausalLM"),
    ("lama-", "LlamaConfig", "LlamaForCausalLM"),
    ("DeepSeek-V2", "DeepseekV2Config", "DeepseekV2ForCausalLM"),
    ("DeepSeek-V3", "DeepseekV3Config", "DeepseekV3ForCausalLM"),
    ("OLMoE", "OlmoeConfig", "OlmoeForCausalLM"),
)


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __or__(cls, other: Any) -> Any:
        return object

    __ror__ = __or__


def _stand_in(name: str) -> Any:
    nothing = {"__init__": lambda *a, **k: None, "__call__": lambda *a, **k: None}
    return _Meta(name, (object,), {**nothing, "__class_getitem__": classmethod(lambda cls, item: cls)})


class _Module(types.ModuleType):
    __version__ = "2.11.0"
    __file__ = "stand-in"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _stand_in(name))
        return self.__dict__[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if any(name == known or name.startswith(known + ".") for known in STOOD_IN):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def _plain(value: Any) -> Any:
    if isinstance(value, int | float | str | bool | None) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _fields(config: Any) -> dict[str, Any]:
    """`part.field` -> value, for the fields that matter to memory or time; parts that are absent or named by a string too."""
    out: dict[str, Any] = {}
    for part, names in FIELDS.items():
        made = getattr(config, part)
        if made is None:
            out[part] = None
            continue
        out[part] = type(made).__name__
        out.update({f"{part}.{name}": _plain(getattr(made, name)) for name in names if hasattr(made, name)})
    precision = config.mixed_precision
    out["mixed_precision"] = precision if isinstance(precision, str | None) else _precision(precision)
    specs = getattr(config.dataset, "packed_sequence_specs", None)
    out["packed_sequence"] = specs is not None
    out["dataset"] = type(config.dataset).__name__
    return out


def _precision(config: Any) -> dict[str, Any]:
    return {
        field.name: _plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != field.default
    }


def _install_models() -> list[tuple[str, str]]:
    """Let `AutoBridge` make providers from default sizes; returns the list of (path, architecture) that grows with use."""
    import torch
    import transformers
    from megatron.bridge import AutoBridge
    from megatron.bridge.models.conversion import model_bridge

    used: list[tuple[str, str]] = []

    def from_pretrained(cls: Any, path: str, **options: Any) -> Any:
        config_class, architecture = next(
            ((config, name) for part, config, name in FAMILIES if part in path), (None, None)
        )
        if config_class is None:
            raise LookupError(f"no family for {path}")
        config = getattr(transformers, config_class)()
        config.architectures, config.torch_dtype = [architecture], torch.bfloat16
        self = object.__new__(cls)
        self.pretrained = types.SimpleNamespace(config=config, generation_config=None, model_name_or_path=path)
        self.architecture = architecture
        used.append((path, architecture))
        return self

    def to_provider(self: Any, load_weights: bool = False, **options: Any) -> Any:
        bridge = model_bridge.get_model_bridge(getattr(transformers, self.architecture))
        return bridge.provider_bridge(self.pretrained)

    AutoBridge.from_hf_pretrained = classmethod(from_pretrained)
    AutoBridge.to_megatron_provider = to_provider
    return used


def recipes() -> dict[str, Any]:
    """`module:function` -> what it makes; recipes of models without a family are left out."""
    used = _install_models()
    import megatron.bridge.recipes as package
    import torch

    torch.cuda.get_device_properties = lambda device=0: types.SimpleNamespace(major=9, minor=0, name="stand-in")
    root = os.path.dirname(package.__file__)
    out: dict[str, Any] = {}
    families: dict[str, Any] = {}
    for folder in sorted(os.listdir(root)):
        if not os.path.isdir(os.path.join(root, folder)) or folder.startswith("_"):
            continue
        for file in sorted(os.listdir(os.path.join(root, folder))):
            if not file.endswith(".py") or file == "__init__.py" or folder.endswith("_vl"):
                continue
            module = importlib.import_module(f"{package.__name__}.{folder}.{file[:-3]}")
            for name, function in sorted(vars(module).items()):
                if (
                    name.endswith(("pretrain_config", "finetune_config"))
                    and inspect.isfunction(function)
                    and function.__module__ == module.__name__
                ):
                    entry = _recipe(function, used, families)
                    if entry is not None:
                        out[f"{folder}.{file[:-3]}:{name}"] = entry
    return {"families": families, "recipes": out}


def _recipe(function: Any, used: list[tuple[str, str]], families: dict[str, Any]) -> dict[str, Any] | None:
    """What one function makes: its family, the fields beyond the family's, and how the switches change them."""
    used.clear()
    try:
        base = _fields(function())
    except (LookupError, TypeError, AttributeError) as error:
        print(f"left out: {function.__name__}: {error}", file=sys.stderr)
        return None
    if not used:
        print(f"left out: {function.__name__}: its provider has its own sizes", file=sys.stderr)
        return None
    path, architecture = used[-1]
    if architecture not in families:
        from megatron.bridge import AutoBridge

        provider = AutoBridge.from_hf_pretrained(path).to_megatron_provider()
        families[architecture] = {
            f"model.{name}": _plain(getattr(provider, name)) for name in MODEL if hasattr(provider, name)
        }
    family = families[architecture]
    entry: dict[str, Any] = {"family": architecture, "hf_path": path}
    entry["makes"] = {key: value for key, value in base.items() if family.get(key, key) != value}
    entry["when"], entry["defaults"] = [], {}
    taken = {name: values for name, values in SWITCHES.items() if _takes(function, name, values[0])}
    for values in itertools.product(*taken.values()):
        chosen = dict(zip(taken, values, strict=True))
        made = _fields(function(**chosen))
        changed = {key: made.get(key) for key in {**base, **made} if made.get(key) != base.get(key)}
        if changed:
            entry["when"].append({"arguments": chosen, "makes": dict(sorted(changed.items()))})
        else:
            entry["defaults"] = chosen
    entry["null_keeps"] = [name for name in NULLABLE if _keeps(function, name, base)]
    return entry


def _keeps(function: Any, argument: str, base: dict[str, Any]) -> bool:
    """Whether a null leaves the choice of an argument to the function."""
    try:
        return _fields(function(**{argument: None})) == base
    except (AttributeError, TypeError, ValueError):
        return False


def _takes(function: Any, argument: str, value: Any) -> bool:
    try:
        function(**{argument: value})
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        return False
    return True


def precisions() -> dict[str, Any]:
    """Name of a mixed precision -> its fields beyond the class's defaults."""
    from megatron.bridge.training.mixed_precision import MIXED_PRECISION_RECIPES, get_mixed_precision_config

    return {
        name: _precision(get_mixed_precision_config(name))
        for name in sorted(MIXED_PRECISION_RECIPES)
        if "-" not in name
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default=os.path.join(ROOT, "schemas", "megatron_bridge"))
    folder = parser.parse_args().to
    sys.meta_path.insert(0, _Finder())
    from importlib.metadata import version

    found = {"megatron_bridge": version("megatron-bridge"), "precisions": precisions(), **recipes()}
    path = os.path.join(folder, f"made-{found['megatron_bridge']}.json")
    lines = ["{", f' "megatron_bridge": {json.dumps(found["megatron_bridge"])},']
    for table in ("precisions", "families", "recipes"):
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in found[table].items())
        lines.append(f' "{table}": {{\n{rows}\n }}' + ("," if table != "recipes" else ""))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "}"]) + "\n")
    print(f"{path}: {len(found['recipes'])} recipes")


if __name__ == "__main__":
    main()
