"""One JSON object of `primus-lint batch` (design 4.3) -> ResolvedDocument with one section.

Strongest first: `args`; for `primus-megatron` the module preset `pre_trainer.yaml`; the facts of `model`; for
`primus-megatron` the built-in model defaults of Primus (`language_model.yaml`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import Origin, ResolvedDocument, Section, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMEWORKS = ("megatron", "primus-megatron", "torchtitan", "megatron_bridge")
_MODULE = "modules/megatron/pre_trainer.yaml"
_LANGUAGE_MODEL = "models/megatron/language_model.yaml"


class RequestError(ValueError):
    """A request that cannot be evaluated; the message says what is wrong and what is legal."""


def read_batch(request: dict[str, Any]) -> ResolvedDocument:
    """The document of one request. Raises RequestError for a wrong type, an unknown framework or model."""
    framework = request.get("framework", "megatron")
    if framework not in FRAMEWORKS:
        raise RequestError(f"framework {framework!r} is not modelled; legal are {', '.join(FRAMEWORKS)}")
    result = ResolvedDocument(str(request.get("id") or "<batch>"), "batch")
    result.sections.append(section_of(request, framework))
    for name, value in (request.get("env") or {}).items():
        result.env[name] = Value(value, (Origin("environment", value, key_path=("env", name)),))
    version = request.get("version")
    result.framework_version = None if version is None else str(version)
    return result


def section_of(request: dict[str, Any], framework: str) -> Section:
    """The arguments of a request as a section. Raises RequestError for a wrong type or an unknown model."""
    args = request.get("args") or {}
    if not isinstance(args, dict):
        raise RequestError("args is an object of argument names and values")
    name = request.get("model")
    values: dict[str, Value] = {}
    if framework in ("torchtitan", "megatron_bridge"):
        return _nested(args, name, framework)
    if framework == "primus-megatron":
        values.update(_primus_presets())
    if name is not None:
        facts = _model(name)
        for key, value in facts["args"].items():
            origin = Origin("model-table", value, f"model {facts['name']}", ("args", key))
            below = values.get(key)
            if below is None:
                values[key] = Value(value, (origin,))
            elif below.origin.layer == "module-preset":
                values[key] = Value(below.value, (*below.origins, origin))
            else:
                values[key] = Value(value, (origin, *below.origins))
        name = facts["name"]
    for key, value in args.items():
        below = values.get(key)
        origin = Origin("experiment", value, None, ("args", key))
        values[key] = Value(value, (origin,) if below is None else (origin, *below.origins))
    return Section("batch", "megatron", values, node_path=("args",), model=name)


def _nested(args: dict[str, Any], model: Any, framework: str) -> Section:
    """Dotted keys or nested sections. `model`, of torchtitan only, is a flavor (`llama3/70B`) or a name of the table;
    a recipe of Megatron-Bridge names its model itself."""
    from primus_lint.lower.torchtitan.models import flavor_of

    values: dict[str, Value] = {}
    if model is not None and framework == "torchtitan":
        found = flavor_of(model) if isinstance(model, str) else None
        if found is None:
            raise RequestError(f"model {model!r} is no flavor of torchtitan; a flavor is written llama3/70B")
        for key, value in zip(("model.name", "model.flavor"), found, strict=True):
            values[key] = Value(value, (Origin("model-table", value, f"model {model}", ("args", key)),))
    for path, value in _leaves("", args):
        below = values.get(path)
        origin = Origin("experiment", value, None, ("args", path))
        values[path] = Value(value, (origin,) if below is None else (origin, *below.origins))
    return Section("batch", framework, values, node_path=("args",), model=model)


def _leaves(path: str, tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(f"{path}{key}.", value)
        else:
            yield path + key, value


def _model(name: Any) -> dict[str, Any]:
    from primus_lint.readers.models import model_facts, nearest_models

    if not isinstance(name, str):
        raise RequestError(f"model is a name of the model table, not {name!r}")
    facts = model_facts(name)
    if facts is None:
        near = nearest_models(name)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise RequestError(f"model {name!r} is not in the model table{hint}")
    return facts


@lru_cache(maxsize=1)
def _primus_presets() -> dict[str, Value]:
    """What Primus's presets give every Megatron run: module preset over the defaults of a language model."""
    from primus_lint.readers.extends import load_chain
    from primus_lint.readers.merge import flatten, under_module_preset
    from primus_lint.readers.presets import open_store

    store = open_store({}, None, None)
    module = load_chain(store, store.preset_path(_MODULE), "module-preset")
    model = load_chain(store, store.preset_path(_LANGUAGE_MODEL), "model-preset")
    if module is None or model is None:
        raise FileNotFoundError("the shipped snapshot lacks Primus's base presets")
    tree, _ = under_module_preset(module.branch, model.branch)
    return dict(flatten(tree))
