"""Edits of a YAML text, each as splices that touch nothing else.

Every edit takes a parsed document and a path of keys and indices, and returns its splices, or an EditError that says
why it cannot be done. Values are given as YAML on one line (`render_value`); what is inserted in a block mapping may
also be a block of lines, indented from column 0. Comments and layout around an edit stay as they are.
`edit` makes several operations one after the other and proves the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable

from primus_lint.source.delete import delete, delete_entry
from primus_lint.source.files import write_atomic
from primus_lint.source.insert import append, insert_after, insert_before, insert_first, insert_item
from primus_lint.source.render import render_scalar, render_value
from primus_lint.source.rewrite import Edited, Operation, edit, plan, verify
from primus_lint.source.spans import SourceText, SpanDoc
from primus_lint.source.splice import Draft, EditError, Splice, apply_splices
from primus_lint.source.values import rename_key, replace_default, replace_value

__all__ = [
    "Draft", "EditError", "Edited", "Operation", "Splice", "append", "apply", "delete", "delete_entry", "edit",
    "encode", "insert_after", "insert_before", "insert_first", "insert_item", "plan", "rename_key", "render_scalar",
    "render_value", "replace_default", "replace_value", "verify", "write_atomic",
]  # fmt: skip


def apply(doc: SpanDoc, splices: Iterable[Splice]) -> str | EditError:
    """The document's text with the splices made; an EditError if they overlap."""
    return apply_splices(doc.source.text, splices)


def encode(source: SourceText, text: str) -> bytes:
    """A new text of a file as bytes: in the file's encoding, with its byte order mark."""
    return source.encode(text)
