"""`extends`: a file's parents, merged below it. Parents are read recursively; later parents win over earlier ones, the
file itself over all. `bases`, the former name, is an ordinary key that nothing reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from primus_lint.readers.document import LocatedProblem, Origin, Value
from primus_lint.readers.merge import Branch, flatten, merge

if TYPE_CHECKING:
    from primus_lint.readers.files import Body
    from primus_lint.readers.presets import Store, _Signature
    from primus_lint.source.text import SourceText

MAX_CHAIN = 64
EXPERIMENTS = ("experiment", "extends")  # layers of experiment files; the others are presets
DEEPEST = 3  # modules, the module, `overrides`


class Chain:
    """A file with its parents merged in.

    branch    the merged tree, without `extends`
    problems  of all files of the chain
    files     every file read, this one first
    lost      what parents set in sections that a null, scalar or list replaces: path of the key -> what replaces, what was set
    """

    __slots__ = ("branch", "files", "lost", "problems", "signatures", "sources", "used")

    def __init__(self) -> None:
        self.branch = Branch()
        self.problems: list[LocatedProblem] = []
        self.files: list[str] = []
        self.lost: dict[tuple[str | int, ...], tuple[Origin, Value]] = {}
        self.sources: dict[str, SourceText] = {}
        self.used: dict[str, str | None] = {}
        self.signatures: dict[str, _Signature] = {}


def load_chain(store: Store, path: str, layer: str, stack: tuple[str, ...] = ()) -> Chain | None:
    """The chain of a file on disk or of a preset; None when there is no such file. Kept in the store."""
    known = store.chains.get((path, layer))
    if isinstance(known, Chain) and all(store.signature(file) == mark for file, mark in known.signatures.items()):
        return known
    body = store.body(path, layer)
    if body is None:
        return None
    chain = extend(store, body, layer, (*stack, os.path.normpath(path)))
    chain.signatures[path] = store.signature(path)
    if not any(problem.code == "extends-cycle" for problem in chain.problems):  # depends on where one entered it
        store.chains[path, layer] = chain
    return chain


def extend(store: Store, body: Body, layer: str, stack: tuple[str, ...]) -> Chain:
    """A body with its parents. `stack` holds the files being read, this one last."""
    chain = Chain()
    chain.files.append(body.path)
    chain.problems.extend(body.problems)
    chain.used.update(body.used)
    if body.source is not None:
        chain.sources[body.path] = body.source
    own = body.branch
    if "bases" in own:
        chain.problems.append(_bases(own["bases"], body))
    named = own.get("extends")
    if named is None:
        chain.branch = own
        return chain
    merged = Branch()
    for name, origin in _parents(named, chain, body.path):
        parent = _parent(store, name, origin, body.path, "extends" if layer == "experiment" else layer, stack, chain)
        if parent is not None:
            merged = merge(merged, parent.branch)
            _absorb(chain, parent)
    local = Branch(own.origins)
    local.update((key, node) for key, node in own.items() if key != "extends")
    chain.branch = merge(merged, local, (lambda old, new: _replaced(old, new, chain)) if layer in EXPERIMENTS else None)
    return chain


def _replaced(section: Branch, value: Value, chain: Chain) -> None:
    """A null, scalar or list where the parents have `modules`, a module, or its `overrides`: all of it is gone."""
    origin = value.origin
    if len(origin.key_path) > DEEPEST:
        return  # a section of keys: said where the presets have it
    leaves = flatten(section)
    chain.lost.update((leaf.origin.key_path, (origin, leaf)) for _, leaf in leaves)
    count = len(leaves)
    what = "an empty value (null)" if value.value is None else f"{value.value!r}"
    name = ".".join(str(part) for part in origin.key_path)
    message = (
        f"{what} replaces the whole section `{name}` of the parents that `extends` names: {count} "
        f"key{' is' if count == 1 else 's are'} lost; delete the line to keep {'it' if count == 1 else 'them'}"
    )
    chain.problems.append(_problem("section-replaced", message, origin.path or "", origin, False))


def _absorb(chain: Chain, parent: Chain) -> None:
    seen = set(chain.problems)
    chain.problems.extend(problem for problem in parent.problems if problem not in seen)
    chain.files.extend(file for file in parent.files if file not in chain.files)
    chain.lost.update(parent.lost)
    chain.sources.update(parent.sources)
    chain.used.update(parent.used)
    chain.signatures.update(parent.signatures)


def _problem(code: str, message: str, path: str, origin: Origin, fatal: bool = True) -> LocatedProblem:
    span = origin.span
    return LocatedProblem(code, message, path, span, origin.line, origin.column, fatal, origin.key_path)


def _bases(node: Value | Branch, body: Body) -> LocatedProblem:
    names = node.value if type(node) is Value else None
    names = [names] if isinstance(names, str) else names
    shown = ", ".join(map(str, names)) if isinstance(names, list) else "the parent"
    message = f"`bases` is no longer read (it became `extends`): {shown} is not loaded, the built-in defaults apply"
    line, column = body.keys_at["bases"]
    span = node.origins[0].key_span
    return LocatedProblem("bases-not-read", message, body.path, span, line, column, False, ("bases",))


def _parents(named: Value | Branch, chain: Chain, path: str) -> list[tuple[str, Origin]]:
    origin = named.origins[0]
    value = named.value if type(named) is Value else None
    if isinstance(value, str):
        return [(value, origin)]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [(item, origin) for item in value]
    shown = "a mapping" if type(named) is Branch else repr(value)
    chain.problems.append(
        _problem("extends-type", f"`extends` wants a file name or a list of them, not {shown}", path, origin)
    )
    return []


def _parent(
    store: Store, name: str, origin: Origin, path: str, layer: str, stack: tuple[str, ...], chain: Chain
) -> Chain | None:
    target = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if store.root is None and path.startswith("primus/configs/"):
        target = target.replace(os.sep, "/")
    if target in stack:
        shown = " -> ".join([*(os.path.basename(file) for file in stack[stack.index(target) :]), name])
        chain.problems.append(_problem("extends-cycle", f"`extends` goes round in a circle: {shown}", path, origin))
        return None
    if len(stack) >= MAX_CHAIN:
        chain.problems.append(_problem("extends-depth", f"more than {MAX_CHAIN} files extend each other", path, origin))
        return None
    parent = load_chain(store, target, layer, stack)
    if parent is None:
        chain.problems.append(_problem("extends-missing", _missing(store, target, name), path, origin))
    return parent


def _missing(store: Store, target: str, name: str) -> str:
    from difflib import get_close_matches

    folder, base = os.path.split(target)
    if store.root is None and folder.startswith("primus/configs/"):
        others = store.names(folder[len("primus/configs/") :])
    else:
        try:
            others = sorted(os.listdir(folder or "."))
        except (OSError, ValueError):
            others = []
    near = get_close_matches(base, [other for other in others if other.endswith((".yaml", ".yml"))], 3, 0.6)
    hint = f"; near: {', '.join(near)}" if near else ""
    return f"`extends` names {name}, which does not exist in {folder or '.'}{hint}"
