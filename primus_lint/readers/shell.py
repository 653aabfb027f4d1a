"""Launch scripts: the flags of Megatron's training command, with variables, arrays and defaults followed."""

from __future__ import annotations

import os
import re
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.readers.document import LocatedProblem, Origin, ResolvedDocument, Section, Value
from primus_lint.readers.flags import Given, newer_version, values_of
from primus_lint.readers.megatron_yaml import finish
from primus_lint.readers.program import trained_kind
from primus_lint.readers.shell_comments import unclosed
from primus_lint.readers.shell_eval import Shell
from primus_lint.readers.shell_launcher import batch_header, launcher
from primus_lint.readers.shell_state import Leave
from primus_lint.readers.shell_syntax import parse_shell
from primus_lint.readers.shell_text import Field, Segment, Unit, field_of, split_field
from primus_lint.readers.shell_tree import assigned
from primus_lint.readers.tables import flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from primus_lint.readers.shell_tree import Program
    from primus_lint.source.text import SourceText

# A command is a training command when it gives one of these.
MARKS = frozenset(
    ("--num-layers", "--hidden-size", "--micro-batch-size", "--tensor-model-parallel-size", "--global-batch-size")
)
MAX_CHARS = 1 << 20
_RUNS_ANOTHER = re.compile(  # which may train
    r"""(?:^|[\s;&|("'])(?:source\s+\S|(?:(?:\.|bash|sh|exec|sbatch)\s+\S+|\.{0,2}/\S+)\.(?:sh|sbatch|slurm)\b)|^\s*\.\s+\S""",
    re.MULTILINE,
)
# Programs that serve, evaluate or convert a model take Megatron's flags, too: a training command says how it trains.
_NO_TRAINING = re.compile(r"(^|/)(tools|tasks|inference)/|generat|server|infer|evaluat|convert|export|quantize")
_TRAINING = frozenset(("--train-iters", "--train-samples", "--lr", "--global-batch-size", "--epochs"))
_LAUNCHERS = ("torch.", "accelerate", "deepspeed")  # modules that run a script
_RANKS = ("--node_rank", "--node-rank")
_MAX_COMMANDS = 16  # training commands of one script that are reported
_DEEPSPEED = ("--deepspeed", "--deepspeed_config")  # of Megatron-DeepSpeed: another engine, with its own pipeline
# Programs of Megatron-LM itself: they know Megatron's flags and no others. Any other program may add its own.
STOCK = frozenset(("pretrain_gpt.py", "pretrain_hybrid.py", "pretrain_mamba.py", "train_rl.py"))


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
    marked = sum(mark in text for mark in MARKS)
    if len(text) > MAX_CHARS or not (marked or _RUNS_ANOTHER.search(text)):
        result.is_recipe = False
        return result
    if marked >= 2:
        result.problems.extend(_text_faults(source))
        if result.fatal:
            return result
    shell, stopped, training = follow(source, env or {})
    result.is_recipe = bool(training) or (stopped is not None and marked >= 2)
    result.env_used = dict(shell.used)
    for name, field in shell.exported.items():
        result.env[name] = Value(field.text, (_origin(source, field, field, "environment", ("export", name)),))
    if result.is_recipe and not training and stopped is not None:
        line, column = source.position(stopped)
        message = "the script leaves here, before any training command" + _settings(shell)
        result.problems.append(LocatedProblem("no-training-command", message, source.path, None, line, column, True))
    for index, (command, reads, around, lost, joined) in enumerate(training[:_MAX_COMMANDS]):
        script, behind = _script(command)
        words = [*command[behind:], *lost]  # the recipe that was meant
        name = os.path.basename(script) if script else "flags"
        framework = "megatron_deepspeed" if any(field.text in _DEEPSPEED for field in words) else "megatron"
        section = Section(name if index == 0 else f"{name}#{index + 1}", framework, {}, node_path=())
        section.command = _origin(source, command[0], command[0], "experiment", ())
        if kind := trained_kind(script):
            origin = _origin(source, command[0], None, "experiment", ("program",))._replace(value=kind)
            section.meta["program"] = Value(kind, (origin,))
        if version is None:
            names = [field.text.partition("=")[0] for field in words]
            version = result.framework_version = newer_version(name for name in names if name[:2] == "--")
        given, stray = _given(source, [_with_cause(field, shell) for field in words], version)
        keys = frozenset(key for key, _ in set_values)
        section.whole = bool(shell.commands)
        section.values, section.own_flags = values_of(
            given, version, source.path, result.problems, stock=name in STOCK, settled=keys, script=script
        )
        result.problems.extend(_strays(source, [field for field in stray if not _own(field, shell)], shell.missing))
        if joined is not None and name in STOCK:
            through = f"${joined.variable} is" if joined.variable else "the flags are"
            message = f"{through} one word here, in quotes: the parser knows no such flag; write it without quotes"
            result.problems.append(_problem(source, "stray-word", message, joined._replace(start=-1), False))
        result.problems.extend(_assumed(source, shell, reads, result))
        finish(section, result, set_values, model)
        result.sections.append(section)
        if index == 0:
            result.top_level.update(launcher(source, command, behind, batch_header(text), _origin, around))
    result.problems.extend(_lost(source, shell, bool(training)))
    result.problems = list(dict.fromkeys(result.problems))
    return result


