"""Defaults, types and choices of Megatron's arguments, by version: the shipped key tables."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

from primus_lint import resources
from primus_lint.lower.megatron.versions import key_table


@lru_cache(maxsize=None)
def keys(version: str, framework: str = "megatron") -> dict[str, dict[str, Any]]:
    """Key -> {type, default, choices, nargs, state, to, ...} of a version (framework "megatron" or "primus-megatron")."""
    name = "fd1eeabb" if framework == "primus-megatron" else key_table(version)
    path = os.path.join(resources.data_root("schemas"), framework, name + ".json")
    with open(path, encoding="utf-8") as file:
        table: dict[str, dict[str, Any]] = json.load(file)["keys"]
    return table


@lru_cache(maxsize=None)
def defaults(version: str, framework: str = "megatron") -> dict[str, Any]:
    """Key -> default value as the parsed namespace has it. Primus's presets come on top of Megatron's defaults."""
    name = f"megatron-defaults-{key_table(version)}.json"
    path = resources.compiled(name)
    if os.path.isfile(path) and not resources.is_checkout():
        with open(path, encoding="utf-8") as file:
            table: dict[str, Any] = json.load(file)
    else:
        table = {key: entry.get("default") for key, entry in keys(version).items()}
    return table
