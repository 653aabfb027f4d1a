"""Follow a script as far as that is possible without running it: commands, conditions, loops, functions.

A condition that only a run can decide is followed both ways; what then differs is not known, and says why. A variable
without value is empty in conditions, as in a shell that was started without it; the conditions that asked are kept.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from primus_lint.readers.shell_commands import Commands
from primus_lint.readers.shell_compute import holds, matches
from primus_lint.readers.shell_output import PRINTERS
from primus_lint.readers.shell_state import Leave
from primus_lint.readers.shell_syntax import parse_shell
from primus_lint.readers.shell_text import HOLE, Segment, Text, Unit, plain, waits_for
from primus_lint.readers.shell_tree import (
    Arithmetic,
    Both,
    Case,
    CountingFor,
    For,
    Function,
    Group,
    If,
    Negate,
    Pipe,
    Simple,
    Test,
    While,
    Written,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from primus_lint.readers.shell_lexer import Word
    from primus_lint.readers.shell_tree import Program, Statement

_T = TypeVar("_T")
_MAX_STEPS = 20_000
_MAX_DEPTH = 40
_MAX_TURNS = 1_000


class Shell(Commands):
    """The state of a script. `commands` collects the expanded commands in order, `exported` the exported variables,
    `asked_for` what conditions on variables without value decide: name -> (variables, place)."""

    def run(self, statements: Program) -> bool | None:
        status: bool | None = True
        for statement in statements:
            status = self.execute(statement)
        return status

    def execute(self, item: Statement) -> bool | None:
        """Run one statement; its status, None when only a run can know it."""
        self.steps += 1
        if self.steps > _MAX_STEPS or self.depth > _MAX_DEPTH:
            raise Leave("stop")
        self.depth += 1
        try:
            return self._execute(item)
        finally:
            self.depth -= 1

    def _execute(self, item: Statement) -> bool | None:
        if isinstance(item, Simple):
            return self.simple(item)
        if isinstance(item, If):
            return self._if(item, 0)
        if isinstance(item, Case):
            return self._case(item, 0)
        if isinstance(item, Both):
            return self._both(item)
        if isinstance(item, Pipe):
            return self._pipe(item)
        if isinstance(item, Negate):
            status = self.execute(item.inner)
            return None if status is None else not status
        if isinstance(item, Test):
            return self._test(list(item.words))
        if isinstance(item, Arithmetic):
            value, self.why = self._asking(lambda: self.arithmetic(item.unit, item.start, item.end))
            return None if value is None and self.why is not None else bool(value)
        if isinstance(item, Function):
            self.functions[item.name] = item.body
            return True
        if isinstance(item, Written):
            return self._written(item)
        if isinstance(item, Group):
            if item.subshell:
                return self.child(lambda: self.run(item.body))
            return self.run(item.body)
        return self._loop(item)

    # conditions

    def _asking(self, question: Callable[[], _T]) -> _T:
        old, self.as_shell = self.as_shell, True
        try:
            return question()
        finally:
            self.as_shell = old

    def condition(self, statements: Program) -> bool | None:
        """The status of the commands of a condition."""
        self.why = None
        return self.run(statements)

    def _if(self, item: If, index: int) -> bool | None:
        if index == len(item.branches):
            return True
        asked, self.asked = self.asked, set()
        condition, body = item.branches[index]
        outer, self.trace = self.trace, set()
        status = True if condition is None else self.condition(condition)
        self.decided_by = self.trace if index == 0 else self.decided_by | self.trace
        self.trace = outer | self.trace
        why, here = self.why, self.asked
        self.asked = asked | here
        bodies = [branch for _, branch in item.branches]
        if here:
            self.hangs_on(here, bodies, item.unit.place(item.start))
        if status is None:
            return self.either(partial(self.run, body), lambda: self._if(item, index + 1), why, item.unit, item.start)
        if status:
            return self.guarded(here, partial(self.run, body))
        return self._if(item, index + 1)

    def _case(self, item: Case, index: int) -> bool | None:
        asked, self.asked = self.asked, set()
        outer, self.trace = self.trace, set()
        subject = self._asking(lambda: self.word_text(item.subject))
        self.decided_by, self.trace = self.trace, outer | self.trace
        here = self.asked
        self.asked = asked | here
        value, why = plain(subject), waits_for(subject)
        bodies = [body for _, body in item.branches]
        if here:
            self.hangs_on(here, bodies, item.subject.unit.place(item.subject.start))
        while index < len(item.branches):
            patterns, body = item.branches[index]
            index += 1
            matched: bool | None = None if why is not None else False
            for word in patterns if why is None else ():
                shape = self._asking(partial(self.pattern_of, word))
                fits = False if shape is None else matches(value, shape)
                matched = True if fits or matched else None if fits is None else matched
            if matched is None:
                subject_word = item.subject
                return self.either(
                    partial(self.run, body),
                    partial(self._case, item, index),
                    why,
                    subject_word.unit,
                    subject_word.start,
                )
            if matched:
                return self.guarded(here, partial(self.run, body))
        return True

    def _both(self, item: Both) -> bool | None:
        asked, self.asked = self.asked, set()
        left = self.execute(item.left)
        here = self.asked
        self.asked = asked | here
        if left is None:
            why = self.why
            self.either(lambda: self.execute(item.right), lambda: None, why, None, 0)
            return None
        if left is (item.op == "&&"):
            return self.guarded(here, lambda: self.execute(item.right))
        return left

    def _test(self, words: list[Word | str]) -> bool | None:
        """`[[ ... ]]` with && || ! and brackets; the words left are one comparison."""
        depth = 0
        for op in ("||", "&&"):
            for at, word in enumerate(words):
                depth += (word == "(") - (word == ")")
                if word == op and depth == 0:
                    left, right = self._test(words[:at]), self._test(words[at + 1 :])
                    decides = op == "||"
                    if decides in (left, right):
                        return decides
                    return None if None in (left, right) else not decides
            depth = 0
        if words and not isinstance(words[0], str) and words[0].keyword == "!":
            inner = self._test(words[1:])
            return None if inner is None else not inner
        if words[:1] == ["("] and words[-1:] == [")"]:
            return self._test(words[1:-1])
        plain_test = len(words) == 2 and not isinstance(words[0], str) and words[0].keyword in ("-z", "-n")
        asked = set(self.asked)
        texts = [self._asking(partial(self._tested, word, words, i)) for i, word in enumerate(words)]
        if plain_test:  # the usual way to ask for an optional variable
            self.asked = asked
        return holds(texts, double=True)

    def _tested(self, word: Word | str, words: Sequence[Word | str], index: int) -> str | None:
        if isinstance(word, str):
            return word
        op = words[1] if len(words) == 3 else ""
        name = op if isinstance(op, str) else op.keyword
        text = self.word_text(word)
        why = waits_for(text)
        if why is not None:
            self.why = why
            return None
        if index == 2 and name in ("=", "==", "!="):
            return self.pattern_of(word)
        if name in ("-eq", "-ne", "-lt", "-le", "-gt", "-ge") and index != 1:
            value, _ = self.arithmetic(Unit(text), 0, len(plain(text)))
            return None if value is None else str(value)
        if index == 0 and len(words) == 2 and plain(text)[:1] == "-" and plain(text) not in ("-z", "-n"):
            self.why = f"[[ {plain(text)} ... ]]"
        return plain(text)

    # loops

    def _loop(self, item: For | CountingFor | While) -> bool | None:
        try:
            if isinstance(item, For):
                self._for(item)
            elif isinstance(item, While):
                self._turns(lambda: self.condition(item.condition), lambda: None, item.body, item.until)
            else:
                self.arithmetic(item.first.unit, item.first.start, item.first.end)
                self._turns(
                    lambda: self._execute(item.condition),
                    lambda: self.arithmetic(item.step.unit, item.step.start, item.step.end), item.body, False,
                )  # fmt: skip
        except Leave as leave:
            if leave.kind != "break":
                raise
        return True

    def _for(self, item: For) -> None:
        items = [text for word in item.words for text in self.fields(word)] if item.words is not None else None
        items = list(self.positional) if items is None else items
        for text in items[:_MAX_TURNS]:
            if text and all(segment.unset for segment in text):
                continue  # a variable without value: no word for a shell
            self.variables[item.name] = text
            self._turn(item.body)

    def _turn(self, body: Program) -> None:
        try:
            self.run(body)
        except Leave as leave:
            if leave.kind != "continue":
                raise

    def _turns(self, condition: Any, step: Any, body: Program, until: bool) -> None:
        for _ in range(_MAX_TURNS):
            status = condition()
            if status is None:
                self.either(lambda: self._turn(body), lambda: None, self.why, None, 0)
                return
            if status is until:
                return
            self._turn(body)
            step()

    # files, pipelines, substitutions, scripts inside the script

    def _written(self, item: Written) -> bool | None:
        """A command whose output goes to a file, which the script may read or run later."""
        file = self.word_text(item.file)
        if plain(file).startswith("/dev/") or not _prints(item.inner):
            self.files_made.pop(self.file_key(file), None)
            return self.execute(item.inner)
        old, self.sink = self.sink, []
        try:
            status = self.execute(item.inner)
            self.write_file(file, self.sink, item.append)
        finally:
            self.sink = old
        return status

    def _pipe(self, item: Pipe) -> bool | None:
        given = self.given
        status: bool | None = None
        for index, part in enumerate(item.parts):
            last = index == len(item.parts) - 1
            sink: list[Text] | None = self.sink if last else []
            status = self.child(partial(self.execute, part), sink, given)
            given = None if sink is None or last else tuple(segment for text in sink for segment in text)
        return status

    def output(self, unit: Unit, start: int, end: int, shown: str) -> Text:
        self.steps += 1
        if self.depth > _MAX_DEPTH or self.steps > _MAX_STEPS:
            return (Segment(shown, -1, None, shown),)
        inner = Unit(unit.cut(start, end))
        sink: list[Text] = []
        old, self.shown = self.shown, shown.replace(HOLE, "?")
        self.depth += 1
        try:
            self.child(lambda: self.run(parse_shell(inner)), sink)
        finally:
            self.depth -= 1
            self.shown = old
        found = [segment for text in sink for segment in text]
        if any(segment.why is not None and not segment.unset for segment in found):
            why = next(segment.why for segment in found if segment.why is not None and not segment.unset)
            raw = unit.text[start - 2 : end + 1]
            return (Segment(raw if HOLE not in raw else shown, unit.place(start - 2), None, why),)
        while found and found[-1].why is None and not found[-1].text.rstrip("\n"):
            found.pop()
        if found and found[-1].why is None:
            found[-1] = found[-1]._replace(text=found[-1].text.rstrip("\n"))
        return tuple(found)

    def script(self, text: Text) -> bool | None:
        """Run a text as a script (`eval`, `bash -c`, a here-document)."""
        return self.run(parse_shell(Unit(text)))


def _prints(item: Statement) -> bool:
    """Whether a command is one of those whose output is followed."""
    if isinstance(item, Simple):
        return bool(item.words) and (item.words[0].literal or "") in PRINTERS
    return isinstance(item, (Group, For, If))
