"""One configuration file's own body as a tree of values with origins: from its text, or from a snapshot's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import LocatedProblem, Origin, Value, source_problem
from primus_lint.readers.env import EnvUse, resolve
from primus_lint.readers.merge import Branch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.source.node import Node
    from primus_lint.source.spans import SpanDoc
    from primus_lint.source.text import SourceText


class Body:
    """A file's own keys, before `extends`.

    branch    the tree; empty when the file is not a mapping
    problems  what is wrong in this file
    used      environment variables it consulted, with the value found (None: unset)
    keys_at   line and column of the top-level keys
    mapping   is the file a mapping at all?
    """

    __slots__ = ("branch", "keys_at", "mapping", "path", "problems", "source", "used")

    def __init__(self, path: str, source: SourceText | None = None) -> None:
        self.path = path
        self.source = source
        self.branch = Branch()
        self.problems: list[LocatedProblem] = []
        self.used: dict[str, str | None] = {}
        self.keys_at: dict[str, tuple[int, int]] = {}
        self.mapping = True


def unset_variable(name: str, path: str, origin: Origin) -> LocatedProblem:
    """`${NAME}` without default, and no value for it."""
    message = f"environment variable {name} is not set and has no default here; give it with --env {name}=VALUE"
    return LocatedProblem(
        "unset-variable", message, path, origin.span, origin.line, origin.column, True, origin.key_path
    )


def body_of_text(doc: SpanDoc, layer: str, env: Mapping[str, str]) -> Body:
    """The body of a parsed file. Fatal problems: what the parser refuses, an empty file, a root that is no mapping, a
    key that is no string, a variable that is unset and has no default."""
    source = doc.source
    body = Body(source.path, source)
    body.problems = [
        source_problem(problem, source) for problem in doc.problems if problem.code != "non-string-key"
    ]  # those are fatal here: see below
    root = doc.root
    if root is None or root.kind != "mapping":
        body.mapping = False
        if not doc.fatal:
            if any(problem.code == "empty-file" for problem in body.problems):  # legal YAML, no experiment
                body.problems = [problem._replace(fatal=True) for problem in body.problems]
                return body
            what = "is empty" if root is None or root.value is None else "is not a mapping"
            body.problems.append(LocatedProblem("not-a-mapping", f"the file {what}", source.path, None, 1, 1, True))
        return body
    body.branch = _TextReader(body, source, layer, env).branch(root, (), ())
    body.keys_at = {
        entry.key.value: source.position(entry.key.start) for entry in root.entries if entry.key.kind == "scalar"
    }
    return body


class _TextReader:
    """Walks the tree of one file."""

    __slots__ = ("body", "env", "layer", "path", "source")

    def __init__(self, body: Body, source: SourceText, layer: str, env: Mapping[str, str]) -> None:
        self.body = body
        self.source = source
        self.path = source.path
        self.layer = layer
        self.env = env

    def branch(self, node: Node, path: tuple[str | int, ...], origins: tuple[Origin, ...]) -> Branch:
        result = Branch(origins)
        position = self.source.position
        layer, file = self.layer, self.path
        for entry in node.entries:
            key, child = entry.key, entry.value
            name = key.value if key.kind == "scalar" else None
            if type(name) is not str:
                self._bad_key(key, path)
                continue
            key_path = (*path, name)
            line, column = position(child.start if child.start != child.end else key.start)
            key_span = (key.start, key.end)
            span = (child.start, child.end)
            if child.kind == "mapping" and child.tag is None:
                origin = Origin(layer, None, file, key_path, key_span, span, line, column)
                result[name] = self.branch(child, key_path, (origin,))
                continue
            value = child.value
            raw = child.raw if child.kind == "scalar" or child.style == "flow" else None
            variable = None
            if "${" in (child.scalar if child.kind == "scalar" else child.raw):
                use = EnvUse()
                value = resolve(value, self.env, use)
                variable = ",".join(use.used) or None
                self.body.used.update(use.used)
                if use.missing:
                    origin = Origin(layer, value, file, key_path, key_span, span, line, column)
                    self.body.problems.extend(unset_variable(item, file, origin) for item in use.missing)
            if child.kind == "sequence":
                self._check_keys(child, key_path)
            origin = Origin(layer, value, file, key_path, key_span, span, line, column, raw, variable)
            result[name] = Value(value, (origin,))
        return result

    def _check_keys(self, node: Node, path: tuple[str | int, ...]) -> None:
        """Mappings inside lists become namespaces too: their keys must be strings."""
        for entry in node.entries:
            if type(entry.key.value) is not str:
                self._bad_key(entry.key, path)
            self._check_keys(entry.value, path)
        for index, item in enumerate(node.items):
            self._check_keys(item, (*path, index))

    def _bad_key(self, key: Node, path: tuple[str | int, ...]) -> None:
        line, column = self.source.position(key.start)
        shown = key.raw if len(key.raw) <= 40 else key.raw[:37] + "..."
        kinds = {
            "bool": "true or false",
            "NoneType": "nothing",
            "int": "a number",
            "float": "a number",
            "date": "a date",
        }
        kind = type(key.value).__name__ if key.kind == "scalar" else f"a {key.kind}"
        message = f"key {shown} is {kinds.get(kind, kind)} in YAML 1.1, not a string: Primus stops here; quote it"
        self.body.problems.append(
            LocatedProblem("non-string-key", message, self.path, (key.start, key.end), line, column, True, path)
        )


def body_of_facts(
    entries: list[list[Any]], path: str, layer: str, env: Mapping[str, str], source: SourceText | None = None
) -> Body:
    """The body of a preset from the snapshot's facts (see `snapshot.py` for their form). With `source`, the unchanged
    text of that file is at hand and spans are filled in."""
    body = Body(path, source)
    body.branch = _facts_branch(body, entries, layer, env, (), ())
    body.keys_at = {entry[0]: (entry[1], entry[2]) for entry in entries}
    return body


def _facts_branch(
    body: Body, entries: list[list[Any]], layer: str, env: Mapping[str, str], parent: tuple[str | int, ...],
    origins: tuple[Origin, ...],
) -> Branch:  # fmt: skip
    result = Branch(origins)
    path = body.path
    starts = body.source.line_starts if body.source is not None else None
    text = body.source.text if body.source is not None else ""
    for entry in entries:
        name, key_line, key_column, line, column, length, value = entry[:7]
        key_path = (*parent, name)
        key_span = span = None
        if starts is not None:
            at = starts[key_line - 1] + key_column - 1
            quotes = 2 if text[at : at + 1] in ("'", '"') else 0
            key_span = (at, at + len(name) + quotes)
            at = starts[line - 1] + column - 1
            span = (at, at + length)
        if type(value) is dict:
            origin = Origin(layer, None, path, key_path, key_span, span, line, column)
            result[name] = _facts_branch(body, value["keys"], layer, env, key_path, (origin,))
            continue
        raw = variable = None
        if len(entry) > 7:
            raw = entry[7]
            if "${" in raw:
                use = EnvUse()
                value = resolve(value, env, use)
                variable = ",".join(use.used) or None
                body.used.update(use.used)
                if use.missing:
                    origin = Origin(layer, value, path, key_path, key_span, span, line, column)
                    body.problems.extend(unset_variable(item, path, origin) for item in use.missing)
        result[name] = Value(
            value, (Origin(layer, value, path, key_path, key_span, span, line, column, raw, variable),)
        )  # fmt: skip
    return result
