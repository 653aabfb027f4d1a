"""The state of a shell: variables, arrays, functions; children, and what is left after a branch that may be taken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from primus_lint.readers.shell_compute import Unknown, compute
from primus_lint.readers.shell_expand import Expander
from primus_lint.readers.shell_lexer import Lexer, behind
from primus_lint.readers.shell_text import Segment, Text, Unit, capped, field_of, joined, plain, waits_for
from primus_lint.readers.shell_tree import assigned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from primus_lint.readers.shell_text import Field
    from primus_lint.readers.shell_tree import Assign, Statement

_KEY = re.compile(r"\[([^\]\n]*)\]=")


class Leave(Exception):
    """`exit`, `return`, `break`, `continue`, or "stop": the script goes on for longer than is followed."""

    def __init__(self, kind: str, status: bool | None = True) -> None:
        super().__init__(kind)
        self.kind = kind
        self.status = status


class State(Expander):
    def __init__(self, env: Mapping[str, str], path: str) -> None:
        super().__init__(env, path)
        self.functions: dict[str, Statement] = {}
        self.files_made: dict[str, Text] = {}  # files that the script writes, with their texts
        self.exported: dict[str, Field] = {}
        self.inherited: set[str] = set()  # names in the environment that the script itself did not export
        self.export_all = False
        self.directory: str | None = None
        self.locals: list[dict[str, tuple[Text | None, dict[str, Text] | None]]] = []
        self.option_at = 0  # where getopts stands in a word of several options
        self.sink: list[Text] | None = None  # what commands print, inside $( )
        self.given: Text | None = None  # standard input, where it is a text
        self.shown = ""  # the $( ) that is being followed
        self.why: str | None = None  # what the last undecided condition waits for
        self.here = 0
        self.steps = self.depth = 0
        self.asked_for: dict[str, tuple[set[str], int]] = {}
        self.reads: dict[str, set[str]] = {}
        self.decided_by: set[str] = set()  # variables that the last conditions read
        self.owned: set[str] = set()  # names that the script itself sets somewhere

    # assignments

    def assign(self, item: Assign) -> None:
        outer, self.trace = self.trace, set()
        if item.items is not None:
            value: Text = ()
            self._assign_array(item)
        else:
            value = self.word_text(item.value) if item.value is not None else ()
            self.put(item.name, value, item.append, item.subscript)
        self.reads.setdefault(item.name, set()).update(self.trace)
        self.trace = outer | self.trace
        if self.export_all:
            self.export(item.name)

    def put(self, name: str, value: Text, append: bool = False, index: str | None = None) -> None:
        if name in self.env and any(segment.why is not None for segment in value):
            value = (Segment(self.env[name], -1, name),)
        if index is not None:
            self.arrays.setdefault(name, {})[self._key(name, index)] = value
            return
        if name in self.arrays:
            old = self.arrays[name].get("0", ())
            self.arrays[name]["0"] = capped(old + value) if append else value
            return
        old = self.variables.get(name, ()) if append else ()
        self.variables[name] = capped(old + value)

    def _key(self, name: str, written: str) -> str:
        unit = Unit((Segment(written, -1),))
        key = plain(self.text(unit, Lexer(unit).inside(True))).strip("'\"")
        try:
            number = compute(key, self.number_of) if not (self.arrays.get(name) and not key.isdecimal()) else None
        except Unknown:
            return key
        return key if number is None or not re.fullmatch(r"[\w+*/() -]+", key) or key.isalpha() else str(number)

    def _assign_array(self, item: Assign) -> None:
        found = dict(self.arrays.get(item.name, {})) if item.append else {}
        if item.append and item.name in self.variables:
            found = {"0": self.variables[item.name]}
        for word in item.items or ():
            match = _KEY.match(word.unit.text, word.start, word.end)
            if match:
                found[self._key(item.name, match.group(1))] = self.word_text(behind(word, match.end()))
                continue
            for text in self.fields(word):
                last = next((int(key) for key in reversed(found) if key.isdecimal()), -1)
                found[str(last + 1)] = text
            if len(found) > 4_000:
                break
        self.variables.pop(item.name, None)
        self.arrays[item.name] = found

    def export(self, name: str) -> None:
        if name in self.variables:
            self.exported[name] = field_of(self.variables[name], self.here)

    def make_local(self, name: str) -> None:
        if self.locals:
            self.locals[-1].setdefault(name, (self.variables.pop(name, None), self.arrays.pop(name, None)))

    # children and branches

    def _saved(self) -> tuple[Any, ...]:
        arrays = {name: dict(items) for name, items in self.arrays.items()}
        return (dict(self.variables), arrays, list(self.positional), self.given_positional, dict(self.functions),
                dict(self.exported), self.export_all, self.directory)  # fmt: skip

    def _restore(self, state: tuple[Any, ...]) -> None:
        (self.variables, self.arrays, self.positional, self.given_positional, self.functions, self.exported,
         self.export_all, self.directory) = state  # fmt: skip

    def child(
        self, action: Callable[[], bool | None], sink: list[Text] | None = None, given: Text | None = None,
        exported_only: bool = False,
    ) -> bool | None:  # fmt: skip
        """Run in a shell of its own: nothing that it sets stays."""
        saved = self._saved()
        streams = self.sink, self.given
        self.sink, self.given = sink, given
        if exported_only:
            names = {*self.exported, *self.env, *self.inherited}
            self.variables = {name: text for name, text in self.variables.items() if name in names}
            self.arrays, self.functions = {}, {}
            self.positional, self.given_positional = [], False
        try:
            return action()
        except Leave as leave:
            if leave.kind == "stop":
                raise
            return leave.status
        finally:
            self._restore(saved)
            self.sink, self.given = streams

    def guarded(self, asked: set[str], action: Callable[[], bool | None]) -> bool | None:
        """Run what a condition on variables without value decided: a script that stops there asks for them."""
        if not asked:
            return action()
        try:
            return action()
        except Leave as leave:
            if leave.kind != "exit":
                raise
            return None

    def either(
        self, first: Callable[[], Any], second: Callable[[], Any], why: str | None, unit: Unit | None, start: int
    ) -> bool | None:
        """Follow both ways of a condition that is not decided; what differs afterwards is not known."""
        reason = _reason(why, unit, start)
        before = self._saved()
        printed = len(self.sink) if self.sink is not None else 0
        ends = []
        files, made = self.files_made, []
        for action in (first, second):
            self._restore(_copied(before))
            self.files_made = dict(files)
            made.append(self.files_made)
            left: Leave | None = None
            try:
                action()
            except Leave as leave:
                if leave.kind == "stop":
                    raise
                left = leave
            out = [] if self.sink is None else self.sink[printed:]
            if self.sink is not None:
                del self.sink[printed:]
            ends.append((left, self._saved(), out))
        one, two = made
        self.files_made = {key: text for key, text in one.items() if key in two and _same(text, two[key])}
        going_on = any(left is None for left, _, _ in ends)
        # A way that ends the script is its own guard; one that only ends a loop or a function joins the other again.
        alive = [end for end in ends if end[0] is None or (going_on and end[0].kind != "exit")]
        if self.sink is not None:
            outs = [plain(tuple(s for text in end[2] for s in text)) for end in ends]
            same = len(set(outs)) == 1
            self.sink.extend(ends[0][2] if same else [(Segment(reason, -1, None, reason),)])
        if not alive:
            ended = next((end for end in ends if end[0] is not None and end[0].kind != "exit"), ends[0])
            self._restore(ended[1])
            raise ended[0] or Leave("exit")
        self._restore(alive[0][1] if len(alive) == 1 else self._merged(ends[0][1], ends[1][1], reason))
        return None

    def _merged(self, one: tuple[Any, ...], two: tuple[Any, ...], reason: str) -> tuple[Any, ...]:
        merged = list(one)
        variables: dict[str, Text] = {}
        for name in dict.fromkeys((*one[0], *two[0])):
            a, b = one[0].get(name), two[0].get(name)
            if a == b or (a is not None and b is not None and _same(a, b)):
                variables[name] = a
            elif name in self.env:
                variables[name] = (Segment(self.env[name], -1, name),)
            else:
                head = _common(a or (), b or ())
                way = Unit(b or ()).cut(len(plain(head)), len(plain(b or ()))) if waits_for(b or ()) is None else None
                variables[name] = (*head, Segment(f"${name}", -1, name, reason, way=way))
        arrays: dict[str, dict[str, Text]] = {}
        for name in dict.fromkeys((*one[1], *two[1])):
            c, d = one[1].get(name, {}), two[1].get(name, {})
            arrays[name] = c
            if list(c) != list(d) or not all(_same(c[key], d[key]) for key in c):
                arrays[name] = _either_items(name, c, d, reason)
        merged[0], merged[1] = variables, arrays
        merged[4], merged[5] = {**two[4], **one[4]}, {**two[5], **one[5]}
        return tuple(merged)

    def hangs_on(self, asked: Iterable[str], bodies: Iterable[Iterable[Statement]], place: int) -> None:
        """Remember that a condition on variables without value decides what some bodies set."""
        names = {name for name in asked if name != "#"}
        for name in {name for body in bodies for name in assigned(body)} if names else ():
            known = self.asked_for.setdefault(name, (set(), place if place >= 0 else self.here))
            known[0].update(names)


def _copied(state: tuple[Any, ...]) -> tuple[Any, ...]:
    variables, arrays, positional, given, functions, exported, export_all, directory = state
    arrays = {name: dict(items) for name, items in arrays.items()}
    return (dict(variables), arrays, list(positional), given, dict(functions), dict(exported), export_all, directory)


def _reason(why: str | None, unit: Unit | None, start: int) -> str:
    if unit is None or not start < len(unit.text):
        return why or "a condition"
    line = re.split(r"\n|;\s*then\b|\bin\b\s*\n", unit.text[start : start + 120], maxsplit=1)[0].strip().rstrip(";")
    shown = f"the condition {line}" if line else "a condition"
    return shown if why is None or why in line else f"{shown} ({why})"


def _either_items(name: str, c: dict[str, Text], d: dict[str, Text], reason: str) -> dict[str, Text]:
    """An array that is `c` or `d`: the items that both begin with, and one for the rest, which is that of `d` where the
    condition does not hold. A flag stays with its value."""
    ones, others = list(c.items()), list(d.items())
    shared = 0
    for (key, one), (other_key, other) in zip(ones, others, strict=False):
        if key != other_key or not _same(one, other):
            if shared and plain(ones[shared - 1][1])[:2] == "--" and "--" not in (plain(one)[:2], plain(other)[:2]):
                shared -= 1
            break
        shared += 1
    rest = joined([text for _, text in others[shared:]])
    way = rest if waits_for(rest) is None else None
    return {**dict(ones[:shared]), str(shared): (Segment(f"${{{name}[@]}}", -1, name, reason, way=way),)}


def _same(a: Text, b: Text) -> bool:
    return plain(a) == plain(b) and waits_for(a) == waits_for(b)


def _common(a: Text, b: Text) -> Text:
    """The head that two texts share; a blank ends it where both go on with one."""
    head = []
    for one, other in zip(a, b, strict=False):
        if (one.text, one.start, one.why) != (other.text, other.start, other.why):
            break
        head.append(one)
    tails = [plain(text[len(head) :]) for text in (a, b)]
    apart = head and all(tail[:1].isspace() or not tail for tail in tails)
    return (*head, Segment(" ", -1)) if apart else tuple(head)
