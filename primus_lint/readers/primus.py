"""A Primus experiment file, resolved: text, `${...}`, `extends`, presets, `overrides`, command line.

Precedence, the strongest first: command line, `overrides`, module preset, model preset; within a file: own body, later
parent, earlier parent. A top-level key of the module preset shadows the model preset's (a section counts as one key).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import LocatedProblem, Origin, ResolvedDocument, Value
from primus_lint.readers.extends import Chain, extend
from primus_lint.readers.files import body_of_text
from primus_lint.readers.merge import Branch, flatten
from primus_lint.readers.module import resolve_module
from primus_lint.readers.presets import CONFIGS, Store, find_checkout, open_store
from primus_lint.source.spans import SpanDoc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.source.text import SourceText

REQUIRED = ("work_group", "user_name", "exp_name", "workspace")
COMMAND_LINE = "<command line>"


def read_primus(
    source: SourceText,
    *,
    env: Mapping[str, str] | None = None,
    set_values: Sequence[tuple[str, str]] = (),
    cli_words: Sequence[str] = (),
    primus_root: str | None = None,
    snapshot: str | None = None,
    model: str | None = None,
) -> ResolvedDocument:
    """Resolve one experiment file.

    env          environment variables for `${...}`; none by default, whatever the process has
    set_values   `--set` pairs (key, text); dots nest; texts are YAML 1.1 scalars
    cli_words    words of Primus's own command line (`--lr 1e-5`), typed as Primus types them; below `set_values`
    primus_root  a Primus checkout for the presets; by default one that the file lies in
    snapshot     version or path of a snapshot, instead of any checkout
    model        a model preset to use in place of the one that the file names

    Never raises for what the file says: problems are in the result, fatal ones where Primus itself stops. Raises
    SnapshotError or OSError when the snapshot cannot be opened.
    """
    env = env or {}
    doc = SpanDoc.parse(source)
    result = ResolvedDocument(source.path, "primus", source=source, doc=doc, is_recipe=False)
    result.sources[source.path] = source
    body = body_of_text(doc, "experiment", env)
    result.problems = body.problems
    own = body.branch
    if not body.mapping:
        result.is_recipe = doc.fatal and _looks_like_recipe(source.text)
        return result
    if "modules" not in own and "extends" not in own:
        _misspelt_modules(result, own)
        return result

    root = primus_root
    if root is None and snapshot is None:
        root = find_checkout(source.path)
    if root is not None and not os.path.isdir(os.path.join(root, CONFIGS)):
        message = f"{root} is no Primus checkout: it has no folder primus/configs; the shipped presets are used"
        result.problems.append(LocatedProblem("primus-root", message, source.path, None, 1, 1, True))
        root = None
    store = open_store(env, root, snapshot)
    result.preset_source = store.description
    chain = extend(store, body, "experiment", (os.path.normpath(source.path),))
    tree = chain.branch
    modules = tree.get("modules")
    orphan = any(problem.code == "extends-missing" for problem in chain.problems)
    if not _is_recipe(modules, tree, orphan):
        return result
    result.is_recipe = True
    result.problems = [*result.problems, *(problem for problem in chain.problems if problem not in body.problems)]
    _note_files(result, chain)
    _top_level(result, tree, () if orphan else REQUIRED)  # a parent that is not there may have them
    _environment(result, doc, env, "env" in own)
    _platform(result, store, tree)
    cli = command_line(set_values, cli_words, result.problems)
    if type(modules) is Branch:
        for name, node in modules.items():
            if orphan and type(node) is Branch and "framework" not in node:
                continue  # the parent that is not there may name it
            section = resolve_module(name, node, store, result, cli, model)
            if section is not None:
                result.sections.append(section)
    elif modules is not None or not orphan:
        result.problems.append(_at(modules, source.path, "modules-type", "`modules` is not a mapping", True))
    return result


def _looks_like_recipe(text: str) -> bool:
    """For a text that cannot be parsed: does it seem to be an experiment?"""
    return "modules:" in text and "trainer" in text


def _is_recipe(modules: Any, tree: Branch, orphan: bool) -> bool:
    """Whether a mapping is an experiment: a module with a trainer's name, or the required keys beside `modules`.
    Where a parent is missing (`orphan`), `modules` may be there."""
    if type(modules) is Branch and any("trainer" in name for name in modules):
        return True
    marks = sum(key in tree for key in REQUIRED)
    return ("modules" in tree and marks >= 2) or (orphan and marks >= 1)


def _misspelt_modules(result: ResolvedDocument, own: Branch) -> None:
    """An experiment that calls its `modules` something alike is one: Primus would stop at it."""
    from difflib import get_close_matches

    if sum(key in own for key in REQUIRED) < 2:
        return
    near = get_close_matches("modules", [key for key, node in own.items() if type(node) is Branch], 1, 0.75)
    entry = result.doc.entry((near[0],)) if near and result.doc is not None else None
    if entry is None or result.doc is None:
        return
    result.is_recipe = True
    line, column = result.doc.source.position(entry.key.start)
    message = f"unknown key {near[0]}; did you mean modules? Without `modules` there is nothing to run"
    span = (entry.key.start, entry.key.end)
    result.problems.append(
        LocatedProblem("modules-missing", message, result.path, span, line, column, True, (near[0],))
    )


def _at(node: Any, path: str, code: str, message: str, fatal: bool) -> LocatedProblem:
    """A problem at a node (a Value or Branch), or at the top of a file."""
    origins = getattr(node, "origins", ())
    if not origins:
        return LocatedProblem(code, message, path, None, 1, 1, fatal)
    origin = origins[0]
    where = origin.path or path
    return LocatedProblem(code, message, where, origin.span, origin.line, origin.column, fatal, origin.key_path)


def _note_files(result: ResolvedDocument, chain: Chain) -> None:
    result.presets.extend(file for file in chain.files if file != result.path and file not in result.presets)
    for path, source in chain.sources.items():
        result.sources.setdefault(path, source)
    result.env_used.update(chain.used)
    result.lost.update(chain.lost)


def _top_level(result: ResolvedDocument, tree: Branch, required: tuple[str, ...]) -> None:
    for key, node in tree.items():
        if key != "modules":
            result.top_level.update(flatten(node, key))
    for key in required:
        if key not in tree:
            message = f"required key `{key}` is missing at the top level"
            result.problems.append(LocatedProblem("missing-required-key", message, result.path, None, 1, 1, True))


def _environment(result: ResolvedDocument, doc: SpanDoc, env: Mapping[str, str], own: bool) -> None:
    """The `env:` block: exported as it stands in this very file (`$NAME` expands, `${NAME:default}` does not)."""
    from primus_lint.readers.env import expand_shell

    if not own:
        inherited = next((value for key, value in result.top_level.items() if key.split(".")[0] == "env"), None)
        if inherited is not None:
            message = "an `env:` block is not inherited through `extends`: these variables are not set"
            result.problems.append(_at(inherited, result.path, "env-not-inherited", message, False))
        return
    node = doc.node(("env",))
    if node is None or node.kind != "mapping":
        return
    for entry in node.entries:
        name, child = entry.key.value, entry.value
        if type(name) is not str or child.kind != "scalar" or child.value is None:
            continue
        text = expand_shell(child.value if isinstance(child.value, str) else str(child.value), env)
        line, column = doc.source.position(child.start)
        origin = Origin(
            "environment", text, result.path, ("env", name), (entry.key.start, entry.key.end), (child.start, child.end),
            line, column, child.raw,
        )  # fmt: skip
        result.env[name] = Value(text, (origin,))


def _platform(result: ResolvedDocument, store: Store, tree: Branch) -> None:
    node = tree.get("platform")
    if node is None:
        return
    name = node.get("config") if type(node) is Branch else None
    if type(name) is not Value or not isinstance(name.value, str):
        message = "`platform` wants a mapping with `config: FILE`"
        result.problems.append(_at(name or node, result.path, "platform-type", message, True))
        return
    if store.body(store.preset_path("platforms/" + name.value), "module-preset") is None:
        message = f"no platform preset {name.value}; there are: {', '.join(store.names('platforms'))}"
        result.problems.append(_at(name, result.path, "preset-missing", message, True))


def command_line(
    set_values: Sequence[tuple[str, str]], cli_words: Sequence[str], problems: list[LocatedProblem]
) -> Branch | None:
    """The values of the command line as a tree; None when there are none."""
    if not set_values and not cli_words:
        return None
    from primus_lint.readers.cli_values import primus_words, set_value

    tree = Branch()
    for key, value in primus_words(cli_words):
        _set(tree, key, value, None)
    for key, text in set_values:
        value = set_value(text)
        if isinstance(value, str) and _is_number(value):
            message = f"--set {key}={text}: YAML 1.1 reads {value} as text, not as a number; write {float(value)!r}"
            if "e" in repr(float(value)):
                message = message.rpartition(";")[0] + "; write it with a point and a signed exponent, as 1.0e-5"
            problems.append(LocatedProblem("set-number-as-text", message, COMMAND_LINE, None, 0, 0, False, (key,)))
        _set(tree, key, value, text)
    return tree


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text[:1] in "+-.0123456789"


def _set(tree: Branch, key: str, value: Any, raw: str | None) -> None:
    parts = key.split(".")
    for part in parts[:-1]:
        child = tree.get(part)
        if type(child) is not Branch:
            child = tree[part] = Branch((Origin("cli", None, COMMAND_LINE, (part,)),))
        tree = child
    raw = str(value) if raw is None else raw
    tree[parts[-1]] = Value(value, (Origin("cli", value, COMMAND_LINE, tuple(parts), raw=raw),))
