"""Finding: what a rule has to say about one place of one file, and the fixes that it offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.readers.document import Section


class Change(NamedTuple):
    """One changed key: `op` is "set" (also adds), "drop" or "rename" (value: the new name)."""

    op: str
    key: str
    value: Any = None


class Fix(NamedTuple):
    title: str
    safety: str  # "safe", "unsafe", "display-only"
    changes: tuple[Change, ...]


class Place(NamedTuple):
    """A place in a file. `span` are character offsets; line and column are 1-based, 0 when what `message` says stands in
    no line of it (the command line set it)."""

    path: str
    line: int = 0
    column: int = 0
    span: tuple[int, int] | None = None
    message: str = ""

    def where(self, path: str | None = None) -> str:
        """`path:line:column`, as far as they are known; under another name of the file when `path` gives it."""
        path = self.path if path is None else path
        return f"{path}:{self.line}:{self.column}" if self.line > 0 else path


class Finding:
    """A finding before it is rendered. `keys[0]` is the key to point at; `place` is filled in when it is located."""

    __slots__ = (
        "catalogue", "code", "confidence", "fixes", "key_path", "keys", "labels", "message", "name", "notes", "order",
        "place", "related", "section", "severity", "stage", "suppressed", "suppressible",
    )  # fmt: skip

    def __init__(
        self,
        code: str,
        name: str,
        severity: str,
        message: str,
        *,
        confidence: str = "certain",
        catalogue: tuple[str, ...] = (),
        stage: int = 0,
        order: int = 0,
        keys: tuple[str, ...] = (),
        labels: tuple[tuple[str, str], ...] = (),
        notes: tuple[str, ...] = (),
        fixes: tuple[Fix, ...] = (),
        section: Section | None = None,
        place: Place | None = None,
        related: tuple[Place, ...] = (),
        suppressible: bool = True,
    ) -> None:
        self.code = code
        self.name = name
        self.severity = severity
        self.message = message
        self.confidence = confidence
        self.catalogue = catalogue
        self.stage = stage
        self.order = order
        self.keys = keys
        self.labels = labels
        self.notes = notes
        self.fixes = fixes
        self.section = section
        self.place = place
        self.related = related
        self.key_path: tuple[str | int, ...] = ()
        self.suppressed: str | None = None  # the reason given, when suppressed
        self.suppressible = suppressible

    def __repr__(self) -> str:
        return f"Finding({self.code} {self.name}: {self.message})"