class Training(NamedTuple):
    """A training command: its words, the variables that were read for it, the words that start its shell, the flags on
    the lines below it, where a slip ended the command too early, and all flags as one word, where quotes make them one."""

    command: list[Field]
    reads: set[str]
    around: list[Field]
    lost: list[Field]
    joined: Field | None


def _text_faults(source: SourceText) -> Iterator[LocatedProblem]:
    """What bash stumbles over before any word means something."""
    at = unclosed(source.text)
    if at is not None:
        line, column = source.position(at)
        message = "nothing closes this quote: bash leaves at the end of the file, before it runs what stands behind it"
        yield LocatedProblem("unclosed-quote", message, source.path, (at, at + 1), line, column, True)
    code = re.search(r"^[^\n#]*[^\s#][^\n#]*(\r)\n", source.text, re.MULTILINE)
    if code is not None:
        line, column = source.position(code.start(1))
        message = "lines end in CR LF: to bash the CR belongs to the last word of a line (`8\\r`)"
        yield LocatedProblem("windows-line-ends", message, source.path, None, line, column, False)


def follow(source: SourceText, env: Mapping[str, str]) -> tuple[Shell, int | None, list[Training]]:
    """The shell at the end of a script, the place where the script left before its end (None: it did not), and its
    training commands."""
    shell = Shell(env, source.path)
    for name, value in batch_header(source.text).variables.items():
        if name not in shell.variables:
            shell.variables[name] = (Segment(value, -1, name),)
            shell.inherited.add(name)
    program = parse_shell(Unit((Segment(source.text, 0),)))
    shell.owned = set(assigned(program))
    stopped = _run(shell, program)
    training: list[Training] = []
    for words, reads, around in zip(shell.commands, shell.command_reads, shell.command_starts, strict=True):
        command = _words(words)
        if training and _is_lost(words):
            training[-1].lost.extend(command)
        elif command and _trains(command) and _same(command) not in (_same(other.command) for other in training):
            training.append(Training(command, reads, around, [], _joined(words)))
    if not training:
        training = [Training(command, set(), [], [], None) for command in [_from_variables(shell)] if _trains(command)]
    return shell, stopped, training


def _same(command: list[Field]) -> list[str]:
    """What a command shares with those of a loop that starts it until it ends well, or once for every node."""
    words = [field.text for field in command]
    return [
        word
        for index, word in enumerate(words)
        if not word.startswith(_RANKS) and (index == 0 or words[index - 1] not in _RANKS)
    ]


