"""Changes of a text as edits of the protocol."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from lsprotocol import types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.server.positions import Positions
    from primus_lint.source.splice import Splice


def of_splices(splices: Iterable[Splice], positions: Positions) -> list[types.TextEdit]:
    """Edits of splices of the text that `positions` belongs to."""
    return [types.TextEdit(positions.range(splice.start, splice.end), splice.text) for splice in splices]


def of_texts(new: str, positions: Positions) -> list[types.TextEdit]:
    """Edits that turn the text of `positions` into another one; whole lines, only the changed ones."""
    old = positions.source.text
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    return [
        types.TextEdit(positions.range(starts[first], starts[last]), "".join(after[low:high]))
        for tag, first, last, low, high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def workspace_edit(uri: str, version: int | None, changes: list[types.TextEdit]) -> types.WorkspaceEdit:
    """Edits of one document; a client refuses them when it has moved on to another version."""
    document = types.OptionalVersionedTextDocumentIdentifier(uri, version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, list(changes))])
