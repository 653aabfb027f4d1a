"""Megatron's command line: flags with their words -> values under the argument names, typed as argparse types them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.readers.document import LocatedProblem, Origin, Value
from primus_lint.readers.program import own_flags
from primus_lint.readers.tables import Flag, defaults, flags, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_THE_LAUNCHER = ("local_rank",)  # a number of each process, not of the recipe
_OTHER = {"d3528a21": "d98e8a64", "d98e8a64": "d3528a21"}


class Given(NamedTuple):
    """One flag as it was given. `origin` describes the place (its value is replaced by the typed one); `unknown` names
    what its words wait for (a variable, a command), None when they are sure; `key_at` is line and column of the flag
    itself where the origin points at its value."""

    flag: str
    words: tuple[str, ...]
    origin: Origin
    unknown: str | None = None
    key_at: tuple[int, int] | None = None


def newer_version(names: Iterable[str]) -> str | None:
    """The newer of the two versions, where nobody has said which one runs: some flags are only of that one, and none is
    of an older one."""
    used = set(names)
    missing = used - flags("d3528a21").keys()
    new = flags("d98e8a64") if missing else {}
    if not any(name in new for name in missing):
        return None
    older = (name for name in used - new.keys() if name in flags("d3528a21") or _removed(name, "d98e8a64") is not None)
    return None if any(older) else "d98e8a64"


class Arguments(NamedTuple):
    """`values` by argument name; `own`: flags that the checked Megatron does not have, so the program must."""

    values: dict[str, Value]
    own: tuple[str, ...]


def values_of(
    given: Iterable[Given], version: str | None, path: str, problems: list[LocatedProblem], *,
    stock: bool = True, settled: frozenset[str] = frozenset(), script: str = "",
) -> Arguments:  # fmt: skip
    """Values by argument name. Of a repeated flag the last wins; weaker ones stay in the chain. Problems: unknown,
    removed or misused flags. A single word with blanks counts as several where the flag takes several.

    `stock`: the program has the name of one of Megatron's own; another one may know flags that Megatron does not.
    `script`: the training program; a checkout around the file says which further flags it knows.
    `settled` are arguments that the command line sets: what they were waiting for is no problem."""
    stated = version is not None
    version = version if version in _OTHER else "d3528a21"
    known = flags(version)
    at_hand = own_flags(path, script) if script else frozenset()
    values: dict[str, Value] = {}
    own: list[str] = []
    unknown: list[Given] = []
    removed: list[Given] = []
    strange = False
    waiting: dict[tuple[str, str], list[Given]] = {}
    last: dict[str, tuple[Given, Any]] = {}
    for item in given:
        flag = known.get(item.flag)
        if flag is None and item.flag in at_hand:
            own.append(item.flag)
            continue
        if flag is None:
            other = flags(_OTHER[version]).get(item.flag)
            if other is None:
                (unknown if _removed(item.flag, version) is None else removed).append(item)
                continue
            message = f"{item.flag} is no flag of Megatron-LM {version}; {_OTHER[version]} has it"
            problems.append(_problem("flag-not-in-version", message, item, path, False))
            flag = other
        words = item.words
        if len(words) == 1 and flag.nargs is not None and " " in words[0]:
            words = tuple(words[0].split())
        value, wrong = typed(flag, words)
        if wrong:
            problems.append(_problem("flag-value", f"{item.flag}: {wrong}", item, path, True))
            continue
        if item.unknown is not None and (flag.type not in ("str", "bool") or flag.choices is not None):
            if flag.key not in settled and flag.key not in _OF_THE_LAUNCHER:
                waiting.setdefault(_waits(item, flag), []).append(item)
            continue
        strange = strange or (item.unknown is None and _strange(flag, value))
        origin = item.origin._replace(value=value)
        old = values.get(flag.key)
        if item.unknown is None:
            before, lost = last.get(flag.key, (item, value))
            if lost != value and (script or before.flag != item.flag):  # a key of YAML twice is told as such
                problems.append(_repeated(before, lost, item, value, path))
            last[flag.key] = (item, value)
        values[flag.key] = Value(value, (origin,) if old is None else (origin, *old.origins))
    if script:
        problems.extend(_of_other_programs(values, version, path, script if stock else ""))
    elsewhere = strange or (bool(removed) and not stated)  # not written for this Megatron
    if unknown and (not stock or (not at_hand and _of_a_fork(unknown, version, elsewhere))):
        stock = False
        own += [item.flag for item in unknown]
        problems.append(_foreign(unknown, version, path))
    else:
        problems.extend(_unknown(item, version, path) for item in unknown)
    if removed and stock and stated:
        problems.extend(_gone(item, version, path) for item in removed)
    elif removed:
        own += [item.flag for item in removed]
        problems.append(_older(removed, version, path))
    for (why, give), items in waiting.items():
        names = list(dict.fromkeys(item.flag for item in items))
        listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        verb = "waits" if len(names) == 1 else "wait"
        message = f"{why}: {listed} {verb} for it; give it with {give}"
        problems.append(_problem("unset-variable", message, items[0], path, True))
    return Arguments(values, tuple(dict.fromkeys(own)))


def _of_other_programs(values: dict[str, Value], version: str, path: str, stock: str) -> Iterator[LocatedProblem]:
    """Take out the arguments that only some programs of the repository add to Megatron's; a stock program refuses those
    of another one."""
    known = defaults("megatron", version)
    for key in [key for key in values if key not in known]:
        facts = table("megatron", version)["extra"].get(key) or table("megatron", _OTHER[version])["extra"].get(key)
        if facts is None:
            continue
        origin = values.pop(key).origin
        program = facts["from"].partition(":")[0]
        if stock and not program.startswith("megatron/"):
            message = f"{origin.key_path[-1]} is a flag of {program} and not of {stock.rpartition('/')[2]}"
            yield _problem("unknown-flag", message, Given(str(origin.key_path[-1]), (), origin), path, False)


def _waits(item: Given, flag: Flag) -> tuple[str, str]:
    """What a flag's value waits for, and what to give."""
    unknown, variable = item.unknown or "", item.origin.variable
    name = unknown[1:] if unknown[:1] == "$" and (unknown[1:].isidentifier() or unknown[1:].isdecimal()) else ""
    if name or not unknown:
        return f"${name or variable} is not set here", f"--env {name or variable}=VALUE"
    give = f"--env {variable}=VALUE" if variable else f"--set {flag.key}=VALUE"
    what = f"${variable}, which hangs on " if variable else ""
    return f"only a run knows {what}{unknown}", give


