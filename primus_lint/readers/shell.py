"""Launch scripts: the flags of Megatron's training command, with variables, arrays and defaults followed."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from primus_lint.readers.document import LocatedProblem, Origin, ResolvedDocument, Section, Value
from primus_lint.readers.flags import Given, values_of
from primus_lint.readers.megatron_yaml import finish
from primus_lint.readers.shell_eval import Field, Shell, Text, field_of, split_field
from primus_lint.readers.shell_syntax import parse_shell
from primus_lint.readers.tables import flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.source.text import SourceText

# A command is a training command when it gives one of these.
MARKS = frozenset(
    ("--num-layers", "--hidden-size", "--micro-batch-size", "--tensor-model-parallel-size", "--global-batch-size")
)
MAX_CHARS = 1 << 20
_TALK = frozenset(("echo", "printf", "cat", "tee", "log", "#"))
_LAUNCHER = {
    "--nnodes": "nodes", "--nproc_per_node": "gpus_per_node", "--nproc-per-node": "gpus_per_node",
    "--nproc": "gpus_per_node",
}  # fmt: skip


def read_shell(
    source: SourceText,
    *,
    env: Mapping[str, str] | None = None,
    set_values: Sequence[tuple[str, str]] = (),
    model: str | None = None,
    version: str | None = None,
) -> ResolvedDocument:
    """Read a launch script; see `read` for the parameters. No recipe when no command trains with Megatron's flags."""
    result = ResolvedDocument(source.path, "shell", source=source)
    result.sources[source.path] = source
    result.again = partial(read_shell, env=env, set_values=set_values, model=model, version=version)
    text = source.text
    if len(text) > MAX_CHARS or not any(mark in text for mark in MARKS):
        result.is_recipe = False
        return result
    shell = Shell(env or {})
    shell.run(parse_shell(text))
    commands = [_words(command) for command in shell.commands if command and command[0].text not in _TALK]
    training = [command for command in commands if _trains(command)]
    if not training:
        training = [command for command in [_from_variables(shell)] if _trains(command)]
    result.is_recipe = bool(training)
    result.env_used = dict(shell.used)
    for name, field in shell.exported.items():
        result.env[name] = Value(field.text, (_origin(source, field, field, "environment", ("export", name)),))
    for index, command in enumerate(training):
        script, words = _script(command)
        name = os.path.basename(script) if script else "flags"
        section = Section(name if index == 0 else f"{name}#{index + 1}", "megatron", {}, node_path=())
        given, stray = _given(source, words, version)
        section.values = values_of(given, version, source.path, result.problems)
        for field in stray:
            if field.unknown is not None:
                message = f"{field.text} cannot be resolved without running the script: what it adds is not known"
                result.problems.append(_problem(source, "unset-variable", message, field, False))
        finish(section, result, set_values, model)
        result.sections.append(section)
        if index == 0:
            _launcher(source, command, result)
    return result


def _words(command: list[Field]) -> list[Field]:
    """The fields of a command; one that holds a whole command line (`bash -c "..."`) is taken apart."""
    found: list[Field] = []
    for field in command:
        if " --" in field.text or "\n--" in field.text:
            found.extend(split_field(field))
        else:
            found.append(field)
    return found


def _trains(command: list[Field]) -> bool:
    return sum(field.text.partition("=")[0] in MARKS for field in command) >= 2


def _from_variables(shell: Shell) -> list[Field]:
    """No command shows its flags (another file runs it): the flags of all variables and arrays, in order."""
    texts: list[Text] = [text for texts in shell.arrays.values() for text in texts]
    found = [field_of(text, 0) for text in texts]
    for text in shell.variables.values():
        if any("--" in segment.text for segment in text):
            found.extend(split_field(field_of(text, 0)))
    return found


def _script(command: list[Field]) -> tuple[str, list[Field]]:
    """The training script and the words behind it; without one, all words."""
    for index, field in enumerate(command):
        if field.text.endswith(".py"):
            return field.text, command[index + 1 :]
    return "", command


def _given(source: SourceText, words: list[Field], version: str | None) -> tuple[list[Given], list[Field]]:
    """Flags with their words, and words that belong to none."""
    known = flags(version if version in ("d3528a21", "d98e8a64") else None)
    given: list[Given] = []
    stray: list[Field] = []
    index = 0
    while index < len(words):
        field = words[index]
        index += 1
        if not field.text.startswith("--") or field.text == "--":
            stray.append(field)
            continue
        name, equals, value = field.text.partition("=")
        values: list[Field] = []
        if equals:
            start = field.start + len(name) + 1 if field.start >= 0 else -1
            values.append(Field(value, start, field.end, max(start, field.at), field.variable, field.unknown))
        else:
            flag = known.get(name)
            most = len(words) if flag is None or flag.nargs in ("*", "+") else 1
            if flag is not None and flag.nargs is None and flag.type == "bool":
                most = 0
            elif flag is not None and isinstance(flag.nargs, int):
                most = flag.nargs
            while index < len(words) and len(values) < most and not words[index].text.startswith("--"):
                values.append(words[index])
                index += 1
        key = field if not equals or field.start < 0 else field._replace(end=field.start + len(name))
        origin = _origin(source, key, values[0] if values else None, "experiment", ("flags", name))
        if len(values) > 1:
            together = values[0].start >= 0 and values[-1].end >= 0
            span = (values[0].start, values[-1].end) if together and values[0].start < values[-1].end else None
            origin = origin._replace(span=span, raw=source.text[span[0] : span[1]] if span else None)
        unknown = next((item.unknown for item in values if item.unknown is not None), None)
        given.append(Given(name, tuple(item.text for item in values), origin, unknown))
    return given, stray


def _origin(source: SourceText, key: Field, value: Field | None, layer: str, path: tuple[str | int, ...]) -> Origin:
    field = key if value is None or value.start < 0 else value
    line, column = source.position(field.at)
    key_span = (key.start, key.end) if key.start >= 0 else None
    span = (value.start, value.end) if value is not None and value.start >= 0 else None
    raw = None if span is None else source.text[span[0] : span[1]]
    variable = None if value is None else value.variable
    note = f"through ${variable}" if variable else ""
    return Origin(layer, None if value is None else value.text, source.path, path, key_span, span, line, column, raw,
                  variable, note)  # fmt: skip


def _problem(source: SourceText, code: str, message: str, field: Field, fatal: bool) -> LocatedProblem:
    line, column = source.position(field.at)
    span = (field.start, field.end) if field.start >= 0 else None
    return LocatedProblem(code, message, source.path, span, line, column, fatal)


def _launcher(source: SourceText, command: list[Field], result: ResolvedDocument) -> None:
    """Nodes and GPUs per node as torchrun is told: `launcher.nodes`, `launcher.gpus_per_node` of `top_level`."""
    for index, field in enumerate(command):
        name, equals, text = field.text.partition("=")
        if name in _LAUNCHER and (equals or index + 1 < len(command)):
            value = field if equals else command[index + 1]
            text = text if equals else value.text
            if text.isdecimal():
                path = ("launcher", _LAUNCHER[name])
                origin = _origin(source, field, value, "experiment", path)._replace(value=int(text))
                result.top_level[".".join(path)] = Value(int(text), (origin,))
