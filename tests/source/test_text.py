from __future__ import annotations

import pytest

from primus_lint.source.spans import SpanDoc
from primus_lint.source.text import SourceText, Span

TEXT = "a: é1\nb: 漢 # c\n\n  x: \U0001f600y\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")],
)
def test_bytes_survive_and_offsets_are_those_of_the_file(newline: str, encoding: str, mark: bytes) -> None:
    text = TEXT.replace("\n", newline)
    data = mark + text.encode(encoding)
    source = SourceText.from_bytes("f.yaml", data)
    assert source.text == text
    assert (source.bom, source.encoding, source.newline) == (bool(mark), encoding, newline)
    assert source.encode(source.text) == data
    for offset in range(len(text) + 1):
        at = source.byte_offset(offset)
        assert data[at:].decode(encoding) == text[offset:]


def test_lines_and_columns_count_from_one_in_characters() -> None:
    source = SourceText.from_text("f", TEXT)
    assert source.position(0) == (1, 1)
    assert source.position(TEXT.index("漢")) == (2, 4)
    assert source.position(TEXT.index("y")) == (4, 7)
    assert source.position(10**6) == (5, 1)
    assert [source.line_text(line) for line in range(7)] == ["", "a: é1", "b: 漢 # c", "", "  x: \U0001f600y", "", ""]
    start = TEXT.index("漢")
    # before it: "a: é1\n" is 7 bytes, "b: " is 3; the character itself is 3
    assert source.location(Span(start, start + 1)) == (2, 4, 2, 5, 10, 13)


def test_lone_carriage_returns_end_lines() -> None:
    source = SourceText.from_text("f", "a: 1\rb: 2\r\nc: 3\n")
    assert [source.line_text(line) for line in (1, 2, 3)] == ["a: 1", "b: 2", "c: 3"]
    assert source.position(5) == (2, 1)


def test_the_commoner_line_break_is_the_files() -> None:
    assert SourceText.from_text("f", "a\r\nb\nc\n").newline == "\n"
    assert SourceText.from_text("f", "a\r\nb\r\nc\n").newline == "\r\n"
    assert SourceText.from_text("f", "").newline == "\n"


@pytest.mark.parametrize(
    ("data", "fatal", "line_column"),
    [
        (b"a: 1\nb: \xe9\n", True, (2, 4)),  # latin-1
        ("é: 1\n".encode() + b"\xff", True, (2, 1)),
        (b"\xef\xbb\xbfa: \xc3", True, (1, 4)),
        (b"\xff\xfea\x00:\x00\n", True, (1, 3)),  # half a character at the end
        (b"\xff\xfea\x00:\x00", False, (1, 1)),
        ("a: 1".encode("utf-32"), True, (1, 1)),
    ],
)
def test_what_is_not_utf8_is_a_located_problem(data: bytes, fatal: bool, line_column: tuple[int, int]) -> None:
    source = SourceText.from_bytes("f", data)
    assert [(each.code, each.fatal) for each in source.problems] == [("not-utf8", fatal)]
    assert source.position(source.problems[0].span.start) == line_column
    doc = SpanDoc.parse(source)
    assert doc.fatal is fatal
    assert (doc.root is None) is fatal


def test_undecodable_bytes_come_back_unchanged() -> None:
    data = b"a: \xe9\xff\nb: \xc3\xa9\n"
    source = SourceText.from_bytes("f", data)
    assert source.encode(source.text) == data
    assert source.byte_offset(source.text.index("\n")) == 5


def test_a_missing_file_raises(tmp_path: object) -> None:
    with pytest.raises(FileNotFoundError):
        SourceText.from_path(f"{tmp_path}/none.yaml")


def test_a_text_in_memory_may_begin_with_a_byte_order_mark() -> None:
    source = SourceText.from_text("f", "\ufeffa: 1\n")
    assert (source.bom, source.text, source.byte_offset(0)) == (True, "a: 1\n", 3)
    doc = SpanDoc.parse(SourceText.from_bytes("f", b"\xef\xbb\xbf" * 2 + b"a: 1\n"))
    assert doc.fatal and doc.problems[0].code == "yaml-syntax"
