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


# Arguments of the pinned version that d98e8a64 spells differently: accepted there under the old name as well.
_RENAMED = {"enable_gloo_process_groups": "use_gloo_process_groups"}


@lru_cache(maxsize=None)
def aliases(version: str) -> dict[str, str]:
    """Name of a command-line flag -> name of the argument (dest) that it sets, where the two differ.

    `--norm-epsilon` sets `layernorm_epsilon`; flags that switch an argument off are not names of it.
    """
    table = keys(version)
    found = {old: new for old, new in _RENAMED.items() if old not in table and new in table}
    for key, entry in table.items():
        for flag in entry.get("flags") or ():
            name = flag.lstrip("-").replace("-", "_")
            if name not in table:
                found[name] = key
    return found


@lru_cache(maxsize=None)
def defaults(version: str, framework: str = "megatron") -> dict[str, Any]:
    """Key -> default value as the parsed namespace has it; a key of another version only is None.

    Primus's presets come on top of Megatron's defaults. A Primus-only key has the value that its code takes when the
    key is absent.
    """
    path = resources.compiled(f"defaults-{framework}-{key_table(version)}.json")
    if os.path.isfile(path) and not resources.is_checkout():
        with open(path, encoding="utf-8") as file:
            compiled: dict[str, Any] = json.load(file)
        return compiled
    return build_defaults(version, framework)


def build_defaults(version: str, framework: str) -> dict[str, Any]:
    """What `defaults` returns, from the key tables (the build compiles it)."""
    table: dict[str, Any] = {}
    for other in ("d3528a21", "d98e8a64"):
        table.update(dict.fromkeys(keys(other)))
    table.update(dict.fromkeys(keys(version, "primus-megatron")))
    if framework == "primus-megatron":
        for key, entry in keys(version, "primus-megatron").items():
            if entry.get("owner") == "primus" and entry.get("code_default") is not None:
                table[key] = entry["code_default"]
    table.update({key: entry.get("default") for key, entry in keys(version).items()})
    return table
