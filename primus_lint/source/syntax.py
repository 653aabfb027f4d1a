"""Places that libyaml's marks do not give directly, and its errors as problems."""

from __future__ import annotations

import re

from primus_lint.source.pyyaml import YAMLError
from primus_lint.source.text import Problem, Span

_BLANKS = " \t\r\n\x85\u2028\u2029"


def block_scalar_end(text: str, start: int, end: int) -> int:
    """Without the line breaks behind it, which libyaml counts in (all but one of them are content under `+`)."""
    content = text[start:end]
    if "+" in content[1:3]:
        return end - (2 if content.endswith("\r\n") else 1 if content.endswith(("\n", "\r")) else 0)
    return start + len(content.rstrip("\r\n"))


def skip_properties(text: str, start: int, stop: int) -> tuple[int, int]:
    """(end of the anchor and tag that begin at `start`, beginning of the content behind them), both at most `stop`."""
    at = properties_end = start
    while at < stop:
        char = text[at]
        if char in "&!":
            if text.startswith("!<", at):
                at = text.index(">", at) + 1
            else:
                while at < stop and text[at] not in _BLANKS + ",[]{}":
                    at += 1
            properties_end = at
        elif char in _BLANKS:
            at += 1
        elif char == "#":
            while at < stop and text[at] not in "\r\n":
                at += 1
        else:
            break
    return properties_end, min(at, stop)


def syntax_problem(error: Exception, text: str, *, in_bytes: bool) -> Problem:
    """The problem that a parser raised. `in_bytes`: it counts a bad character's position in UTF-8 bytes."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if not isinstance(error, YAMLError):  # from a corner of PyYAML that does not check
        return Problem("yaml-syntax", str(error), _one(0, text))
    if mark is None:  # the reader: a character that YAML does not allow
        position = getattr(error, "position", 0) or 0
        at = len(text.encode("utf-8", "replace")[:position].decode("utf-8", "ignore")) if in_bytes else position
        reason = str(getattr(error, "reason", error))
        return Problem("yaml-syntax", f"{reason} (U+{ord(text[at]):04X})" if at < len(text) else reason, _one(at, text))
    conflict = re.search(r"^(<{7}|>{7})( .*)?$", text, re.M)
    if conflict is not None:
        return Problem("yaml-syntax", "a merge conflict that git marked is not settled", Span(*conflict.span()))
    at = mark.index
    what = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    context_mark = getattr(error, "context_mark", None)
    related: tuple[tuple[str, Span], ...] = ()
    if context == "while scanning a simple key" and context_mark is not None and mark.line > context_mark.line:
        return _no_colon(context_mark.index, text)
    if context is not None and context_mark is not None:
        related = ((context, _one(context_mark.index, text)),)
    if text[at : at + 1] == "\t":
        return Problem("tab-indent", "a tab cannot indent YAML: use spaces", _one(at, text), related)
    code = "too-deep" if "maximum nesting depth" in what else "yaml-syntax"
    return Problem(code, f"{context}: {what}" if context else what, _one(at, text), related)


def _no_colon(start: int, text: str) -> Problem:
    """A line that begins like a key and has no colon with a space behind it; the parser notices a line later."""
    line = text[start:].splitlines()[0].partition(" #")[0].rstrip()
    odd = next((char for char in line if not char.isascii() and (char.isspace() or char == "\uff1a")), None)
    hint = f"; U+{ord(odd):04X} does not count" if odd is not None else ""
    return Problem(
        "yaml-syntax",
        f"no colon with a space behind it: a line here is `key: value`{hint}",
        Span(start, start + len(line)),
    )


def _one(at: int, text: str) -> Span:
    at = min(at, len(text))
    return Span(at, min(at + 1, len(text)))