def _run(shell: Shell, program: Program) -> int | None:
    """Follow the script; where it leaves before its end, the place of the command that does."""
    try:
        shell.run(program)
        if not any(_trains(_words(words)) for words in shell.commands):  # something unknown runs what it wrote
            for written in list(shell.files_made.values()):
                shell.child(partial(shell.script, written))
    except Leave as leave:
        return shell.here if leave.kind == "exit" else None
    return None


def _words(command: list[Field]) -> list[Field]:
    """The fields of a command; one that holds a whole command line (of a launcher unknown here) is taken apart. Behind
    one that hangs on an undecided condition stand the flags of a run where that does not hold."""
    found: list[Field] = []
    joined = _joined(command)
    for field in command:
        inner = not field.text.startswith("-") and sum(f" {mark}" in field.text for mark in MARKS) >= 2
        found.extend(split_field(field) if inner or field is joined else [field])
        if field.way:
            found.extend(split_field(field_of(field.way, field.at)))
    return found


def _joined(command: list[Field]) -> Field | None:
    """The word behind a training script that holds all of its flags."""
    for before, field in pairwise(command):
        if before.text.endswith(".py") and field.text.lstrip().startswith("--"):
            names = {word.partition("=")[0] for word in field.text.split()}
            return field if len(names & MARKS) >= 2 and len(field.text.split()) > 1 else None
    return None


def _trains(command: list[Field]) -> bool:
    names = [field.text.partition("=")[0] for field in command]
    if sum(name in MARKS for name in names) < 2:
        return False
    return not _TRAINING.isdisjoint(names) or _NO_TRAINING.search(_script(command)[0]) is None


def _from_variables(shell: Shell) -> list[Field]:
    """No command shows its flags (another file runs it): the flags of all variables and arrays, in order."""
    found = []
    for items in shell.arrays.values():
        fields = [field_of(text, 0) for text in items.values()]
        if any(field.text.startswith("--") for field in fields):  # a list of numbers has no flags
            found.extend(fields)
    for text in shell.variables.values():
        if any("--" in segment.text for segment in text):
            found.extend(split_field(field_of(text, 0)))
    return found


def _script(command: list[Field]) -> tuple[str, int]:
    """The training script (or the module of `-m`) and the place of the first word behind it; without one, all words.
    A launcher may be a script itself: the last one before Megatron's flags trains."""
    words = [field.text for field in command]
    end = next((index for index, word in enumerate(words) if word.partition("=")[0] in MARKS), len(words))
    found = []
    for index, word in enumerate(words[:end]):
        before = words[index - 1] if index else ""
        if word.endswith(".py") and (before == "--" or not before.startswith("--")):  # not the value of an option
            found.append((word, index + 1))
        elif before in ("-m", "--module") and not word.startswith(_LAUNCHERS):
            found.append((word.replace(".", "/") + ".py", index + 1))
    found = found or [(word, index + 1) for index, word in enumerate(words) if word.endswith(".py")][:1]
    return found[-1] if found else ("", 0)


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
            values.append(field._replace(text=value, start=start, at=max(start, field.at)))
        else:
            flag = known.get(name)
            most = len(words) if flag is None or flag.nargs in ("*", "+") else 1
            if flag is not None and flag.nargs is None and flag.type == "bool":
                most = 0
            elif flag is not None and isinstance(flag.nargs, int):
                most = flag.nargs
            while index < len(words) and len(values) < most and not words[index].text.startswith("--"):
                if (words[index].unset or words[index].way is not None) and (flag is None or values):
                    break  # flags that are missing, not a value
                values.append(words[index])
                index += 1
        key = field if not equals or field.start < 0 else field._replace(end=field.start + len(name))
        origin = _origin(source, key, values[0] if values else None, "experiment", ("flags", name))
        if len(values) > 1:
            together = values[0].start >= 0 and values[-1].end >= 0
            span = (values[0].start, values[-1].end) if together and values[0].start < values[-1].end else None
            origin = origin._replace(span=span, raw=source.text[span[0] : span[1]] if span else None)
        unknown = next((item.unknown for item in values if item.unknown is not None), None)
        given.append(Given(name, tuple(item.text for item in values), origin, unknown, source.position(key.at)))
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


