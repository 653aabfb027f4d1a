"""Findings of one cause are one group: a preset's defect with its users, or the same sentence in many files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.rules.finding import Place

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.rules.finding import Finding

ALIKE = 3  # so many files must say the same before it is said once
_SEVERITIES = ("error", "warning", "info")


class Group:
    """Findings of one cause. `cause` is the place in a preset or parent file that all of them come from, if there is one."""

    __slots__ = ("cause", "members")

    def __init__(self, cause: Place | None, members: list[tuple[Checked, Finding]]) -> None:
        self.cause = cause
        self.members = members

    @property
    def checked(self) -> Checked:
        return self.members[0][0]

    @property
    def finding(self) -> Finding:
        """The first: it stands for the others."""
        return self.members[0][1]

    @property
    def files(self) -> int:
        return len({item.path for item, _ in self.members})

    def others(self, limit: int = 3) -> str:
        """In words which files the group is about: "a.yaml:4, b.yaml:9 and 12 more"."""
        places = []
        for item, finding in self.members:
            line = finding.place.line if finding.place is not None and finding.place.path == item.path else 0
            text = f"{item.path}:{line}" if line else item.path
            if text not in places:
                places.append(text)
        shown = ", ".join(places[:limit])
        return shown + (f" and {len(places) - limit} more" if len(places) > limit else "")


def cause_of(checked: Checked, finding: Finding) -> Place | None:
    """The place outside the file that a finding comes from; None when the file itself sets the key."""
    place = finding.place
    if place is not None and place.path != checked.path:
        return place
    if finding.section is None or not finding.keys:
        return None
    origins = [(key, origin) for key in finding.keys if (origin := finding.section.origin(key)) is not None]
    if not origins or any(origin.path == checked.document.path and origin.line > 0 for _, origin in origins):
        return None
    key, first = origins[0]
    label = dict(finding.labels).get(key, "")
    return Place(first.path, first.line, first.column, first.span, label) if first.path and first.line > 0 else None


def grouped(findings: list[tuple[Checked, Finding]], grouping: bool = True) -> list[Group]:
    """Findings by cause, the most severe first, then those with the most files.

    Two findings have one cause when rule, sentence and (outside the file) place are the same. A preset's defect is a
    group from two users on; a sentence without common place from ALIKE files on. A finding on its own is a group too.
    """
    alike: dict[tuple[str, str, str], list[tuple[Checked, Finding]]] = {}
    causes: dict[tuple[str, str, str], Place | None] = {}
    for checked, finding in findings:
        cause = cause_of(checked, finding) if grouping else None
        key = (finding.code, finding.message, f"{cause.path}:{cause.line}" if cause is not None else "")
        if not grouping:
            key = (finding.code, finding.message, str(id(finding)))
        alike.setdefault(key, []).append((checked, finding))
        causes[key] = cause
    groups: list[Group] = []
    for key, members in alike.items():
        group = Group(causes[key], members)
        if len(members) == 1 or group.files >= (2 if group.cause is not None else ALIKE):
            groups.append(group)
        else:
            groups += [Group(group.cause, [member]) for member in members]
    groups.sort(key=lambda group: (_SEVERITIES.index(group.finding.severity), -group.files))
    return groups
