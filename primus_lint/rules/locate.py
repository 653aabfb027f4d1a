"""Where a finding points: the line that set the value, or the line that names the preset which did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.rules.finding import Finding, Place

if TYPE_CHECKING:
    from primus_lint.readers.document import Origin, ResolvedDocument, Section
    from primus_lint.subject import Subject


PRESETS = ("module-preset", "model-preset")


def locate(finding: Finding, subject: Subject) -> None:
    """Fill in `place`, `key_path` and `related` of a finding from its keys."""
    document, section = subject.document, subject.section
    labels = dict(finding.labels)
    shown: set[str] = set()
    related: list[Place] = list(finding.related)
    keys = [key for key in finding.keys if section.origin(key) is not None]
    if finding.place is None:
        first = _command_line(list(finding.keys[:1]), section)
        in_file = [key for key in keys if here(section.origin(key), document) is not None]
        primary = finding.keys[0] if finding.keys and finding.keys[0] in in_file else (in_file[0] if in_file else None)
        if primary is not None and first is None:
            origin = here(section.origin(primary), document)
            assert origin is not None
            finding.place = place_of(origin, labels.get(primary, ""))
            finding.key_path = origin.key_path
            shown.add(primary)
        elif (given := first or _command_line(keys, section)) is not None:
            key, raw = given
            finding.place = _overridden(key, document, section)._replace(message=f"the command line sets {key}={raw}")
            finding.key_path = (*section.node_path, key)
        else:
            inherited = any(origin.layer == "extends" for key in keys if (origin := section.origin(key)) is not None)
            finding.place = (parent_line(document) if inherited else None) or preset_line(document, section)
            if finding.keys:
                finding.key_path = (*section.node_path, finding.keys[0])
    for key in keys:
        origin = section.origin(key)
        if key in shown or origin is None or (key not in labels and not _tells(origin)):
            continue
        if origin.layer in PRESETS and finding.place is not None and _says_nothing(origin, labels.get(key)):
            continue
        text = labels.get(key, f"{key} is set here")
        if origin.path is not None:
            if origin.path not in document.sources:  # the line cannot be shown: its text goes into the sentence
                written = _as_written(origin)
                text = f"{key}: {written} ({text})" if key in labels and text != written else f"{key}: {written}"
            related.append(place_of(origin, text))
            shown.add(key)
    finding.related = tuple(related[:4])


def _command_line(keys: list[str], section: Section) -> tuple[str, str] | None:
    """The first key that the command line sets, and what it sets it to."""
    for key in keys:
        origin = section.origin(key)
        if origin is not None and origin.layer == "cli":
            return key, str(origin.value if origin.raw is None else origin.raw)
    return None


def _overridden(key: str, document: ResolvedDocument, section: Section) -> Place:
    """The line of the file whose value the command line replaces; no line when the file does not set it."""
    own = (origin for origin in section.values[key].origins if here(origin, document) is not None)
    origin = next(own, None)
    return Place(document.path) if origin is None else place_of(origin)


def _says_nothing(origin: Origin, label: str | None) -> bool:
    """A degree of one, or an unset key with no more to say than that, which a preset leaves as it is."""
    return (origin.value == 1 and origin.value is not True) or (
        origin.value in (None, "null") and label in (None, "null")
    )


def _as_written(origin: Origin) -> str:
    from primus_lint.rules.checks.key_facts import shown

    return shown(origin.value) if origin.raw is None else origin.raw


def _tells(origin: Origin) -> bool:
    """Whether an inherited value is worth showing without a word of the rule: one that a preset really sets."""
    return origin.layer in (*PRESETS, "extends") and origin.value not in (None, False, 0, 1, "none", "")


def here(origin: Origin | None, document: ResolvedDocument) -> Origin | None:
    """The origin when it lies in the file itself."""
    return origin if origin is not None and origin.path == document.path and origin.line > 0 else None


def place_of(origin: Origin, message: str = "") -> Place:
    return Place(origin.path or "", origin.line, origin.column, origin.span, message)


def parent_line(document: ResolvedDocument) -> Place | None:
    """The place of `extends`: a parent file sets the value."""
    entry = document.doc.entry(("extends",)) if document.doc is not None else None
    if entry is None or document.source is None:
        return None
    line, column = document.source.position(entry.key.start)
    return Place(document.path, line, column, (entry.key.start, entry.key.end), "a parent file sets it")


def preset_line(document: ResolvedDocument, section: Section) -> Place:
    """The line that names the presets of a section (or its first line): nothing else in the file set the value."""
    unset = "nothing in the file sets it: the value comes from a preset or a default"
    if section.command is not None:
        return place_of(section.command, "nothing in the script sets it")
    for key in ("model", "config", "framework"):
        value = section.meta.get(key) if section.meta else None
        if value is not None:
            origin = here(value.origin, document)
            if origin is not None:
                return place_of(origin, unset)
    doc = document.doc
    if doc is not None and document.source is not None and section.node_path:
        entry = doc.entry(section.node_path[:2])
        if entry is not None:
            line, column = document.source.position(entry.key.start)
            return Place(document.path, line, column, (entry.key.start, entry.key.end))
    return Place(document.path, 1, 1)
