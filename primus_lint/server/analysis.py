"""One buffer of the editor, checked: the same flow as `primus-lint check`, on a text instead of a file."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from primus_lint.cli.common import repository_root
from primus_lint.pipeline import Checked, check_source, resolve_source
from primus_lint.rules.siblings import drift, family_files
from primus_lint.server.positions import Positions
from primus_lint.settings import Settings, load_settings
from primus_lint.source.text import SourceText

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.pipeline import Options
    from primus_lint.readers.document import Origin, Value
    from primus_lint.subject import Subject


class Analysis:
    """A checked text. `positions` converts its places."""

    __slots__ = ("checked", "options", "path", "positions", "settings", "source", "uri")

    def __init__(
        self, uri: str, path: str, text: str, options: Options, settings: Settings, encoding: str = "utf-16"
    ) -> None:
        self.uri = uri
        self.path = path
        self.options = options
        self.settings = settings
        self.source = SourceText.from_text(path, text)
        self.positions = Positions(self.source, encoding)
        self.checked: Checked = check_source(self.source, options, settings)

    def again(self, text: str) -> Analysis:
        """Another text in the same place."""
        return Analysis(self.uri, self.path, text, self.options, self.settings, self.positions.encoding)

    def compare(self, source_of: Callable[[str], SourceText]) -> None:
        """Add what differs from the siblings of the file: variants of the recipe for other devices and formats."""
        folder = os.path.dirname(os.path.abspath(self.path))
        if not self.checked.is_recipe or self.checked.document.fatal or not os.path.isdir(folder):
            return
        root = repository_root(folder)
        others = family_files(self.path, root if folder.startswith(root) else folder)
        siblings = []
        for path in others:
            with contextlib.suppress(OSError):
                siblings.append(resolve_source(source_of(path), self.options, load_settings(path)))
        drift([self.checked, *siblings], only=self.checked)

    def value_at(self, offset: int) -> tuple[Subject | None, str, Value, Origin] | None:
        """The value whose key or text stands at an offset: (subject, key, value, the origin that stands here).

        The subject is None for a key outside of every section.
        """
        document = self.checked.document
        for subject in self.checked.subjects:
            for values in (subject.section.values, subject.section.meta):
                for key, value in values.items():
                    origin = _origin_at(value, self.path, offset)
                    if origin is not None:
                        return subject, key, value, origin
        for values in (document.top_level, document.env):
            for key, value in values.items():
                origin = _origin_at(value, self.path, offset)
                if origin is not None:
                    return None, key, value, origin
        return None

    def subject_at(self, offset: int) -> Subject | None:
        """The section whose name (`pre_trainer:`, `MODEL_ARGS:`) stands at an offset."""
        doc = self.checked.document.doc
        for subject in self.checked.subjects if doc is not None else ():
            path = subject.section.node_path
            entry = doc.entry(path[: 2 if path[:1] == ("modules",) else 1]) if doc is not None and path else None
            if entry is not None and entry.key.start <= offset <= entry.key.end:
                return subject
        return None


def analyse(uri: str, path: str, text: str, options: Options, encoding: str = "utf-16") -> Analysis:
    """Check a text under the settings that hold at its path."""
    return Analysis(uri, path, text, options, load_settings(path), encoding)


def _origin_at(value: Value, path: str, offset: int) -> Origin | None:
    for origin in value.origins:
        if origin.path != path:
            continue
        for span in (origin.key_span, origin.span):
            if span is not None and span[0] <= offset <= span[1]:
                return origin
    return None
