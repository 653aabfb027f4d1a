"""The target that a recipe is judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import say
from primus_lint.rules.finding import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Subject
    from primus_lint.rules.finding import Finding


def device(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """The GPU kind of the target is not in the hardware database."""
    name = subject.target.gpu
    if name is None or subject.accelerator is not None or subject.section is not subject.document.sections[0]:
        return
    from primus_lint.hardware import suggest

    where = next((entry.source for entry in subject.assumed if entry.what == "gpu"), "the target")
    near = suggest(name)
    hint = f"; near: {', '.join(near)}" if near else ""
    message = f"{where} names the device {name}, which is not known{hint}"
    yield say(rule, subject, message, (), place=_comment(subject))


def _comment(subject: Subject) -> Place:
    """Where the file itself names its target; else its first line."""
    document = subject.document
    if document.source is not None:
        for number, line in enumerate(document.source.text.splitlines(), 1):
            at = line.find("primus-lint: target")
            if at >= 0 and "gpu=" in line:
                return Place(document.path, number, line.index("gpu=") + 5)
    return Place(document.path, 1, 1)
