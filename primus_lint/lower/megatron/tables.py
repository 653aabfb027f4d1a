"""Defaults, types and choices of Megatron's arguments, by version: the shipped key tables."""

from __future__ import annotations

from functools import cache
from typing import Any

from primus_lint.lower.megatron.versions import key_table
from primus_lint.readers import tables


@cache
def keys(version: str, framework: str = "megatron") -> dict[str, dict[str, Any]]:
    """Key -> {type, default, choices, nargs, state, to, ...} of a version ("megatron" or "primus-megatron")."""
    name = None if framework == "primus-megatron" else key_table(version)
    table: dict[str, dict[str, Any]] = tables.table(framework, name)["keys"]
    return table


# Arguments of the pinned version that d98e8a64 spells differently: accepted there under the old name as well.
_RENAMED = {"enable_gloo_process_groups": "use_gloo_process_groups"}


@cache
def aliases(version: str) -> dict[str, str]:
    """Name of a command-line flag -> name of the argument (dest) that it sets, where the two differ.

    `--norm-epsilon` sets `layernorm_epsilon`; flags that switch an argument off are not names of it.
    """
    known = tables.defaults("megatron", key_table(version))
    found = {old: new for old, new in _RENAMED.items() if old not in known and new in known}
    for text, flag in tables.flags(key_table(version)).items():
        name = text.lstrip("-").replace("-", "_")
        if name not in known and not flag.off and flag.key in known:
            found[name] = flag.key
    return found


@cache
def defaults(version: str, framework: str = "megatron") -> dict[str, Any]:
    """Key -> default value as the parsed namespace has it; a key of another version only is None.

    Primus's presets come on top of Megatron's defaults. A Primus-only key has the value that its code takes when the
    key is absent.
    """
    table: dict[str, Any] = {}
    for other in ("d3528a21", "d98e8a64"):
        table.update(dict.fromkeys(tables.defaults("megatron", other)))
    table.update(dict.fromkeys(tables.defaults("primus-megatron")))
    if framework == "primus-megatron":
        table.update(tables.code_defaults("primus-megatron"))
    table.update(tables.defaults("megatron", key_table(version)))
    return table
