"""Positions and cursors, without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lsprotocol", reason="the language server needs pygls (extra `lsp`)")

from primus_lint.server.cursor import cursor_at
from primus_lint.server.positions import Positions
from primus_lint.source.text import SourceText

TEXTS = st.text(st.sampled_from("ab é€🚀:#\n\r"), max_size=40)


@given(TEXTS, st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_positions_go_there_and_back(text: str, encoding: str) -> None:
    positions = Positions(SourceText.from_text("x.yaml", text), encoding)
    unit = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    codec = encoding if encoding == "utf-8" else encoding + "-le"
    for offset in range(len(text) + 1):
        place = positions.position(offset)
        start = positions.source.line_starts[place.line]
        assert place.character == len(text[start:offset].encode(codec)) // unit
        if text[offset - 1 : offset + 1] != "\r\n" and not text[start:offset].endswith("\r"):
            assert positions.offset(place) == offset


@given(TEXTS, st.integers(0, 50), st.integers(0, 50))
def test_a_wild_position_is_a_place_of_the_text(text: str, line: int, character: int) -> None:
    from lsprotocol import types

    positions = Positions(SourceText.from_text("x.yaml", text))
    offset = positions.offset(types.Position(line, character))
    assert 0 <= offset <= len(text)
    assert line >= len(positions.source.line_starts) or positions.position(offset).line == line


CASES = [
    ("a:\n  b:\n    c: 1\n    |", ("a", "b"), None, {"c"}),
    ("a:\n  b:\n    c: 1\n  |", ("a",), None, {"b"}),
    ("a:\n  b:\n    c: 1\n    d: |", ("a", "b"), "d", {"c"}),
    ("a:\n  b:\n    c: fu|ll # why\n    d: 2", ("a", "b"), "c", {"d"}),
    ("a:\n  # note: x\n\n  key|", ("a",), None, set()),
    ('"a":\n  b: 1\n  |\n  e: 1\nf: 1', ("a",), None, {"b", "e"}),
    ("|", (), None, set()),
    ("a: 1\nb: {x: 1}\n|\nc: 1", (), None, {"a", "b", "c"}),
]


@pytest.mark.parametrize("marked, path, key, taken", CASES)
def test_cursor(marked: str, path: tuple[str, ...], key: str | None, taken: set[str]) -> None:
    at = marked.index("|")
    cursor = cursor_at(marked.replace("|", ""), at)
    assert cursor is not None
    assert (cursor.path, cursor.key, cursor.taken) == (path, key, taken)
    assert cursor.start <= at <= cursor.end


@pytest.mark.parametrize("marked", ["a: 1 # com|ment", "# |", "a:\n  - it|em", "a: b c|"])
def test_no_cursor(marked: str) -> None:
    assert cursor_at(marked.replace("|", ""), marked.index("|")) is None


@given(TEXTS, st.integers(0, 40))
def test_a_cursor_never_raises(text: str, at: int) -> None:
    cursor = cursor_at(text, min(at, len(text)))
    assert cursor is None or 0 <= cursor.start <= cursor.end <= len(text)
