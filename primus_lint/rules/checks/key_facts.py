"""What the checks of keys share: the tables of a section's framework, the keys that a file writes, how to say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table
from primus_lint.rules.finding import Finding, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from primus_lint.readers.document import Value
    from primus_lint.subject import Subject

WRITTEN = ("cli", "experiment", "extends")  # layers that the file (its parents, the command line) writes itself
TABLES = ("megatron", "torchtitan", "maxtext", "megatron_bridge")  # frameworks whose keys are tabled


def name_of(subject: Subject) -> str:
    """The name of the key table of a section; "" when its framework has none."""
    framework = subject.section.framework
    if framework == "megatron":
        return subject.framework
    return framework if framework in TABLES else ""


def keys_of(subject: Subject) -> dict[str, dict[str, Any]]:
    """Key -> facts of the section's framework ({} when it is not tabled)."""
    name = name_of(subject)
    if name == "megatron":
        from primus_lint.lower.megatron.tables import keys

        return keys(subject.version)
    found: dict[str, dict[str, Any]] = table(name)["keys"] if name else {}
    return found


def removed_of(subject: Subject) -> dict[str, dict[str, Any]]:
    """Keys that former versions had -> facts."""
    name = name_of(subject)
    if not name:
        return {}
    if name == "megatron":
        from primus_lint.lower.megatron.versions import key_table

        return dict(table(name, key_table(subject.version))["removed"])
    found: dict[str, dict[str, Any]] = table(name)["removed"]
    return found


def written(subject: Subject) -> Iterator[tuple[str, Value]]:
    """(key, value) of what the file itself writes, in its order."""
    for key, value in subject.section.values.items():
        if value.origins[0].layer in WRITTEN:
            yield key, value


def nearest(key: str, names: Iterable[str], cutoff: float = 0.84) -> str | None:
    """The known key that a misspelt one most likely means: the same but for case and dashes, one slip away, or alike."""
    from difflib import get_close_matches

    known = set(names)
    plain = key.replace("-", "_")
    for name in (plain, plain.lower()):
        if name in known:
            return name
    if len(key) >= 4:
        slips = sorted(name for name in known if abs(len(name) - len(key)) <= 1 and _one_slip(key, name))
        if slips:
            return slips[0]
    close = get_close_matches(key, known, 1, cutoff)
    return close[0] if close else None


def _one_slip(one: str, other: str) -> bool:
    """Whether one letter more, less, changed or swapped with its neighbour makes one name into the other."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[at:], other[at:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:] and len(a) > 1)


def shown(value: Any) -> str:
    """A value as YAML would write it, shortened."""
    from primus_lint.rules.engine import words

    text = words(value) if not isinstance(value, str) or value else '""'
    return text if len(text) <= 40 else text[:37] + "..."


def say(rule: dict[str, Any], subject: Subject, message: str, keys: tuple[str, ...], **more: Any) -> Finding:
    """A finding about keys of the section, or (with `place`) about another place of the file.

    `at_key` points at the name of the first key instead of its value.
    """
    from primus_lint.rules.templates import STAGES

    key_path = more.pop("key_path", ())
    if "fixes" in more:  # what another file writes cannot be renamed or dropped here
        more["fixes"] = tuple(
            fix
            for fix in more["fixes"]
            if all(change.op == "set" or key_place(subject, change.key) is not None for change in fix.changes)
        )
    if more.pop("at_key", False):
        place = key_place(subject, keys[0])
        if place is not None:
            origin = subject.section.values[keys[0]].origin
            more["place"], key_path = place, origin.key_path
    finding = Finding(
        rule["code"], rule["name"], more.pop("severity", rule["severity"]), message,
        confidence=more.pop("confidence", rule["confidence"]), catalogue=tuple(rule["catalogue"]),
        stage=STAGES.index(rule["stage"]), order=rule["order"], keys=keys, section=subject.section, **more,
    )  # fmt: skip
    finding.key_path = key_path
    return finding


def key_place(subject: Subject, key: str) -> Place | None:
    """Where the file itself writes a key; None when it does not."""
    origin, source = subject.section.origin(key), subject.document.source
    if origin is None or origin.path != subject.document.path or origin.key_span is None or source is None:
        return None
    line, column = source.position(origin.key_span[0])
    return Place(origin.path, line, column, origin.key_span)


def listed(items: list[str], limit: int = 5) -> str:
    """Names in a sentence: "a, b and 3 more"."""
    if len(items) == 1:
        return items[0]
    if len(items) <= limit:
        return f"{', '.join(items[:-1])} and {items[-1]}"
    return f"{', '.join(items[: limit - 1])} and {len(items) - limit + 1} more"
