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


def programs(version: str) -> dict[str, dict[str, Any]]:
    """Arguments that single programs of Megatron's repository add to those of the parser."""
    extra: dict[str, dict[str, Any]] = tables.table("megatron", key_table(version))["extra"]
    return extra


def names_known(version: str) -> dict[str, Any]:
    """Every argument that a version's parser has (as a mapping for fast look-ups)."""
    return tables.defaults("megatron", key_table(version))


def numbers(version: str) -> frozenset[str]:
    """Arguments that hold one number."""
    return tables.numbers(key_table(version))


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
