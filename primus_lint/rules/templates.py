"""Message templates of rules, and the stages of the real program: what wording a finding needs, without the compiler."""

from __future__ import annotations

STAGES = ("source", "keys", "parse", "args", "batch", "grid", "config", "build", "optim", "first-step", "none")


def template_expressions(template: str) -> list[str]:
    """The `{expression}` parts of a message template (a format after `!` or `:` is cut off)."""
    return [piece[0] for piece in template_parts(template) if isinstance(piece, tuple)]


def template_parts(template: str) -> list[str | tuple[str, str]]:
    """Split a template into texts and (expression, format) pairs; `{{` and `}}` are literal braces."""
    parts: list[str | tuple[str, str]] = []
    text = ""
    index = 0
    while index < len(template):
        char = template[index]
        if template[index : index + 2] in ("{{", "}}"):
            text += char
            index += 2
            continue
        if char == "{":
            end = template.index("}", index)
            inner = template[index + 1 : end]
            body, _, form = inner.partition("!")
            parts += [text, (body, form)]
            text = ""
            index = end + 1
            continue
        text += char
        index += 1
    return [*parts, text]
