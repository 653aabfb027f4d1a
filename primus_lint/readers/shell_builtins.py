"""Simple commands: assignments, what the shell itself does, scripts inside the script; all else is collected."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from primus_lint.readers.shell_compute import holds, pattern
from primus_lint.readers.shell_lexer import Heredoc
from primus_lint.readers.shell_output import echo, printed
from primus_lint.readers.shell_state import Leave, State
from primus_lint.readers.shell_text import Segment, Text, Unit, field_of, joined, plain, waits_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from primus_lint.readers.shell_syntax import Simple, Statement
    from primus_lint.readers.shell_text import Field

_MAX_COMMANDS = 10_000
MAX_FILE = 1 << 20  # bytes of a sourced script
MAX_FILES = 20
_SHELLS = ("bash", "sh", "zsh", "dash")
_DECLARE = ("export", "local", "declare", "readonly", "typeset")
_SELECTORS = ("find", "xargs", "parallel")  # run a shell on each item, to print something
# Commands that normally succeed and set nothing that a recipe hangs on.
_QUIET = frozenset(("cd", "pushd", "popd", "trap", "ulimit", "umask", "wait", "sleep", "mkdir", "module", "ml", "conda",
                    "rm", "cp", "mv", "ln", "touch", "chmod", "alias", "shopt", "hash", "date", "kill", "disown"))  # fmt: skip


class Builtins(State):
    def __init__(self, env: Mapping[str, str], path: str = "") -> None:
        super().__init__(env, path)
        self.commands: list[list[Field]] = []
        self.command_reads: list[set[str]] = []
        self.context: set[str] = set()  # variables that led to the text that is being run
        self.written: list[Text] = []  # here-documents that go to files
        self.files: list[str] = []
        self.missing: list[str] = []

    def script(self, text: Text) -> bool | None:
        raise NotImplementedError

    def sourced(self, words: list[Text]) -> bool | None:
        """`source FILE`, where the file is at hand."""
        name = plain(words[1]) if len(words) > 1 and waits_for(words[1]) is None else ""
        found = self.file_text(name)
        if found is None:
            self.missing.append(name or plain(joined(words)))
            return None
        try:
            return self.script(found)
        except Leave as leave:
            if leave.kind != "return":
                raise
            return leave.status

    def file_text(self, name: str) -> Text | None:
        """The text of a script that this one names: as written, or beside it; None when it is not there."""
        beside = os.path.join(os.path.dirname(self.path), name)
        for path in dict.fromkeys((name, beside)) if name else ():
            if os.path.isfile(path) and os.path.getsize(path) < MAX_FILE and len(self.files) < MAX_FILES:
                self.files.append(path)
                with open(path, encoding="utf-8", errors="replace") as file:
                    return (Segment(file.read(), -1),)
        return None

    def matches(self, value: str, shape: str) -> bool:
        return pattern(shape).fullmatch(value) is not None

    def simple(self, item: Simple) -> bool | None:
        place = item.unit.place(item.start)
        self.here = place if place >= 0 else self.here
        if not item.words:
            for assign in item.assigns:
                self.assign(assign)
            return True
        if item.words[0].literal in ("[", "test"):
            return self._bracket(item)
        outer, self.trace = self.trace, set()
        texts: list[Text] = []
        places: list[int] = []
        for word in item.words:
            found = self.fields(word)
            at = word.unit.place(word.start)
            texts.extend(found)
            places.extend([at if at >= 0 else self.here] * len(found))
        read = self.trace | self.context
        self.trace = outer | self.trace
        given = self._input(item)
        name = plain(texts[0]) if texts else ""
        if name in _DECLARE:
            return self._declare(item, name, texts[1:])
        before = {assign.name: self.variables.get(assign.name) for assign in item.assigns}
        for assign in item.assigns:
            self.assign(assign)
        if not texts:
            return True
        context, self.context = self.context, read
        try:
            return self._command(name, texts, places, given, tuple(before))
        finally:
            self.context = context
            for variable, old in before.items():
                if old is None:
                    self.variables.pop(variable, None)
                else:
                    self.variables[variable] = old

    def _input(self, item: Simple) -> Text | None:
        given = self.given
        for source in item.inputs:
            if isinstance(source, Heredoc):
                given = self.body(item.unit, source)
            else:
                given = (*self.word_text(source), Segment("\n", -1))
        return given

    def _bracket(self, item: Simple) -> bool | None:
        """`[ ... ]`: the words after splitting decide, as in a shell."""
        asked = set(self.asked)
        words: list[str | None] = []
        old, self.as_shell = self.as_shell, True
        try:
            for word in item.words[1:]:
                for text in self.fields(word):
                    why = waits_for(text)
                    self.why = why or self.why
                    words.append(None if why is not None else plain(text))
        finally:
            self.as_shell = old
        if words[-1:] == ["]"]:
            words.pop()
        optional = [word.literal for word in item.words[1:-1] if word.literal in ("-z", "-n")]
        if optional and len(item.words) <= 5:  # the usual way to ask for an optional variable
            self.asked = asked
        return holds(words)

    def _declare(self, item: Simple, name: str, words: list[Text]) -> bool:
        options = [plain(word) for word in words if plain(word)[:1] == "-"]
        names = []
        if "-p" in options:
            return all(
                plain(word) in self.variables or plain(word) in self.arrays for word in words if plain(word)[:1] != "-"
            )
        for assign in item.declared:
            if name == "local" or (name != "export" and self.locals and "-g" not in options):
                self.make_local(assign.name)
            if any("A" in option for option in options) and assign.items is not None and not assign.append:
                self.arrays[assign.name] = {}
            self.assign(assign)
            names.append(assign.name)
        for word in words:
            variable, equals, _ = plain(word).partition("=")
            if variable[:1] == "-" or not re.fullmatch(r"[A-Za-z_]\w*", variable):
                continue
            if name == "local":
                self.make_local(variable)
            if equals:
                self.put(variable, Unit(word).cut(len(variable) + 1, len(plain(word))))
            elif any("A" in option or "a" in option for option in options):
                self.arrays.setdefault(variable, {})
            names.append(variable)
        if name == "export" or any("x" in option for option in options):
            for variable in names:
                self.export(variable)
        return True

    def _command(
        self, name: str, texts: list[Text], places: list[int], given: Text | None, prefix: tuple[str, ...]
    ) -> bool | None:
        if name in ("exec", "command", "builtin") and len(texts) > 1 and plain(texts[1])[:1] != "-":
            status = self._command(plain(texts[1]), texts[1:], places[1:], given, prefix)
            if name == "exec":
                raise Leave("exit", status)
            return status
        if name in self.functions:
            return self._call(name, texts[1:])
        builtin = _BUILTINS.get(name)
        if builtin is not None:
            return builtin(self, texts, given)
        if name in ("echo", "printf") or (self.sink is not None and printed(texts, given) is not None):
            if self.sink is not None:
                self._print(name, texts, given)
            return True
        if name[:1] == "[" and name not in ("[", "[["):
            return False  # no such command
        if self._inner_script(name, texts, given):
            return None
        if name in _QUIET and self.sink is None:
            return self._place(name, texts) if name == "cd" else True
        if self.sink is not None and name in ("cd", "pwd"):
            return self._place(name, texts)
        self._record(texts, places, prefix)
        if self.sink is not None:
            if name == "tee" and given is not None:
                self.sink.append(given)
                return None
            every = [*texts, given or ()]
            why = next((segment.why for text in every for segment in text if segment.why is not None), None)
            shown = self.shown or name
            self.sink.append((Segment(shown, -1, None, why or shown),))
        elif name == "cat" and given is not None:
            self.written.append(given)
        self.why = self.why or (self.shown or name)
        return None

    def _place(self, name: str, texts: list[Text]) -> bool:
        """`cd` and `pwd`. Relative to the folder of this process: that of the path of the script, too."""
        if name == "cd":
            targets = [text for text in texts[1:] if not re.fullmatch(r"-[-LPe@]*", plain(text))]
            known = bool(targets) and waits_for(targets[0]) is None and plain(targets[0]) != ""
            self.directory = os.path.abspath(os.path.join(self.directory or "", plain(targets[0]))) if known else None
        elif self.sink is not None:
            known = self.directory is not None
            self.sink.append((Segment(self.directory or "$(pwd)", -1, None, None if known else "$(pwd)"),))
        return True

    def _print(self, name: str, texts: list[Text], given: Text | None) -> None:
        assert self.sink is not None
        if name == "echo":
            self.sink.append(echo(texts[1:]))
            return
        found = printed(texts, given)
        self.sink.append(found if found is not None else (Segment(self.shown, -1, None, self.shown or name),))

    def _record(self, texts: list[Text], places: list[int], prefix: tuple[str, ...]) -> None:
        if len(self.commands) < _MAX_COMMANDS:
            self.commands.append([field_of(text, at) for text, at in zip(texts, places, strict=True)])
            self.command_reads.append(set(self.context))
            for variable in prefix:
                self.export(variable)

    def _call(self, name: str, words: list[Text]) -> bool | None:
        positional = self.positional, self.given_positional
        self.positional, self.given_positional = words, False
        self.locals.append({})
        try:
            return self.execute(self.functions[name])
        except Leave as leave:
            if leave.kind != "return":
                raise
            return leave.status
        finally:
            for variable, (text, array) in self.locals.pop().items():
                self.variables.pop(variable, None)
                self.arrays.pop(variable, None)
                if text is not None:
                    self.variables[variable] = text
                if array is not None:
                    self.arrays[variable] = array
            self.positional, self.given_positional = positional

    def execute(self, item: Statement) -> bool | None:
        raise NotImplementedError

    def _inner_script(self, name: str, texts: list[Text], given: Text | None) -> bool:
        """Run the script that a command is handed: `bash -c TEXT` (behind any launcher), `sbatch --wrap TEXT`, or its
        standard input."""
        words = [plain(text) for text in texts]
        inner: Text | None = None
        arguments: list[Text] = []
        if name in _SELECTORS:
            return False
        for index, word in enumerate(words):
            if os.path.basename(word) in _SHELLS:
                at = index + 1
                while at < len(words) and words[at][:1] in ("-", "+") and "c" not in words[at][1:]:
                    at += 1
                if at + 1 < len(words) and words[at][:1] == "-" and words[at][:2] != "--":
                    inner, arguments = texts[at + 1], texts[at + 3 :]
                elif at == len(words) and given is not None:
                    inner = given
                elif at < len(words) and waits_for(texts[at]) is None:
                    inner, arguments = self.file_text(words[at]), texts[at + 1 :]
                break
            if word.startswith("--wrap") and name == "sbatch":
                inner = (
                    Unit(texts[index]).cut(7, len(word)) if "=" in word else (texts[index + 1 : index + 2] or [()])[0]
                )
                break
        if inner is None and given is not None and os.path.basename(name) in ("sbatch", "ssh"):
            inner = given
        if inner is None and name.endswith(".sh") and waits_for(texts[0]) is None:
            inner, arguments = self.file_text(name), texts[1:]
        if inner is None:
            return False

        def run() -> bool | None:
            self.positional = list(arguments)
            return self.script(inner)

        self.child(run, self.sink, None, exported_only=True)
        return True

    # what the shell does itself

    def _exit(self, texts: list[Text], given: Text | None) -> bool | None:
        raise Leave("exit", len(texts) < 2 or plain(texts[1]) == "0")

    def _return(self, texts: list[Text], given: Text | None) -> bool | None:
        raise Leave("return", len(texts) < 2 or plain(texts[1]) == "0")

    def _break(self, texts: list[Text], given: Text | None) -> bool | None:
        raise Leave(plain(texts[0]))

    def _eval(self, texts: list[Text], given: Text | None) -> bool | None:
        return self.script(joined(texts[1:]))

    def _source(self, texts: list[Text], given: Text | None) -> bool | None:
        return self.sourced(texts)

    def _unset(self, texts: list[Text], given: Text | None) -> bool:
        for text in texts[1:]:
            self.variables.pop(plain(text), None)
            self.arrays.pop(plain(text), None)
            self.exported.pop(plain(text), None)
        return True

    def _shift(self, texts: list[Text], given: Text | None) -> bool:
        count = plain(texts[1]) if len(texts) > 1 else "1"
        self.positional = self.positional[int(count) if count.isdecimal() and len(count) < 6 else 1 :]
        return True

    def _set(self, texts: list[Text], given: Text | None) -> bool:
        words = [plain(text) for text in texts]
        if "--" in words:
            self.positional, self.given_positional = texts[words.index("--") + 1 :], False
        for at, word in enumerate(words[1:]):
            if word in ("-a", "+a") or (word in ("-o", "+o") and words[at + 2 : at + 3] == ["allexport"]):
                self.export_all = word[0] == "-"
        return True

    def _read(self, texts: list[Text], given: Text | None) -> bool | None:
        words = [plain(text) for text in texts[1:]]
        to_array = any(re.fullmatch(r"-r?a", word) for word in words)
        whole = any(re.fullmatch(r"-r?d", word) for word in words)
        names = [word for word in words if re.fullmatch(r"[A-Za-z_]\w*", word)] or ["REPLY"]
        if given is None or waits_for(given) is not None:
            for name in names:
                self.put(name, (Segment(f"${name}", -1, name, "what read is given"),))
            return None
        if whole:
            self.put(names[-1], given)
            return True
        limits = plain(self.variables.get("IFS", (Segment(" \t\n", -1),)))
        line = plain(given).split("\n", 1)[0]
        blank = not limits.strip()
        parts = line.split() if blank else re.split("[" + re.escape(limits.strip()) + "]", line)
        if to_array:
            self.variables.pop(names[-1], None)
            self.arrays[names[-1]] = {str(index): (Segment(part, -1),) for index, part in enumerate(parts)}
            return True
        for index, name in enumerate(names):
            rest = parts[index:] if index == len(names) - 1 else parts[index : index + 1]
            self.put(name, (Segment((" " if blank else limits.strip()[:1]).join(rest), -1),))
        return True

    def _getopts(self, texts: list[Text], given: Text | None) -> bool | None:
        if self.given_positional:
            self.asked.add("#")
        return None if self.positional else False

    def _let(self, texts: list[Text], given: Text | None) -> bool | None:
        value: int | None = None
        for text in texts[1:]:
            value, why = self.arithmetic(Unit(text), 0, len(Unit(text).text))
            if value is None:
                return None if why else False
        return bool(value)

    def _mapfile(self, texts: list[Text], given: Text | None) -> bool | None:
        name = plain(texts[-1])
        if given is None or waits_for(given) is not None:
            self.arrays[name] = {"0": (Segment(f"${name}", -1, name, f"what {plain(texts[0])} is given"),)}
            return None
        self.arrays[name] = {str(i): (Segment(line, -1),) for i, line in enumerate(plain(given).splitlines())}
        return True


def _true(shell: Builtins, texts: list[Text], given: Text | None) -> bool:
    return True


def _false(shell: Builtins, texts: list[Text], given: Text | None) -> bool:
    return False


_BUILTINS: dict[str, Callable[[Builtins, list[Text], Text | None], bool | None]] = {
    ":": _true, "true": _true, "false": _false, "exit": Builtins._exit, "return": Builtins._return,
    "break": Builtins._break, "continue": Builtins._break, "eval": Builtins._eval, "source": Builtins._source,
    ".": Builtins._source, "unset": Builtins._unset, "shift": Builtins._shift, "set": Builtins._set,
    "read": Builtins._read, "getopts": Builtins._getopts, "let": Builtins._let, "mapfile": Builtins._mapfile,
    "readarray": Builtins._mapfile,
}  # fmt: skip
