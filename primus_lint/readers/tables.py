"""The shipped key tables: every key of a framework version with type, default, choices, flags and state.

The full tables (`schemas/FRAMEWORK/VERSION.json`) are parsed only where all facts are wanted; what every run needs is
compiled to small files when the package is built, and in a checkout again when a table is newer.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from primus_lint import resources
from primus_lint.tuples import NamedTuple

DEFAULT_VERSIONS = {
    "megatron": "d3528a21",
    "primus-megatron": "fd1eeabb",
    "torchtitan": "v0.2.2",
    "maxtext": "e591f30c",
    "megatron_bridge": "9577b128",
}


class Flag(NamedTuple):
    """A command-line flag. `off`: the flag stores false (the key is the positive name)."""

    key: str
    type: str
    nargs: str | int | None
    off: bool
    choices: tuple[Any, ...] | None


def table_path(framework: str, version: str | None = None) -> str:
    """Path of a key table (it may not exist)."""
    name = version or DEFAULT_VERSIONS.get(framework, "unknown")
    return os.path.join(resources.data_root("schemas"), framework, name + ".json")


@cache
def table(framework: str, version: str | None = None) -> dict[str, Any]:
    """A whole key table: {"keys": {key: facts}, "removed": {key: facts}, ...}. Raises FileNotFoundError."""
    with open(table_path(framework, version), encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


@cache
def defaults(framework: str, version: str | None = None) -> dict[str, Any]:
    """Key -> default (None where none is stated)."""
    loaded: dict[str, Any] = _compiled("defaults", framework, version)
    return loaded


@cache
def code_defaults(framework: str, version: str | None = None) -> dict[str, Any]:
    """Key -> the value that the framework's code takes when its own key is absent from every preset."""
    loaded: dict[str, Any] = _compiled("code-defaults", framework, version)
    return loaded


@cache
def numbers(version: str | None = None) -> frozenset[str]:
    """Megatron's arguments that hold one number."""
    return frozenset(_compiled("numbers", "megatron", version))


@cache
def flags(version: str | None = None) -> dict[str, Flag]:
    """Megatron's command-line flags of a version (its single entry scripts' too)."""
    rows = _compiled("flags", "megatron", version)
    return {
        flag: Flag(key, kind, nargs, off, None if choices is None else tuple(choices))
        for flag, (key, kind, nargs, off, choices) in rows.items()
    }


def _compiled(what: str, framework: str, version: str | None) -> Any:
    version = version or DEFAULT_VERSIONS[framework]
    path = resources.compiled(f"{framework}-{what}-{version}.json")
    source = table_path(framework, version)
    try:
        fresh = not resources.is_checkout() or os.stat(path).st_mtime_ns >= os.stat(source).st_mtime_ns
        if fresh:
            with open(path, encoding="utf-8") as file:
                return json.load(file)
    except (OSError, ValueError):
        pass
    data = _COMPILERS[what](table(framework, version))
    _write(path, data)
    return data


def _write(path: str, data: Any) -> None:
    """Keep a compiled file where that is possible; a reader never sees half of it."""
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            json.dump(data, file, separators=(",", ":"))
        os.replace(part, path)
    except OSError:
        pass


def _compile_defaults(source: dict[str, Any]) -> dict[str, Any]:
    return {key: facts.get("default") for key, facts in source["keys"].items()}


def _compile_code_defaults(source: dict[str, Any]) -> dict[str, Any]:
    return {
        key: facts["code_default"]
        for key, facts in source["keys"].items()
        if facts.get("owner") == "primus" and facts.get("code_default") is not None
    }


def _compile_flags(source: dict[str, Any]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for part in ("extra", "keys"):  # the common parser wins
        for key, facts in source.get(part, {}).items():
            about = [facts.get("type", "str"), facts.get("nargs")]
            for flag in facts.get("flags", ()):
                rows[flag] = [key, *about, False, facts.get("choices")]
            for flag in facts.get("flags_off", ()):
                rows[flag] = [key, *about, True, facts.get("choices")]
    return rows


def _compile_numbers(source: dict[str, Any]) -> list[str]:
    return sorted(
        key for key, facts in source["keys"].items() if facts.get("type") in ("int", "float") and not facts.get("nargs")
    )


_COMPILERS = {
    "code-defaults": _compile_code_defaults,
    "defaults": _compile_defaults,
    "flags": _compile_flags,
    "numbers": _compile_numbers,
}


def write_compiled(folder: str | None = None) -> list[str]:
    """Compile every table (the build calls this); the files written."""
    written = []
    wanted = [("defaults", framework, version) for framework, version in DEFAULT_VERSIONS.items()]
    head = "d98e8a64"
    wanted.append(("code-defaults", "primus-megatron", DEFAULT_VERSIONS["primus-megatron"]))
    wanted += [("numbers", "megatron", "d3528a21"), ("numbers", "megatron", head)]
    wanted += [("defaults", "megatron", head), ("flags", "megatron", "d3528a21"), ("flags", "megatron", head)]
    for what, framework, version in wanted:
        name = f"{framework}-{what}-{version}.json"
        path = os.path.join(folder, name) if folder else resources.compiled(name)
        _write(path, _COMPILERS[what](table(framework, version)))
        written.append(path)
    return written
