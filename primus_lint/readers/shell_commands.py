"""Simple commands: assignments, tests, functions, builtins; all else is collected."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from primus_lint.readers.shell_builtins import BUILTINS, Builtins
from primus_lint.readers.shell_compute import holds
from primus_lint.readers.shell_lexer import Heredoc
from primus_lint.readers.shell_output import echo, printed
from primus_lint.readers.shell_state import Leave
from primus_lint.readers.shell_text import Segment, Text, Unit, field_of, plain, waits_for
from primus_lint.readers.shell_tree import Taken

if TYPE_CHECKING:
    from primus_lint.readers.shell_tree import Simple

_MAX_COMMANDS = 10_000
_DECLARE = ("export", "local", "declare", "readonly", "typeset")
# Commands that normally succeed and set nothing that a recipe hangs on; the first of them print nothing either.
_SILENT = frozenset(("cd", "trap", "wait", "sleep", "mkdir", "rm", "cp", "mv", "ln", "touch", "chmod", "disown"))
_QUIET = _SILENT | {
    "pushd",
    "popd",
    "ulimit",
    "umask",
    "module",
    "ml",
    "conda",
    "alias",
    "shopt",
    "hash",
    "date",
    "kill",
}


class Commands(Builtins):
    def simple(self, item: Simple) -> bool | None:
        place = item.unit.place(item.start)
        self.here = place if place >= 0 else self.here
        if not item.words:
            for assign in item.assigns:
                self.assign(assign)
            if self.sink is not None and item.inputs and (given := self._input(item)) is not None:  # $(< FILE)
                self.sink.append(given)
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
            elif isinstance(source, Taken):
                given = self.file_text(self.word_text(source.file)) or given
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
        builtin = BUILTINS.get(name)
        if builtin is not None:
            return builtin(self, texts, given)
        if name == "cat":
            texts, given = self._read_files(texts, given)
        if name == "tee" and given is not None:
            for text in texts[1:]:
                if plain(text)[:1] != "-":
                    self.write_file(text, [given], plain(texts[1]) in ("-a", "--append"))
            if self.sink is not None:
                self.sink.append(given)
            return True
        if name in ("echo", "printf") or (self.sink is not None and printed(texts, given) is not None):
            if self.sink is not None:
                self._print(name, texts, given)
            return True
        if name[:1] == "[" and name not in ("[", "[["):
            return False  # no such command
        if self.inner_script(name, texts, given, prefix):
            return None
        if name in ("mv", "cp", "rm"):
            self.files_moved(name, [text for text in texts[1:] if plain(text)[:1] != "-"])
        if name in _SILENT or (name in _QUIET and self.sink is None):
            return self._place(name, texts) if name == "cd" else True
        if self.sink is not None and name == "pwd":
            return self._place(name, texts)
        self._record(texts, places, prefix)
        if self.sink is not None:
            every = [*texts, given or ()]
            why = next((segment.why for text in every for segment in text if segment.why is not None), None)
            shown = self.shown or name
            self.sink.append((Segment(shown, -1, None, why or shown),))
        self.why = self.why or (self.shown or name)
        return None

    def _read_files(self, texts: list[Text], given: Text | None) -> tuple[list[Text], Text | None]:
        """`cat FILE...` as `cat` of their text, where all are at hand."""
        names = [text for text in texts[1:] if plain(text)[:1] != "-"]
        found = [self.file_text(text) for text in names]
        if not names or None in found:
            return texts, given
        return texts[:1], tuple(segment for text in found if text is not None for segment in text)

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
            self.command_starts.append(self.starts)
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
