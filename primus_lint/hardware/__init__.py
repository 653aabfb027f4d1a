"""The hardware database: accelerators, node types, and the rates that the projection asks for.

`accelerator("H100-80")`, `node_type("hgx-h100-8")`, `names()`; seconds of operations are in `rates` and `collectives`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from primus_lint.hardware.records import Accelerator, NodeType

__all__ = ["Accelerator", "NodeType", "accelerator", "describe", "guess_from_path", "names", "node_type", "suggest"]


@cache
def _database() -> dict[str, Any]:
    from primus_lint.hardware.compiled import load

    return load()


def accelerator(name: str) -> Accelerator | None:
    """The accelerator of a name or alias (any case, any separators), or a device that the user measured; None when it is
    not known, see `suggest`."""
    found = _shipped(name)
    if found is None:
        from primus_lint.hardware import own

        return own.accelerator(name)
    return found


@cache
def _shipped(name: str) -> Accelerator | None:
    from primus_lint.hardware.naming import normalised

    database = _database()
    found = database["aliases"].get(normalised(name))
    return None if found is None else Accelerator(found, database["accelerators"][found])


def suggest(name: str) -> list[str]:
    """Up to three accelerators whose names or aliases look like `name`, best first."""
    from primus_lint.hardware.naming import near

    aliases = _database()["aliases"]
    return list(dict.fromkeys(aliases[alias] for alias in near(name, list(aliases))))


def names() -> list[str]:
    """Names of all accelerators."""
    return list(_database()["accelerators"])


def node_type(name: str, gpus_per_node: int | None = None) -> NodeType | None:
    """A node type by its own name, or of an accelerator: the first of its kinds with `gpus_per_node` GPUs, else its
    usual one. None when the name is neither."""
    found = _shipped_node(name, gpus_per_node)
    if found is None:
        from primus_lint.hardware import own

        return own.node_type(name)
    return found


@cache
def _shipped_node(name: str, gpus_per_node: int | None) -> NodeType | None:
    database = _database()
    nodes = database["nodes"]
    if name in nodes:
        return NodeType(name, nodes[name])
    found = _shipped(name)
    if found is None:
        return None
    fitting = [kind for kind in found.node_types if nodes[kind]["gpus_per_node"] == gpus_per_node]
    kind = (fitting or found.node_types)[0]
    return NodeType(kind, nodes[kind])


def node_data(name: str) -> dict[str, Any]:
    """The plain data of a node type."""
    data: dict[str, Any] = _database()["nodes"][name]
    return data


def guess_from_path(path: str) -> str | None:
    """The accelerator that a path names (`MI300X/`, `MI355/`, `llama_h100.yaml`); None when it names none."""
    from primus_lint.hardware.naming import guess_from_path as guess

    return guess(path, _database()["aliases"])


def describe(found: Accelerator) -> list[tuple[str, str, str, str]]:
    """Rows (label, value, unit, source) of everything the database knows about an accelerator, for people."""
    if found.name not in _database()["accelerators"]:
        from primus_lint.hardware import own

        return own.describe(found)
    from primus_lint.hardware.compiled import load
    from primus_lint.hardware.facts import rows

    return rows(found, load(full=True))