def typed(flag: Flag, words: tuple[str, ...]) -> tuple[Any, str]:
    """The value that argparse stores, and what is wrong with the number of words ("" when nothing is).

    A word of a wrong type stays text and a wrong choice stays: the rules on types and choices report them, here as in
    every other format.
    """
    count = len(words)
    if flag.type == "bool" and flag.nargs is None:
        return not flag.off, f"takes no value, but {' '.join(words)!r} follows" if words else ""
    if flag.nargs is None or flag.nargs == "?":
        if count == 1:
            return _convert(flag, words[0]), ""
        if count == 0:
            return None, "" if flag.nargs == "?" else "takes one value, none follows"
        return None, f"takes one value, {count} follow"
    if flag.nargs == "+" and not words:
        return None, "takes at least one value, none follows"
    if isinstance(flag.nargs, int) and count != flag.nargs:
        return None, f"takes {flag.nargs} values, {count} follow"
    return [_convert(flag, word) for word in words], ""


def _convert(flag: Flag, word: str) -> Any:
    try:
        if flag.type == "int" or (flag.type == "int|list-text" and word.lstrip("-").isdecimal()):
            return int(word)
        if flag.type == "float":
            return float(word)
        if flag.type == "bool":
            return {"true": True, "1": True, "false": False, "0": False}[word.lower()]
    except (ValueError, KeyError):
        pass
    return word


def _problem(code: str, message: str, item: Given, path: str, fatal: bool) -> LocatedProblem:
    origin = item.origin
    of_value = code in ("flag-value", "unset-variable")
    span = (origin.span or origin.key_span) if of_value else origin.key_span
    line, column = (origin.line, origin.column) if of_value or item.key_at is None else item.key_at
    return LocatedProblem(code, message, path, span, line, column, fatal, origin.key_path)


def _removed(flag: str, version: str) -> tuple[str, dict[str, Any]] | None:
    """The argument of a flag that Megatron-LM once had, and what became of it; None for any other flag."""
    rows = table("megatron", version)["removed"]
    return next(((key, facts) for key, facts in rows.items() if flag in facts.get("flags", ())), None)


def _what_became(flag: str, version: str) -> tuple[str, str, str]:
    """The argument, the year in which it went, and what to use now ("" when nothing took its place)."""
    found = _removed(flag, version)
    assert found is not None
    key, facts = found
    to = facts.get("to")
    return key, facts.get("gone", "?")[:4], f"use --{to.replace('_', '-')}" if to else ""


