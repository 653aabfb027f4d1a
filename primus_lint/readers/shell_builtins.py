"""What the shell does itself: `exit`, `eval`, `shift`, `read`, ...; each takes its words and its standard input."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.readers.shell_inner import Inner
from primus_lint.readers.shell_state import Leave
from primus_lint.readers.shell_text import Segment, Text, Unit, joined, plain, waits_for

if TYPE_CHECKING:
    from collections.abc import Callable


class Builtins(Inner):
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
        """One option of the arguments a turn: its letter in the variable, its value in OPTARG, the place in OPTIND."""
        if self.given_positional:
            self.asked.add("#")
        words = [plain(text) for text in self.positional]
        if len(texts) != 3 or any(waits_for(text) is not None for text in (*texts, *self.positional)):
            return None if self.positional else False
        letters, name = plain(texts[1]), plain(texts[2])
        place = plain(self.variables.get("OPTIND", ()))
        index = int(place) - 1 if place.isdecimal() and len(place) < 6 else 0
        word = words[index] if 0 <= index < len(words) else ""
        if self.option_at == 0 and (word[:1] != "-" or word in ("-", "--")):
            self.variables["OPTIND"] = (Segment(str(index + 1 + (word == "--")), -1),)
            return False
        at = max(self.option_at, 1)
        letter, at = word[at : at + 1], at + 1
        known = letter != ":" and letter in letters
        self.put(name, (Segment(letter if known else "?", -1),))
        if known and letters[letters.index(letter) + 1 :][:1] == ":":
            if at >= len(word):
                index, at = index + 1, 0
            value = self.positional[index] if index < len(words) else ()
            self.put("OPTARG", Unit(value).cut(at, len(plain(value))))
            at = len(words[index]) if index < len(words) else 0
            word = words[index] if index < len(words) else ""
        self.option_at = 0 if at >= len(word) else at
        self.variables["OPTIND"] = (Segment(str(index + 1 + (at >= len(word))), -1),)
        return True

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


BUILTINS: dict[str, Callable[[Builtins, list[Text], Text | None], bool | None]] = {
    ":": _true, "true": _true, "false": _false, "exit": Builtins._exit, "return": Builtins._return,
    "break": Builtins._break, "continue": Builtins._break, "eval": Builtins._eval, "source": Builtins._source,
    ".": Builtins._source, "unset": Builtins._unset, "shift": Builtins._shift, "set": Builtins._set,
    "read": Builtins._read, "getopts": Builtins._getopts, "let": Builtins._let, "mapfile": Builtins._mapfile,
    "readarray": Builtins._mapfile,
}  # fmt: skip
