"""Megatron-LM's `model_config.yaml`: `MODEL_ARGS` holds command-line flags, `ENV_VARS` the environment.

The launcher of these files turns `--flag: true` into a bare flag, `[a b]` into words, anything else into one value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.readers.document import LocatedProblem, Origin, ResolvedDocument, Section, Value
from primus_lint.readers.env import variables
from primus_lint.readers.flags import Given, newer_version, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.source.node import Entry, Node
    from primus_lint.source.text import SourceText


def read_megatron_yaml(
    source: SourceText,
    *,
    env: Mapping[str, str] | None = None,
    set_values: Sequence[tuple[str, str]] = (),
    model: str | None = None,
    version: str | None = None,
) -> ResolvedDocument:
    """Read one file; see `read` for the parameters. Unknown, removed and misused flags are problems."""
    from primus_lint.readers.files import body_of_text
    from primus_lint.source.spans import SpanDoc

    doc = SpanDoc.parse(source)
    result = ResolvedDocument(source.path, "megatron-yaml", source=source, doc=doc)
    result.sources[source.path] = source
    body = body_of_text(doc, "experiment", env or {})
    fatal = [problem for problem in body.problems if problem.code != "unset-variable"]
    result.problems = fatal  # a variable that only the CI sets is no fault of these files
    args = doc.node(("MODEL_ARGS",))
    if not body.mapping or args is None or args.kind != "mapping":
        result.is_recipe = doc.fatal
        return result
    result.env_used = body.used
    reader = _Reader(source, env or {}, result)
    given = [reader.given(entry) for entry in args.entries if isinstance(entry.key.value, str)]
    if version is None:
        version = result.framework_version = newer_version(item.flag for item in given)
    values, own = values_of(given, version, source.path, result.problems)
    section = Section("MODEL_ARGS", "megatron", values, node_path=("MODEL_ARGS",))
    section.own_flags = own
    result.sections.append(section)
    finish(section, result, set_values, model)
    variables_node = doc.node(("ENV_VARS",))
    if variables_node is not None and variables_node.kind == "mapping":
        for entry in variables_node.entries:
            if entry.value.kind == "scalar" and isinstance(entry.key.value, str):
                result.env[entry.key.value] = Value(entry.value.scalar, (reader.origin(entry, "ENV_VARS"),))
    for key, node in body.branch.items():
        if key not in ("MODEL_ARGS", "ENV_VARS") and type(node) is Value:
            result.top_level[key] = node
    return result


# The launcher evaluates the words in bash: `${A:-8}` is 8 where A is unset or empty, `${A-8}` where it is unset.
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:(:?)-([^}]*))?\}")


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """A word with its variables as bash puts them in; one without value and default stays."""

    def value(match: re.Match[str]) -> str:
        name, colon, default = match.groups()
        found = env.get(name)
        if found is None or (colon and not found):
            found = match[0] if default is None else default.strip("\"'")
        return found

    return _VARIABLE.sub(value, text)


# The launcher of Megatron's tests hands the values to a shell, where `Et*3\\|\\(tt\\|\\)*6mL` is `Et*3|(tt|)*6mL`.
_ESCAPED = re.compile(r"\\+([|()<>;&])")


class _Reader:
    __slots__ = ("env", "result", "source")

    def __init__(self, source: SourceText, env: Mapping[str, str], result: ResolvedDocument) -> None:
        self.source = source
        self.env = env
        self.result = result

    def origin(self, entry: Entry, block: str) -> Origin:
        key, child = entry.key, entry.value
        line, column = self.source.position(child.start if child.start != child.end else key.start)
        raw = child.raw
        names = variables(raw)
        return Origin(
            "experiment", child.scalar, self.source.path, (block, key.value), (key.start, key.end),
            (child.start, child.end), line, column, raw, ",".join(names) or None,
        )  # fmt: skip

    def given(self, entry: Entry) -> Given:
        words = self.words(entry.value)
        missing = ", ".join(name for word in words for name in variables(word)) or None
        return Given(entry.key.value, words, self.origin(entry, "MODEL_ARGS"), missing)

    def words(self, node: Node) -> tuple[str, ...]:
        if node.kind == "sequence":
            return tuple(word for item in node.items for word in self.words(item))
        text = node.scalar
        if (node.kind == "scalar" and text in ("true", "True", "TRUE") and node.style == "plain") or text == "":
            return ()
        stripped = _ESCAPED.sub(r"\1", _expanded(text, self.env).strip())
        if stripped.startswith("[") and stripped.endswith("]"):
            return tuple(stripped[1:-1].replace(",", " ").split())
        return (stripped,)


def finish(
    section: Section, result: ResolvedDocument, set_values: Sequence[tuple[str, str]], model: str | None
) -> None:
    """`--model` facts below what the file says, `--set` values above it."""
    if model is not None:
        from primus_lint.readers.models import model_facts, nearest_models

        facts = model_facts(model)
        if facts is None:
            near = ", ".join(nearest_models(model)) or "none"
            message = f"--model {model} is not in the model table; near: {near}"
            result.problems.append(LocatedProblem("unknown-model", message, result.path, None, 1, 1, True))
        else:
            section.model = facts["name"]
            for key, value in facts["args"].items():
                origin = Origin("model-table", value, f"model {facts['name']}", ("args", key))
                old = section.values.get(key)
                section.values[key] = Value(
                    value if old is None else old.value, (origin,) if old is None else (*old.origins, origin)
                )
    if set_values:
        from primus_lint.readers.merge import flatten
        from primus_lint.readers.primus import command_line

        tree = command_line(set_values, (), result.problems)
        for key, value in flatten(tree) if tree is not None else ():
            old = section.values.get(key)
            section.values[key] = value if old is None else Value(value.value, (*value.origins, *old.origins))
