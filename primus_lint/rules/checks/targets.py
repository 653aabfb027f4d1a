"""The target that a recipe is judged on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import say
from primus_lint.rules.finding import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.hardware import Accelerator
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject
    from primus_lint.target import Assumed


TARGET_KEYS = ("gpu", "nodes", "world_size", "gpus_per_node")
WORDS = {  # of a target comment that say a part of the target
    "gpu": r"\bgpu=",
    "gpus_per_node": r"\bgpus[-_]per[-_]node=",
    "world_size": r"\b(world[-_]size|nodes)=",
}


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
    yield say(rule, subject, message, (), place=_comment(subject, "gpu"))


def nodes(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """GPUs that fill no whole number of nodes, and nodes larger than any of the device."""
    target, per_node = subject.target, subject.target.gpus_per_node
    if subject.document.format == "batch" or subject.section is not subject.document.sections[0]:
        return
    said = {entry.what: entry for entry in subject.assumed}
    size, node = said.get("world_size"), said.get("gpus_per_node")
    largest = 0 if subject.accelerator is None else largest_node(subject.accelerator)
    if node is not None and largest and per_node > largest:
        message = (
            f"no node of {subject.accelerator.label} has {per_node:,} GPUs, they have up to {largest}: "  # type: ignore[union-attr]
            f"what is between nodes is projected as if it were inside of one; give gpus_per_node {largest} or less"
        )
        yield say(rule, subject, message, (), place=_said_at(subject, node))
    world = target.world_size
    if size is None or world is None or world <= per_node or world % per_node == 0:
        return
    below = world // per_node * per_node
    fitting = next(number for number in range(per_node, 0, -1) if world % number == 0)
    message = (
        f"{world:,} GPUs are no whole number of nodes of {per_node}: a launcher starts as many processes on every node; "
        f"whole are {below:,} or {below + per_node:,} GPUs, or gpus_per_node {fitting} ({world // fitting:,} nodes)"
    )
    yield say(rule, subject, message, (), place=_said_at(subject, size))


def largest_node(accelerator: Accelerator) -> int:
    """The most GPUs that a node type of a device has; 0 when none is known."""
    from primus_lint.hardware import node_type

    kinds = (node_type(name) for name in accelerator.node_types)
    return max((kind.gpus_per_node for kind in kinds if kind is not None), default=0)


def _said_at(subject: Subject, entry: Assumed) -> Place:
    """The target comment, where it says a part of the target; else no line of the file."""
    if "comment" in entry.source:
        return _comment(subject, entry.what)
    return Place(subject.document.path, message=f"{entry.what} {entry.value} from {entry.source}")


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


def _comment(subject: Subject, what: str) -> Place:
    """Where the file itself says a part of its target; else its first line."""
    document = subject.document
    if document.source is not None:
        for number, line in enumerate(document.source.text.splitlines(), 1):
            at = line.find("primus-lint: target")
            found = re.search(WORDS[what], line)
            if at >= 0 and found is not None:
                return Place(document.path, number, found.end() + 1)
    return Place(document.path, 1, 1)
