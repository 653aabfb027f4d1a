"""Megatron's command line: flags with their words -> values under the argument names, typed as argparse types them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.readers.document import LocatedProblem, Origin, Value
from primus_lint.readers.tables import Flag, flags, table

if TYPE_CHECKING:
    from collections.abc import Iterable

_OTHER = {"d3528a21": "d98e8a64", "d98e8a64": "d3528a21"}


class Given(NamedTuple):
    """One flag as it was given. `origin` describes the place (its value is replaced by the typed one); `unknown` names
    what its words wait for (a variable, a command), None when they are sure."""

    flag: str
    words: tuple[str, ...]
    origin: Origin
    unknown: str | None = None


def values_of(
    given: Iterable[Given], version: str | None, path: str, problems: list[LocatedProblem]
) -> dict[str, Value]:
    """Values by argument name. Of a repeated flag the last wins; weaker ones stay in the chain. Problems: unknown,
    removed or misused flags. A single word with blanks counts as several where the flag takes several."""
    version = version if version in _OTHER else "d3528a21"
    known = flags(version)
    values: dict[str, Value] = {}
    for item in given:
        flag = known.get(item.flag)
        if flag is None:
            other = flags(_OTHER[version]).get(item.flag)
            if other is None:
                problems.append(_unknown(item, version, path))
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
        if item.unknown is not None and flag.type not in ("str", "bool"):
            message = f"{item.flag}: {item.unknown} has no value that is sure here; give it with --env NAME=VALUE"
            problems.append(_problem("unset-variable", message, item, path, True))
            continue
        origin = item.origin._replace(value=value)
        old = values.get(flag.key)
        values[flag.key] = Value(value, (origin,) if old is None else (origin, *old.origins))
    return values


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
    span = (origin.span or origin.key_span) if code in ("flag-value", "unset-variable") else origin.key_span
    return LocatedProblem(code, message, path, span, origin.line, origin.column, fatal, origin.key_path)


def _unknown(item: Given, version: str, path: str) -> LocatedProblem:
    removed = table("megatron", version)["removed"]
    for key, facts in removed.items():
        if item.flag in facts.get("flags", ()):
            to = facts.get("to")
            hint = f"; use --{to.replace('_', '-')}" if to else ""
            message = f"{item.flag} was removed from Megatron-LM in {facts.get('gone', '?')[:4]}{hint}"
            problem = _problem("removed-flag", message, item, path, False)
            return problem._replace(key_path=(*item.origin.key_path[:-1], key))
    from difflib import get_close_matches

    near = get_close_matches(item.flag, list(flags(version)), 2, 0.75)
    hint = f"; near: {', '.join(near)}" if near else ""
    return _problem("unknown-flag", f"{item.flag} is no flag of Megatron-LM {version}{hint}", item, path, False)
