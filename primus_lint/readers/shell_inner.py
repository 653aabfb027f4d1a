"""Scripts inside a script: files that it reads or runs, texts that it hands to another shell."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from primus_lint.readers.shell_files import Files
from primus_lint.readers.shell_launcher import STARTERS
from primus_lint.readers.shell_state import Leave
from primus_lint.readers.shell_text import Segment, Text, Unit, field_of, joined, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.readers.shell_text import Field
    from primus_lint.readers.shell_tree import Statement

_SHELLS = ("bash", "sh", "zsh", "dash")
_SETS = ("-e", "--env", "-x")  # options of launchers that set a variable
_SELECTORS = ("find", "xargs", "parallel")  # run a shell on each item, to print something


class Inner(Files):
    def __init__(self, env: Mapping[str, str], path: str = "") -> None:
        super().__init__(env, path)
        self.commands: list[list[Field]] = []
        self.command_reads: list[set[str]] = []
        self.command_starts: list[list[Field]] = []  # the words of `srun` or `mpirun` around the shell of a command
        self.starts: list[Field] = []
        self.context: set[str] = set()  # variables that led to the text that is being run
        self.missing: list[str] = []

    def script(self, text: Text) -> bool | None:
        raise NotImplementedError

    def execute(self, item: Statement) -> bool | None:
        raise NotImplementedError

    def sourced(self, words: list[Text]) -> bool | None:
        """`source FILE`, where the file is at hand."""
        found = self.file_text(words[1]) if len(words) > 1 else None
        if found is None:
            self.missing.append(plain(words[1] if len(words) > 1 else joined(words)))
            return None
        try:
            return self.script(found)
        except Leave as leave:
            if leave.kind != "return":
                raise
            return leave.status

    def inner_script(self, name: str, texts: list[Text], given: Text | None, prefix: Sequence[str]) -> bool:
        """Run the script that a command is handed; False when there is none, or it is not at hand. `prefix` are the
        variables that stand before the command."""
        variables = {variable: self.variables[variable] for variable in prefix if variable in self.variables}
        variables |= _set_by_launcher(texts)
        found: tuple[Text | None, list[Text]] = None, []
        if name not in _SELECTORS:
            found = self._handed(name, texts, given)
        if found[0] is None and os.path.basename(name) == "sbatch":
            found, submitted = self._submitted(texts)
            variables |= submitted
        inner, arguments = found
        if inner is None:
            return False
        inherited, self.inherited = self.inherited, self.inherited | set(variables)
        starts, self.starts = self.starts, [*self.starts, *_started_by(texts)]
        try:
            self.child(lambda: self._run_with(variables, inner, arguments), self.sink, None, exported_only=True)
        finally:
            self.inherited, self.starts = inherited, starts
        return True

    def _handed(self, name: str, texts: list[Text], given: Text | None) -> tuple[Text | None, list[Text]]:
        """The text and arguments of `bash -c TEXT` and `bash FILE` behind any launcher, of `sbatch --wrap TEXT`, of a
        script by its name, and of standard input."""
        words = [plain(text) for text in texts]
        for index, word in enumerate(words):
            if os.path.basename(word) in _SHELLS:
                at = index + 1
                while at < len(words) and words[at][:1] in ("-", "+") and "c" not in words[at][1:]:
                    at += 1
                if at == len(words):
                    return given, []
                if words[at][:1] != "-":
                    return self.file_text(texts[at]), texts[at + 1 :]
                return (texts[at + 1], texts[at + 3 :]) if at + 1 < len(words) else (None, [])
            if word.startswith("--wrap") and name == "sbatch":
                return (
                    Unit(texts[index]).cut(7, len(word)) if "=" in word else texts[min(index + 1, len(texts) - 1)]
                ), []
        if given is not None and os.path.basename(name) in ("sbatch", "ssh"):
            return given, []
        if name.endswith(".sh"):
            return self.file_text(texts[0]), texts[1:]
        return None, []

    def _run_with(self, variables: Mapping[str, Text], text: Text, arguments: list[Text]) -> bool | None:
        self.variables.update(variables)
        self.positional = list(arguments)
        return self.script(text)

    def _submitted(self, texts: list[Text]) -> tuple[tuple[Text | None, list[Text]], dict[str, Text]]:
        """`sbatch OPTIONS FILE ARGUMENTS`: the file's text, its arguments, and the variables that the options set."""
        variables: dict[str, Text] = {}
        for index, text in enumerate(texts[1:], 1):
            option, _, value = plain(text).partition("=")
            if option == "--export":
                for item in Unit(text).cut(len("--export="), len(plain(text))):
                    for pair in item.text.split(","):
                        name, equals, what = pair.partition("=")
                        if equals and item.why is None:
                            variables[name] = (Segment(what, -1),)
            elif option == "--nodes" and value.isdecimal():
                variables["SLURM_NNODES"] = variables["SLURM_JOB_NUM_NODES"] = (Segment(value, -1),)
            elif option[:1] != "-" and re.search(r"\.(sh|sbatch|slurm|sub)$", option):
                return (self.file_text(text), texts[index + 1 :]), variables
        return (None, []), variables


def _started_by(texts: list[Text]) -> list[Field]:
    """The words of a launcher that starts a shell several times, up to the shell."""
    words = [os.path.basename(plain(text)) for text in texts]
    end = next((index for index, word in enumerate(words) if word in _SHELLS or word.endswith(".sh")), 0)
    return [field_of(text, 0) for text in texts[:end]] if not STARTERS.isdisjoint(words[:end]) else []


def _set_by_launcher(texts: list[Text]) -> dict[str, Text]:
    """Variables that a launcher (docker, mpirun, env, ...) sets by its options for the shell that it starts."""
    found: dict[str, Text] = {}
    words = [plain(text) for text in texts]
    for index, word in enumerate(words):
        if os.path.basename(word) in _SHELLS or word.endswith(".sh"):
            break
        option, equals, _ = word.partition("=")
        if option in _SETS and equals:
            item = Unit(texts[index]).cut(len(option) + 1, len(word))
        elif option in _SETS and index + 1 < len(texts):
            item = texts[index + 1]
        elif words[0] == "env" and index > 0:
            item = texts[index]
        else:
            continue
        name, equals, _ = plain(item).partition("=")
        if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            found[name] = Unit(item).cut(len(name) + 1, len(plain(item)))
    return found