def _gone(item: Given, version: str, path: str) -> LocatedProblem:
    key, year, hint = _what_became(item.flag, version)
    message = f"{item.flag} was removed from Megatron-LM in {year}" + (f"; {hint}" if hint else "")
    problem = _problem("removed-flag", message, item, path, False)
    return problem._replace(key_path=(*item.origin.key_path[:-1], key))


def _older(items: list[Given], version: str, path: str) -> LocatedProblem:
    """Flags that only an older Megatron-LM or the program itself can know, as one problem."""
    said = {}
    for item in items:
        _, year, hint = _what_became(item.flag, version)
        said[item.flag] = f"{item.flag} ({year}{'; now ' + hint if hint else ''})"
    were = "was" if len(said) == 1 else "were"
    message = f"{', '.join(said.values())} {were} removed from Megatron-LM: the script is for an older one, or its program keeps such flags; with --framework-version stated this is an error"
    key = _what_became(items[0].flag, version)[0]
    problem = _problem("flag-of-an-older-version", message, items[0], path, False)
    return problem._replace(key_path=(*items[0].origin.key_path[:-1], key))


def _repeated(lost: Given, value: Any, wins: Given, runs: Any, path: str) -> LocatedProblem:
    """A flag whose earlier value never runs; `--x` and `--no-x` are one flag."""
    said = f"{lost.flag} {value}" if isinstance(value, (int, float, str)) and lost.words else lost.flag
    instead = f"{wins.flag} {runs}" if isinstance(runs, (int, float, str)) and wins.words else wins.flag
    return _problem("repeated-flag", f"{said} is lost: {instead} follows, and the last one holds", lost, path, False)


def _unknown(item: Given, version: str, path: str) -> LocatedProblem:
    near = _near(item.flag, version)
    hint = f"; near: {', '.join(near)}" if near else ""
    name = item.flag.lstrip("-").replace("-", "_")
    for label, framework in (("Primus", "primus-megatron"), ("TorchTitan", "torchtitan"), ("MaxText", "maxtext")):
        if name in table(framework)["keys"]:
            hint = f": it is a key of {label}{hint}"
            break
    return _problem("unknown-flag", f"{item.flag} is no flag of Megatron-LM {version}{hint}", item, path, False)


def _of_a_fork(items: list[Given], version: str, elsewhere: bool) -> bool:
    """Whether a program under the name of Megatron's must be another one: several flags are unknown (or one, where other
    flags or choices say too that the script is written for `elsewhere`), and not all of them are slips of the pen."""
    names = {item.flag for item in items}
    return len(names) + elsewhere > 1 and not all(_slip(name, version) for name in names)


def _strange(flag: Flag, value: Any) -> bool:
    """Whether a value is none of the choices, and not one of them with some letters wrong."""
    from difflib import get_close_matches

    if not isinstance(value, str) or flag.choices is None or value in flag.choices:
        return False
    return not get_close_matches(value.lower(), [str(choice).lower() for choice in flag.choices], 1, 0.9)


def _slip(flag: str, version: str) -> bool:
    """Whether a flag is one of Megatron's with some letters wrong, or with one word left out."""
    from difflib import get_close_matches

    names = list(flags(version))
    words = flag.strip("-").split("-")
    shortened = any(
        len(words) > 1 and len(other) == len(words) + 1 and _part(words, other)
        for other in (name.strip("-").split("-") for name in names)
    )
    return shortened or bool(get_close_matches(flag, names, 1, 0.9))


def _part(words: list[str], other: list[str]) -> bool:
    """Whether `words` are those of `other` without one."""
    return any(other[:index] + other[index + 1 :] == words for index in range(len(other)))


def _near(flag: str, version: str) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(flag, list(flags(version)), 2, 0.75)


def _foreign(items: list[Given], version: str, path: str) -> LocatedProblem:
    """Flags that only the program itself can know, as one problem."""
    names = list(dict.fromkeys(item.flag for item in items))
    count = f"{len(names)} flags are" if len(names) > 1 else f"{names[0]} is"
    listed = f": {', '.join(names)}" if len(names) > 1 else ""
    message = f"{count} not of Megatron-LM {version} and must come from the program that the script runs{listed}"
    near = [f"{item.flag} is near {found[0]}" for item in items if (found := _near(item.flag, version))]
    message += f" ({'; '.join(dict.fromkeys(near))})" if near else ""
    return _problem("flag-of-the-program", message, items[0], path, False)
