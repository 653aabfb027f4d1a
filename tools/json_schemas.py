"""JSON Schemas made from the key tables: Primus experiment files (for editors), and the settings."""

from __future__ import annotations

from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
VARIABLE = {"type": "string", "pattern": r"\$\{[^}]+\}"}
# What a value of a key may be. Anything may be null or hold a variable; Primus takes 0 and 1 for booleans.
KINDS: dict[str, list[dict[str, Any]]] = {
    "bool": [{"type": ["boolean", "null"]}, {"enum": [0, 1]}, VARIABLE],
    "int": [{"type": ["integer", "null"]}, VARIABLE],
    "float": [{"type": ["number", "null"]}, VARIABLE],
    "list": [{"type": ["array", "null"]}, {"type": ["string", "integer", "number"]}],
}


def experiment_schema(tables: dict[str, dict[str, Any]], version: str) -> dict[str, Any]:
    """Schema of an experiment file; `tables`: framework -> its key table."""
    definitions: dict[str, Any] = {name: {"anyOf": kinds} for name, kinds in KINDS.items()}
    choices = []
    for framework, table in tables.items():
        definitions[framework] = _keys(table["keys"])
        choices.append(
            {
                "if": {"properties": {"framework": {"const": framework}}, "required": ["framework"]},
                "then": {"properties": {"overrides": {"$ref": f"#/$defs/{framework}"}}},
            }
        )
    definitions["module"] = {
        "type": "object",
        "properties": {
            "framework": {"type": "string", "description": "the backend, and the folder of the presets"},
            "config": {"type": "string", "description": "module preset: primus/configs/modules/FRAMEWORK/CONFIG"},
            "model": {"type": "string", "description": "model preset: primus/configs/models/FRAMEWORK/MODEL"},
            "overrides": {"type": ["object", "null"], "description": "the run's own values"},
        },
        "allOf": choices,
    }
    text = {"type": ["string", "integer", "number", "null"]}
    return {
        "$schema": DRAFT,
        "title": f"Primus experiment ({version})",
        "description": "What Primus reads. Values are checked for their type only; primus-lint checks what they mean.",
        "type": "object",
        "properties": {
            "work_group": text,
            "user_name": text,
            "exp_name": text,
            "workspace": text,
            "extends": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            "env": {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}},
            "platform": {
                "type": "object",
                "properties": {"config": {"type": "string"}, "overrides": {"type": ["object", "null"]}},
                "required": ["config"],
            },
            "modules": {
                "type": "object",
                "patternProperties": {"trainer": {"$ref": "#/$defs/module"}},
                "additionalProperties": False,
            },
            "bases": {"not": {}, "description": "no longer read: write `extends`"},
        },
        "anyOf": [
            {"required": ["work_group", "user_name", "exp_name", "workspace", "modules"]},
            {"required": ["extends"]},
        ],
        "$defs": definitions,
    }


def _keys(keys: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Schema of the values of one framework; a dot in a key nests."""
    root: dict[str, Any] = {"type": ["object", "null"], "properties": {}}
    for key in sorted(keys):
        facts = keys[key]
        if facts["type"] == "section":
            _place(root, key)
            continue
        parent, _, name = key.rpartition(".")
        _place(root, parent)["properties"][name] = _value(facts)
    return root


def _place(root: dict[str, Any], path: str) -> dict[str, Any]:
    node = root
    for part in path.split(".") if path else ():
        child = node["properties"].get(part)
        if child is None or "properties" not in child:
            child = node["properties"][part] = {"type": ["object", "null"], "properties": {}}
        node = child
    return node


def _value(facts: dict[str, Any]) -> dict[str, Any]:
    kind = facts["type"]
    about: dict[str, Any] = {}
    if "choices" in facts and "nargs" not in facts:
        about["anyOf"] = [{"enum": [*facts["choices"], None]}, VARIABLE]
    elif "nargs" in facts or kind.lower().startswith(("list[", "tuple", "int-tuple")):
        about["$ref"] = "#/$defs/list"
    elif kind in KINDS:
        about["$ref"] = f"#/$defs/{kind}"
    words = []
    state, to = facts.get("state", "live"), facts.get("to")
    if state != "live":
        about["deprecated"] = True
        words.append(state + (f": use {to}" if to else ""))
    if facts.get("note"):
        words.append(facts["note"])
    if "default" in facts:
        about["default"] = facts["default"]
    if words:
        about["description"] = "; ".join(words)
    return about


def settings_schema() -> dict[str, Any]:
    """Schema of `primus-lint.toml`, and of `[tool.primus-lint]` in pyproject.toml."""
    texts = {"type": "array", "items": {"type": "string"}}
    count = {"type": "integer", "minimum": 1}

    def rules(what: str) -> dict[str, Any]:
        return {**texts, "description": f"{what}; rule names, codes, or the beginning of codes"}

    return {
        "$schema": DRAFT,
        "title": "Settings of primus-lint",
        "description": "primus-lint.toml, or the table [tool.primus-lint] of pyproject.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "extend": {
                "type": "string",
                "description": "a settings file that holds where this one says nothing; relative to this file",
            },
            "select": rules("exactly these rules are shown, instead of the profile's"),
            "extend-select": rules("rules shown besides the profile's"),
            "ignore": rules("rules not shown"),
            "per-file-ignores": {
                "type": "object",
                "additionalProperties": texts,
                "description": "glob -> rules not shown in the files that it matches",
            },
            "extend-per-file-ignores": {
                "type": "object",
                "additionalProperties": texts,
                "description": "the same, besides the entries of the file that this one extends",
            },
            "severity": {
                "type": "object",
                "additionalProperties": {"enum": ["error", "warning", "info"]},
                "description": (
                    "rule name, code, or the beginning of codes -> its severity here; the most specific entry holds"
                ),
            },
            "profile": {"enum": ["legal", "recommended", "all"], "default": "recommended"},
            "fail-on": {"enum": ["error", "warning", "info", "never"], "default": "error"},
            "exclude": {
                **texts,
                "description": "globs of files that runs over folders and hooks leave out; a file named alone is checked",
            },
            "extend-exclude": {**texts, "description": "the same, besides those of the file that this one extends"},
            "rule-paths": {**texts, "description": "folders with rules of your own, relative to this file"},
            "required-version": {"type": "string", "description": "a version of primus-lint, or a range: >=0.2, <1"},
            "framework-version": {"type": "string", "description": "a Megatron commit or release, or a Primus release"},
            "gpu-hour-price": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "price of one GPU for an hour, for `tune --objective cost`",
            },
            "agent-url": {
                "type": "string",
                "description": "base URL of an OpenAI-compatible endpoint, for `tune --agent`",
            },
            "agent-model": {"type": "string", "description": "name of the model there"},
            "targets": {
                "type": "array",
                "description": "which files run where; of several that match, the last holds",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "string", "description": "a glob, relative to this file"},
                        "gpu": {"type": "string", "description": "a name of `primus-lint hardware`"},
                        "nodes": count,
                        "world-size": {**count, "description": "GPUs in all"},
                        "gpus-per-node": count,
                    },
                },
            },
        },
    }
