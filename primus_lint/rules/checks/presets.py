"""Model presets against module presets: what a model preset asks for and the module preset keeps from happening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.merge import SHADOWED
from primus_lint.rules.checks.key_facts import keys_of, listed, say, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

# Keys that decide in which number format the model trains: to lose one is to train something else.
PRECISION = frozenset(("fp8", "fp8_recipe", "fp4", "fp4_recipe", "bf16", "fp16", "fp8_param_gather"))


def shadowed_precision(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """The number format that a model preset asks for and does not get."""
    lost = {key: asked for key, asked in _shadowed(subject).items() if key in PRECISION}
    if lost:
        yield _say(subject, rule, lost)


def shadowed(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Other values that a model preset asks for and does not get."""
    lost = _shadowed(subject)
    if any(key in PRECISION for key in lost):  # said with the precision: details of a format that is off
        lost = {key: asked for key, asked in lost.items() if not key.startswith(("fp8", "fp4"))}
    lost = {key: asked for key, asked in lost.items() if key not in PRECISION}
    if lost:
        yield _say(subject, rule, lost)


def dropped(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Parts of a section that a model preset adds to and the module preset defines as a whole."""
    lost = {key: value.value for key, value in subject.section.dropped.items()}
    if lost:
        names = [f"{key} {shown(value)}" for key, value in lost.items()]
        message = (
            f"the model preset {subject.section.model} sets {listed(names, 4)} in vain: the module preset "
            f"{subject.section.module_preset} defines the section, and sections of the two are not merged"
        )
        yield say(rule, subject, message, tuple(lost))


def _shadowed(subject: Subject) -> dict[str, Any]:
    """Key -> what the model preset asked for, where the module preset's own value runs and differs."""
    table = keys_of(subject)
    lost = {}
    for key, value in subject.section.values.items():
        if value.origins[0].layer != "module-preset" or table.get(key, {}).get("state") in ("dead", "inert", "removed"):
            continue
        for origin in value.origins[1:]:
            if origin.note == SHADOWED:
                if origin.value != value.value and not (origin.value == "null" and value.value is None):
                    lost[key] = origin.value
                break
    return lost


def _say(subject: Subject, rule: dict[str, Any], lost: dict[str, Any]) -> Finding:
    section = subject.section
    runs = {key: section.values[key].value for key in lost}
    parts = [f"{key} {shown(asked)} (runs with {shown(runs[key])})" for key, asked in lost.items()]
    message = (
        f"the model preset {section.model} asks in vain for {listed(parts, 4)}: the module preset "
        f"{section.module_preset} has the key too and wins; set it in overrides"
    )
    labels = tuple((key, f"the module preset sets {shown(runs[key])}") for key in lost)
    return say(rule, subject, message, tuple(lost), labels=labels)