def _own(field: Field, shell: Shell) -> bool:
    """A variable of the script itself that has no value here: it adds nothing."""
    name = field.text.strip("${}")
    return field.unset and (name in shell.owned or name in shell.asked_for)


def _with_cause(field: Field, shell: Shell) -> Field:
    """A variable that the script sets only under a condition on variables without value waits for those."""
    name = (field.unknown or "").removeprefix("$")
    if field.unset and name in shell.asked_for and not field.text.startswith("-"):
        return field._replace(unknown="$" + min(shell.asked_for[name][0]), variable=name)
    return field


def _strays(source: SourceText, stray: list[Field], missing: list[str]) -> Iterator[LocatedProblem]:
    """Words that belong to no flag: unknown ones may be anything, the others make the parser stop."""
    for field in stray:
        if field.unset:
            array = "[" in field.text
            files = f"; {', '.join(missing)} is read by the script and is not here" if missing else ""
            message = f"{field.unknown} is not set: read as a run without it{files}; give it with --env NAME=VALUE"
            if array and missing:
                message = f"{field.text} is not set{files}: the recipe is not complete"
                yield _problem(source, "unset-variable", message, field, True)
            else:
                yield _problem(source, "unset-variable-as-empty", message, field, False)
        elif field.way is not None:
            message = f"{field.text} hangs on {field.unknown}: read as a run where that does not hold"
            yield _problem(source, "unset-variable-as-empty", message, field, False)
        elif field.unknown is not None:
            message = f"{field.text} cannot be resolved without running the script ({field.unknown}): what it adds is not known"
            yield _problem(source, "unset-variable", message, field, False)
        elif field.text.strip() and not field.text.startswith("-"):
            message = f"{field.text!r} belongs to no flag: the parser refuses it"
            yield _problem(source, "stray-word", message, field, False)


def _assumed(source: SourceText, shell: Shell, reads: set[str], result: ResolvedDocument) -> Iterator[LocatedProblem]:
    """Variables without value whose conditions decide what the command gets."""
    names, todo = set(reads), list(reads)
    while todo:
        for name in shell.reads.get(todo.pop(), ()):
            if name not in names:
                names.add(name)
                todo.append(name)
    missing = {problem.message for problem in result.problems if problem.code == "unset-variable"}
    seen = {problem.message for problem in result.problems}
    for name in sorted(names & set(shell.asked_for)):
        asked, place = shell.asked_for[name]
        for variable in sorted(asked):
            if any(f"${variable} " in message for message in missing):
                continue
            message = f"${variable} is not set and decides here what ${name} is; read as a run without it: give it with --env {variable}=VALUE"
            if not any(message.split(" decides")[0] in other and "decides" in other for other in seen):
                line, column = source.position(place)
                seen.add(message)
                yield LocatedProblem("unset-variable-as-empty", message, source.path, None, line, column, False)


def _settings(shell: Shell) -> str:
    """The variables of the last conditions, and those that they are made of, which the caller may give."""
    names, todo = set(shell.decided_by), list(shell.decided_by)
    while todo:
        more = shell.reads.get(todo.pop(), set()) - names
        names |= more
        todo += more
    given = sorted(f"${name}" for name in names if name in shell.used or (name not in shell.owned and name != "#"))[:6]
    return f"; what steers it: {', '.join(given)}; give it with --env NAME=VALUE" if given else ""


def _is_lost(command: list[Field]) -> bool:
    """A line that begins with a flag: the command above ended before it."""
    return bool(command) and command[0].text.startswith("--") and command[0].unknown is None


def _lost(source: SourceText, shell: Shell, any_training: bool) -> Iterator[LocatedProblem]:
    for command in shell.commands if any_training else ():
        if _is_lost(command):
            message = f"{command[0].text} begins a command of its own: the command above ends before it (a backslash is missing, or a comment or a blank stands behind one)"
            yield _problem(source, "lost-flags", message, command[0], False)
