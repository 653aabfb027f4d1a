"""The unified diff of two texts."""

from __future__ import annotations

_COLORS = {"-": "\x1b[31m", "+": "\x1b[32m", "@": "\x1b[36m"}
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


def unified_diff(old: str, new: str, path: str, *, context: int = 3, color: bool = False) -> str:
    """What `diff -u` prints, with a/ and b/ before the path; empty when nothing changed.

    Lines end at LF only, as for git, so the CR of a CRLF line is part of its content. A last line without line break
    is followed by git's remark, and `git apply` and `patch` take the outcome.
    """
    if old == new:
        return ""
    from difflib import unified_diff as compare

    lines: list[str] = []
    for line in compare(_lines(old), _lines(new), f"a/{path}", f"b/{path}", n=context):
        whole = line.endswith("\n")
        body = line[:-1] if whole else line
        lines.append(_paint(body, header=len(lines) < 2) if color else body)
        if not whole:
            lines.append("\\ No newline at end of file")
    return "\n".join(lines) + "\n"


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _paint(line: str, *, header: bool) -> str:
    start = _BOLD if header else _COLORS.get(line[:1])
    return f"{start}{line}{_RESET}" if start else line
