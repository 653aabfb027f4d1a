"""One module of a Primus experiment: its presets, its `overrides`, the command line -> a Section."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import LocatedProblem, Origin, ResolvedDocument, Section, Value
from primus_lint.readers.extends import load_chain
from primus_lint.readers.merge import Branch, flatten, merge, override, under_module_preset

if TYPE_CHECKING:
    from primus_lint.readers.extends import Chain
    from primus_lint.readers.presets import Store

RESERVED = frozenset(("name", "framework", "config", "model", "overrides", "params"))
NESTED = frozenset(("torchtitan", "diffusion", "nemo_automodel"))  # frameworks whose keys are sections throughout
_KINDS = {"config": ("modules", "module"), "model": ("models", "model")}


def resolve_module(
    name: str, node: Any, store: Store, result: ResolvedDocument, cli: Branch | None, model: str | None = None
) -> Section | None:
    """The section of one module; None when there is nothing to make one of. Problems go to `result`."""
    found = _Module(name, node, store, result)
    if "trainer" not in name:
        found.problem(node, "module-name", f"module `{name}`: the name must contain `trainer`", True)
        return None
    if type(node) is not Branch:
        found.problem(node, "module-type", f"module `{name}` is not a mapping", True)
        return None
    framework = node.get("framework")
    if type(framework) is not Value or not isinstance(framework.value, str):
        found.problem(framework or node, "missing-framework", f"module `{name}` has no `framework`", True)
        return None
    if "config" in node and not any(store.names(f"{folder}/{framework.value}") for folder, _ in _KINDS.values()):
        found.problem(framework, "preset-missing", _no_framework(framework.value, store), True)
        return None
    if model is not None and "config" in node:
        node = _with_model(node, model, framework.value, store)
    return found.section(node, framework.value, cli)


def _no_framework(name: str, store: Store) -> str:
    from difflib import get_close_matches

    known = sorted({preset.partition("/")[0] for preset in store.names("modules") if "/" in preset})
    near = get_close_matches(name.lower(), known, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known) or 'none'}"
    return f"no presets for framework {name} in {store.description}; {hint}"


def _with_model(node: Branch, model: str, framework: str, store: Store) -> Branch:
    """The module with `--model` in place of its own; a name of the model table becomes the preset of that model."""
    names = [name.removesuffix(".yaml").removesuffix(".yml") for name in store.names(f"models/{framework}")]
    if model.removesuffix(".yaml") not in names:
        from primus_lint.readers.models import model_facts

        facts = model_facts(model)
        if facts is not None:
            same = (name for name in names if (model_facts(name) or {}).get("name") == facts["name"])
            model = next(same, model)
    old = node["model"].origins if "model" in node else ()
    result = Branch(node.origins)
    result.update(node)
    result["model"] = Value(model, (Origin("cli", model, "<command line>", ("--model",), raw=model), *old))
    return result


class _Module:
    __slots__ = ("name", "node", "result", "store")

    def __init__(self, name: str, node: Any, store: Store, result: ResolvedDocument) -> None:
        self.name = name
        self.node = node
        self.store = store
        self.result = result

    def problem(self, node: Any, code: str, message: str, fatal: bool, at_key: bool = False) -> None:
        origins = getattr(node, "origins", ())
        origin = origins[0] if origins else Origin("experiment", None, self.result.path, line=1, column=1)
        path = origin.path or self.result.path
        span, line, column = origin.span, origin.line, origin.column
        source = self.result.sources.get(path)
        if at_key and origin.key_span is not None and source is not None:
            span = origin.key_span
            line, column = source.position(span[0])
        self.result.problems.append(LocatedProblem(code, message, path, span, line, column, fatal, origin.key_path))

    def section(self, node: Branch, framework: str, cli: Branch | None) -> Section:
        meta = {key: child for key in ("framework", "config", "model") if type(child := node.get(key)) is Value}
        dropped: dict[str, Value] = {}
        path: tuple[str, ...] = ("modules", self.name, "overrides")
        if "config" not in node:
            tree = self.flattened(node)
            path = path[:2]
            self.result.format = "primus-export"
        else:
            tree, dropped = self.resolved(node, framework)
        if cli is not None:
            tree = merge(tree, cli, self.replaced)
        values = dict(flatten(tree))
        section = Section(
            self.name, framework, values, node_path=path, model=_stem(meta.get("model")),
            module_preset=_stem(meta.get("config")),
        )  # fmt: skip
        section.meta = meta
        section.dropped = dropped
        return section

    def flattened(self, node: Branch) -> Branch:
        """A module without `config`: an exported file, whose keys are the run's own values."""
        tree = Branch(node.origins)
        tree.update((key, child) for key, child in node.items() if key not in RESERVED or type(child) is Branch)
        if "overrides" in node:
            del tree["overrides"]
            message = "`overrides` has no effect without `config`: the module counts as already resolved"
            self.problem(node["overrides"], "overrides-ignored", message, False, at_key=True)
        return tree

    def resolved(self, node: Branch, framework: str) -> tuple[Branch, dict[str, Value]]:
        module = self.preset(node["config"], "config", framework)
        if "model" in node:
            model = self.preset(node["model"], "model", framework)
        else:
            model = None
            self.problem(node["config"], "missing-model", f"module `{self.name}` has `config` but no `model`", True)
        module_tree = _without_name(module.branch if module else Branch())
        model_tree = _without_name(model.branch if model else Branch())
        base = self.siblings(node, module_tree)
        tree, dropped = under_module_preset(base, model_tree)
        overrides = node.get("overrides")
        if type(overrides) is Branch:
            self.check_keys(overrides)
            tree = override(tree, overrides, self.replaced)
        elif overrides is not None and overrides.value is not None:
            self.problem(overrides, "overrides-type", "`overrides` is not a mapping", True)
        for key in ("name", "framework", "model"):
            if type(tree.get(key)) is Value:
                del tree[key]
        return tree, dropped

    def siblings(self, node: Branch, module: Branch) -> Branch:
        """Keys beside `overrides`: kept where the module preset has no such key, without effect where it has."""
        base = module
        for key, child in node.items():
            if key in RESERVED or key.startswith("_"):
                continue
            if key in module:
                message = (
                    f"`{key}` beside `overrides` has no effect: the module preset defines it; put it under `overrides`"
                )
                self.problem(child, "sibling-key-ignored", message, False, at_key=True)
                continue
            if key in ("extends", "bases"):
                message = f"`{key}` inside a module is an ordinary key: nothing is loaded; it belongs at the top level"
                self.problem(child, "nested-extends", message, False, at_key=True)
            if base is module:
                base = Branch(module.origins)
                base.update(module)
            base[key] = child
        return base

    def preset(self, node: Any, key: str, framework: str) -> Chain | None:
        folder, noun = _KINDS[key]
        name = node.value if type(node) is Value else None
        if not isinstance(name, str) or not name:
            shown = "a mapping" if type(node) is Branch else repr(name)
            self.problem(node, "preset-name-type", f"`{key}` wants the name of a {noun} preset, not {shown}", True)
            return None
        file = name if name.endswith((".yaml", ".yml")) else name + ".yaml"
        full = posixpath.normpath(posixpath.join(folder, framework, file))
        if full.startswith(("/", "..")):
            message = f"{noun} preset {name} lies outside primus/configs: Primus refuses it"
            self.problem(node, "preset-escape", message, True)
            return None
        chain = load_chain(self.store, self.store.preset_path(full), noun + "-preset")
        if chain is None:
            self.problem(node, "preset-missing", self.missing(name, noun, folder, framework), True)
            return None
        result = self.result
        seen = set(result.problems)
        result.problems.extend(problem for problem in chain.problems if problem not in seen)
        result.presets.extend(file for file in chain.files if file not in result.presets)
        for path, source in chain.sources.items():
            result.sources.setdefault(path, source)
        result.env_used.update(chain.used)
        return chain

    def missing(self, name: str, noun: str, folder: str, framework: str) -> str:
        from difflib import get_close_matches

        others = self.store.names(f"{folder}/{framework}")
        if not others:
            return f"no {noun} presets for framework {framework} in {self.store.description}"
        lowered = {other.removesuffix(".yaml").lower(): other for other in others}
        near = [lowered[key] for key in get_close_matches(name.removesuffix(".yaml").lower(), list(lowered), 3, 0.6)]
        hint = f"; near: {', '.join(near)}" if near else ""
        return f"no {noun} preset {name} for framework {framework} in {self.store.description}{hint}"

    def replaced(self, section: Branch, value: Value) -> None:
        origin = value.origin
        key = ".".join(str(part) for part in origin.key_path if part not in ("modules", self.name, "overrides"))
        what = "null" if value.value is None else f"{value.value!r}"
        message = f"{what} replaces the whole section `{key}` ({_keys(len(flatten(section)))} of the presets {'is' if len(flatten(section)) == 1 else 'are'} lost)"
        self.problem(value, "section-replaced", message, False)

    def check_keys(self, branch: Branch) -> None:
        for key, child in branch.items():
            if "." in key:
                message = (
                    f"`{key}` is one key with a dot in it, which nothing reads: dots nest on the command line only; "
                    "write nested mappings"
                )
                self.problem(child, "dotted-key", message, False, at_key=True)
            elif type(child) is Branch:
                self.check_keys(child)


def _without_name(tree: Branch) -> Branch:
    if "name" not in tree:
        return tree
    result = Branch(tree.origins)
    result.update((key, node) for key, node in tree.items() if key != "name")
    return result


def _stem(value: Value | None) -> str | None:
    return None if value is None else str(value.value).removesuffix(".yaml").removesuffix(".yml")


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count} keys"
