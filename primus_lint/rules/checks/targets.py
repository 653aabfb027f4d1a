"""The target that a recipe is judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import say
from primus_lint.rules.finding import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Subject
    from primus_lint.rules.finding import Finding


TARGET_KEYS = ("gpu", "nodes", "world_size", "gpus_per_node")


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


def comment(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Words of a target comment that say nothing about the target."""
    from primus_lint.settings import target_words

    source = subject.document.source
    if source is None or subject.section is not subject.document.sections[0]:
        return
    for key, word, span in target_words(source.text):
        if key is not None:
            continue
        from difflib import get_close_matches

        name, _, value = word.partition("=")
        name = name.replace("-", "_")
        near = get_close_matches(name, TARGET_KEYS, 1, 0.6)
        if name in TARGET_KEYS:
            wanted = "the name of a device" if name == "gpu" else "a whole number above 0"
            message = f"the target comment says {word!r}: {name} wants {wanted}, {value or 'nothing'!r} is passed over"
        else:
            hint = f"; did you mean {near[0]}=?" if near else f"; there are {', '.join(TARGET_KEYS)}"
            message = f"the target comment says {word!r}, which is passed over{hint}"
        place = Place(source.path, *source.position(span[0]), span)
        yield say(rule, subject, message, (), place=place)


def _comment(subject: Subject) -> Place:
    """Where the file itself names its target; else its first line."""
    document = subject.document
    if document.source is not None:
        for number, line in enumerate(document.source.text.splitlines(), 1):
            at = line.find("primus-lint: target")
            if at >= 0 and "gpu=" in line:
                return Place(document.path, number, line.index("gpu=") + 5)
    return Place(document.path, 1, 1)
