"""Trees of values with their origins, and how Primus merges them.

A `Branch` is a mapping of a file (or of several, merged); its leaves are `Value`s. Merging never changes its inputs:
trees of presets are shared between files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import Origin, Value

if TYPE_CHECKING:
    from collections.abc import Callable

SHADOWED = "no effect: the module preset defines this key, and a model preset does not override it"


class Branch(dict[str, Any]):
    """A mapping: keys to `Value` (scalar or list) or `Branch`. `origins` says where the section itself was written."""

    __slots__ = ("origins",)

    def __init__(self, origins: tuple[Origin, ...] = ()) -> None:
        super().__init__()
        self.origins = origins


Node = Value | Branch


def above(stronger: tuple[Origin, ...], weaker: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """Two chains as one. A file that two parents share is in both chains: its origins are kept once, at their strongest
    place, so that chains never grow beyond the number of files."""
    for origin in weaker:
        for other in stronger:
            if origin is other:
                return stronger + tuple(item for item in weaker if not any(item is other for other in stronger))
    return stronger + weaker


def merge(base: Branch, over: Branch, replaced: Callable[[Branch, Value], None] | None = None) -> Branch:
    """`over` on top of `base`: mappings merge, everything else replaces. `replaced` hears of each section of `base`
    that a scalar or list of `over` wipes out."""
    result = Branch(above(over.origins, base.origins))
    result.update(base)
    for key, new in over.items():
        old = result.get(key)
        result[key] = new if old is None else _join(old, new, replaced)
    return result


def _join(old: Node, new: Node, replaced: Callable[[Branch, Value], None] | None) -> Node:
    if type(new) is Value:
        if type(old) is Value:
            return Value(new.value, above(new.origins, old.origins))
        if replaced is not None and old:
            replaced(old, new)  # type: ignore[arg-type]
        return Value(new.value, above(new.origins, old.origins))
    if type(old) is Branch:
        return merge(old, new, replaced)  # type: ignore[arg-type]
    fresh = Branch(above(new.origins, old.origins))
    fresh.update(new)  # type: ignore[arg-type]
    return fresh


def under_module_preset(module: Branch, model: Branch) -> tuple[Branch, dict[str, Value]]:
    """Module preset with the model preset below it: a top-level key that the module preset has keeps the module's
    value, whole sections included. Returns the tree, and the dropped leaves that have no live counterpart.

    The text "null" becomes None in the module's own values and in the model's direct ones (the model's new sections
    are turned later, when `overrides` are merged).
    """
    result = Branch(module.origins + model.origins)
    for key, node in module.items():
        result[key] = nullify(node)
    dropped: dict[str, Value] = {}
    for key, node in model.items():
        mine = result.get(key)
        if mine is None:
            result[key] = _null_leaf(node) if type(node) is Value else node
        else:
            result[key] = _shadow(mine, node, key, dropped)
    return result, dropped


def _shadow(live: Node, lost: Node, path: str, dropped: dict[str, Value]) -> Node:
    """`live` with the origins of `lost` at the weak end, marked; leaves without counterpart go to `dropped`."""
    if type(live) is Value:
        return Value(live.value, live.origins + _marked(lost.origins))
    result = Branch(live.origins + _marked(lost.origins))
    result.update(live)  # type: ignore[arg-type]
    if type(lost) is Branch:
        for key, node in lost.items():
            mine = result.get(key)
            if mine is not None:
                result[key] = _shadow(mine, node, f"{path}.{key}", dropped)
            else:
                for leaf, value in flatten(node, f"{path}.{key}"):
                    dropped[leaf] = Value(value.value, _marked(value.origins))
    else:
        dropped[path] = Value(lost.value, _marked(lost.origins))  # type: ignore[union-attr]
    return result


def _marked(origins: tuple[Origin, ...]) -> tuple[Origin, ...]:
    return tuple(origin if origin.note else origin._replace(note=SHADOWED) for origin in origins)


def override(base: Branch, over: Branch, replaced: Callable[[Branch, Value], None] | None = None) -> Branch:
    """The `overrides` of a module on top of its presets. Like `merge`, but the text "null" becomes None wherever the
    section existed before; in a section that `overrides` brings in, and in lists, it stays text."""
    result = Branch(above(over.origins, base.origins))
    for key, node in base.items():
        result[key] = nullify(node)
    for key, new in over.items():
        old = result.get(key)
        if type(new) is Value:
            new = _null_leaf(new)
            result[key] = new if old is None else _join(old, new, replaced)
        elif type(old) is Branch:
            result[key] = override(old, new, replaced)
        else:
            result[key] = new if old is None else _join(old, new, replaced)
    return result


def nullify(node: Node) -> Node:
    """The node with every "null" text as None, at any depth (not inside lists); itself when there is none."""
    if type(node) is Value:
        return _null_leaf(node)
    changed = {key: fresh for key, child in node.items() if (fresh := nullify(child)) is not child}  # type: ignore[union-attr]
    if not changed:
        return node
    result = Branch(node.origins)
    result.update(node)  # type: ignore[arg-type]
    result.update(changed)
    return result


def _null_leaf(value: Value) -> Value:
    return Value(None, value.origins) if value.value == "null" and type(value.value) is str else value


def flatten(node: Node, path: str = "") -> list[tuple[str, Value]]:
    """Leaves with dotted names, in order. An empty section is a leaf of value {}; a key that itself holds a dot is
    left out (nothing reads it; the reader reports it)."""
    leaves: list[tuple[str, Value]] = []
    if type(node) is Value:
        leaves.append((path, node))
        return leaves
    prefix = path + "." if path else ""
    for key, child in node.items():  # type: ignore[union-attr]
        if "." in key:
            continue
        if type(child) is Value:
            leaves.append((prefix + key, child))
        elif child:
            leaves.extend(flatten(child, prefix + key))
        else:
            leaves.append((prefix + key, Value({}, child.origins)))
    return leaves


def plain(node: Node) -> Any:
    """The bare Python value of a node."""
    if type(node) is Value:
        return node.value
    return {key: plain(child) for key, child in node.items()}  # type: ignore[union-attr]
