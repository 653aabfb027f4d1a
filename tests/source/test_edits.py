"""Edits by example: the text before, the edit, the text after, written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.source import edits
from primus_lint.source.edits import Edited, EditError, Operation, Splice, edit
from primus_lint.source.spans import SpanDoc
from primus_lint.source.text import SourceText


def insert(*path: Any, value: Any, comment: str | None = None, after: Any = None, before: Any = None) -> Operation:
    return Operation("insert", path, value, comment, after, before)


SET, DELETE, RENAME, DEFAULT, ITEM = "set", "delete", "rename", "set-default", "insert-item"

CASES: dict[str, tuple[str, Operation, str]] = {
    # replace
    "scalar": ("a: 1\nb: 2\n", Operation(SET, ("a",), 16), "a: 16\nb: 2\n"),
    "no newline at the end": ("a: 1\nb: 2", Operation(SET, ("b",), 16), "a: 1\nb: 16"),
    "crlf": ("a: 1\r\nb: 2\r\n", Operation(SET, ("a",), 16), "a: 16\r\nb: 2\r\n"),
    "slack keeps the comment's column": ("a: 8     # c\n", Operation(SET, ("a",), 1024), "a: 1024  # c\n"),
    "slack used up": ("a: 8   # c\n", Operation(SET, ("a",), 123456), "a: 123456  # c\n"),
    "shorter value keeps the column too": ("a: 1024   # c\n", Operation(SET, ("a",), 8), "a: 8      # c\n"),
    "aligned comments stay aligned": ("a: 8  # c\nb: 10 # d\n", Operation(SET, ("a",), 16), "a: 16 # c\nb: 10 # d\n"),
    "a comment not set off moves": ("a: 8 # c\n", Operation(SET, ("a",), 16), "a: 16 # c\n"),
    "quotes stay": ("a: \"x\"\nb: 'y'\n", Operation(SET, ("a",), "z"), "a: \"z\"\nb: 'y'\n"),
    "quotes go with the string": ('a: "1"\n', Operation(SET, ("a",), 2), "a: 2\n"),
    "a string that looks like a number": ("a: x\n", Operation(SET, ("a",), "1e-5"), "a: '1e-5'\n"),
    "a float": ("a: x\n", Operation(SET, ("a",), 1e-5), "a: 1.0e-05\n"),
    "nothing there yet": ("a:\nb: 1\n", Operation(SET, ("a",), 5), "a: 5\nb: 1\n"),
    "nothing but a comment": ("a:     # c\n", Operation(SET, ("a",), 5), "a: 5   # c\n"),
    "a list on one line": ("a: 1\n", Operation(SET, ("a",), [1, "x, y"]), "a: [1, 'x, y']\n"),
    "anchor without alias stays": ("a: &x 5 # c\n", Operation(SET, ("a",), 6), "a: &x 6 # c\n"),
    "tag goes": ("a: &x !!str 5\n", Operation(SET, ("a",), 6), "a: &x 6\n"),
    "alias is replaced": ("a: &x 5\nb: *x # c\n", Operation(SET, ("b",), 6), "a: &x 5\nb: 6 # c\n"),
    "block scalar": ("a: |  # h\n  x\n  y\n\nb: 1\n", Operation(SET, ("a",), "z"), "a: z  # h\n\nb: 1\n"),
    "block mapping": (
        "a:    # c\n  # d\n  x: 1\n  y: 2 # e\n# f\nb: 1\n", Operation(SET, ("a",), 5), "a: 5  # c\n  # d\n# f\nb: 1\n",
    ),
    "block mapping with anchor and tag": ("a: &x !!map\n  b: 1\nc: 2\n", Operation(SET, ("a",), 5), "a: &x 5\nc: 2\n"),
    "list without indent": ("a:\n- 1\n- 2\nb: 1\n", Operation(SET, ("a",), [3]), "a: [3]\nb: 1\n"),
    "item": ("a:\n- 1 # c\n- 2\n", Operation(SET, ("a", 0), 3), "a:\n- 3 # c\n- 2\n"),
    "mapping behind a dash": ("a:\n- x: 1\n  y: 2 # c\n- z\n", Operation(SET, ("a", 0), 5), "a:\n- 5 # c\n- z\n"),
    "empty item": ("a:\n-\n- 2\n", Operation(SET, ("a", 0), 3), "a:\n- 3\n- 2\n"),
    "in flow": ("a: {x: 1, y: [2, 3]}\n", Operation(SET, ("a", "y", 0), "${A:1}"), "a: {x: 1, y: ['${A:1}', 3]}\n"),
    "in flow, nothing there yet": ("a: {x: , y}\n", Operation(SET, ("a", "x"), 1), "a: {x: 1 , y}\n"),
    "in flow, not even a colon": ("a: {x: , y}\n", Operation(SET, ("a", "y"), 1), "a: {x: , y: 1}\n"),
    "the last of a key set twice": ("a: 1\na: 2\n", Operation(SET, ("a",), 3), "a: 1\na: 3\n"),
    "what was merged in is set beside it": (
        "x: {<<: {a: 1}}\ny:\n  <<: {a: 1}\n  b: 2\n",
        Operation(SET, ("y", "a"), 5),
        "x: {<<: {a: 1}}\ny:\n  <<: {a: 1}\n  b: 2\n  a: 5\n",
    ),
    "explicit key": ("? a\n: 1 # c\n", Operation(SET, ("a",), 2), "? a\n: 2 # c\n"),
    "root": ("# t\na: 1\nb: 2\n", Operation(SET, (), 5), "# t\n5\n"),
    # default of a variable
    "default": ("a: ${TP:8} # c\n", Operation(DEFAULT, ("a",), "16"), "a: ${TP:16} # c\n"),
    "default in quotes": ('a: "${TP:8}"   # c\n', Operation(DEFAULT, ("a",), "16"), 'a: "${TP:16}"  # c\n'),
    "quotes in a quoted default": ("a: '${TP:}'\n", Operation(DEFAULT, ("a",), "it's"), "a: '${TP:it''s}'\n"),
    "default inside a text": ("a: x/${TP:8}/y\n", Operation(DEFAULT, ("a",), ""), "a: x/${TP:}/y\n"),
    # insert
    "append": (
        "m:\n  a: 1 # c\n  # b: 2\n\nn: 1\n",
        insert("m", "k", value=5),
        "m:\n  a: 1 # c\n  k: 5\n  # b: 2\n\nn: 1\n",
    ),
    "append with a comment": ("a: 1\n", insert("k", value="x", comment="why"), "a: 1\nk: x  # why\n"),
    "append at an end without newline": ("a: 1", insert("k", value=5), "a: 1\nk: 5"),
    "append with crlf": ("m:\r\n  a: 1\r\n", insert("m", "k", value=5), "m:\r\n  a: 1\r\n  k: 5\r\n"),
    "append below a nested mapping": (
        "m:\n  a:\n      b: 1\n      # deep\n  # shallow\nn: 1\n",
        insert("m", "k", value=5),
        "m:\n  a:\n      b: 1\n      # deep\n  k: 5\n  # shallow\nn: 1\n",
    ),
    "append below a list without indent": (
        "m:\n  a:\n  - 1\nn: 1\n", insert("m", "k", value=5), "m:\n  a:\n  - 1\n  k: 5\nn: 1\n",
    ),
    "append behind a dash": ("m:\n-   a: 1\n- b\n", insert("m", 0, "k", value=5), "m:\n-   a: 1\n    k: 5\n- b\n"),
    "append below a block scalar": (
        "a: |\n  x\n\nb: 1\n", insert("k", value=5, after="a"), "a: |\n  x\nk: 5\n\nb: 1\n",
    ),
    "append below a block scalar that keeps": (
        "a: |+\n  x\n\nb: 1\n", insert("k", value=5, after="a"), "a: |+\n  x\n\nk: 5\nb: 1\n",
    ),
    "append below a block scalar without newline": ("a: |\n  x", insert("k", value=5), "a: |-\n  x\nk: 5"),
    "into nothing": ("m:\nb:\n    c: 1\n", insert("m", "k", value=5), "m:\n    k: 5\nb:\n    c: 1\n"),
    "into nothing, with a comment": ("m: # c\nb: 1\n", insert("m", "k", value=5), "m: # c\n  k: 5\nb: 1\n"),
    "into null": ("x:\n  m: null  # c\n  b: 1\n", insert("x", "m", "k", value=5), "x:\n  m:  # c\n    k: 5\n  b: 1\n"),
    "into {}": ("m: {}  # c\nb: 1\n", insert("m", "k", value=5), "m:  # c\n  k: 5\nb: 1\n"),
    "a text that needs no quotes in a block": ("m: {}\n", insert("m", "k", value="${A:1}"), "m:\n  k: ${A:1}\n"),
    "a text that needs quotes in flow": ("m: [{}]\n", insert("m", 0, "k", value="${A:1}"), "m: [{k: '${A:1}'}]\n"),
    "into {} with a comment inside": ("m: { # c\n  }\n", insert("m", "k", value=5), "m: {k: 5 # c\n  }\n"),
    "into {} in flow": ("m: [{}, 1]\n", insert("m", 0, "k", value=5), "m: [{k: 5}, 1]\n"),
    "into null in flow": ("m: {a: null}\n", insert("m", "a", "k", value=5), "m: {a: {k: 5}}\n"),
    "into an empty item": ("m:\n-\n- 1\n", insert("m", 0, "k", value=5), "m:\n- {k: 5}\n- 1\n"),
    "into an empty file": ("", insert("k", value=5), "k: 5\n"),
    "into comments": ("# c", insert("k", value=5), "# c\nk: 5\n"),
    "into flow": ("m: {a: 1, b: 2 }\n", insert("m", "k", value="a, b"), "m: {a: 1, b: 2, k: 'a, b' }\n"),
    "after, in flow": ("m: {a: 1, b: 2}\n", insert("m", "k", value=5, after="a"), "m: {a: 1, k: 5, b: 2}\n"),
    "before, in flow": ("m: {a: 1, b: 2}\n", insert("m", "k", value=5, before="b"), "m: {a: 1, k: 5, b: 2}\n"),
    "after": ("a: 1 # c\n# b\nb: 2\n", insert("k", value=5, after="a"), "a: 1 # c\nk: 5\n# b\nb: 2\n"),
    "before takes the comment above along": (
        "a: 1\n# b1\n# b2\nb: 2\n", insert("k", value=5, before="b"), "a: 1\nk: 5\n# b1\n# b2\nb: 2\n",
    ),
    "before the first": ("# top\na: 1\n", insert("k", value=5, before="a"), "# top\nk: 5\na: 1\n"),
    "before, behind a dash": ("- a: 1\n  b: 2\n", insert(0, "k", value=5, before="a"), "- k: 5\n  a: 1\n  b: 2\n"),
    "beside a merged key of that name": ("a:\n  <<: {k: 1}\n", insert("a", "k", value=5), "a:\n  <<: {k: 1}\n  k: 5\n"),
    "a key that needs quotes": ("a: 1\n", insert("yes", value=5), "a: 1\n'yes': 5\n"),
    # items
    "item at the end": ("a:\n  - 1 # c\nb: 1\n", Operation(ITEM, ("a", 1), 5), "a:\n  - 1 # c\n  - 5\nb: 1\n"),
    "item before": ("a:\n# c\n- 1\n", Operation(ITEM, ("a", 0), 5), "a:\n# c\n- 5\n- 1\n"),
    "item in a list behind a dash": ("- - 1\n  - 2\n", Operation(ITEM, (0, 0), 5), "- - 5\n  - 1\n  - 2\n"),
    "item in flow": ("a: [1, 2]\n", Operation(ITEM, ("a", 1), "x]"), "a: [1, 'x]', 2]\n"),
    "item at the end in flow": ("a: [1, 2,]\n", Operation(ITEM, ("a", 2), 5), "a: [1, 2, 5,]\n"),
    "item into []": ("a: [] # c\n", Operation(ITEM, ("a", 0), 5), "a: [5] # c\n"),
    "item into nothing": ("a: # c\n", Operation(ITEM, ("a", 0), 5), "a: [5] # c\n"),
    # delete
    "key with its comment": ("a: 1\n# above\nb: 2 # own\nc: 3\n", Operation(DELETE, ("b",)), "a: 1\n# above\nc: 3\n"),
    "last key without newline": ("a: 1\nb: 2", Operation(DELETE, ("b",)), "a: 1"),
    "last key below a block scalar": ("a: |\n  x\nb: 2", Operation(DELETE, ("b",)), "a: |\n  x\n"),
    "last key below a block scalar that keeps": ("a: |+\n  x\nb: 2\n\n", Operation(DELETE, ("b",)), "a: |+\n  x\n"),
    "nested": ("a:\n  x: 1\n  y:\n  - 1\n  - 2\nb: 1\n", Operation(DELETE, ("a", "y")), "a:\n  x: 1\nb: 1\n"),
    "only key": ("a: # c\n  # d\n  x: 1 # e\nb: 1\n", Operation(DELETE, ("a", "x")), "a: {} # c\n  # d\nb: 1\n"),
    "only key without newline": ("b: 1\na:\n  x: 1", Operation(DELETE, ("a", "x")), "b: 1\na: {}"),
    "only key behind a dash": ("- x: 1 # c\n- 2\n", Operation(DELETE, (0, "x")), "- {} # c\n- 2\n"),
    "only key of all": ("# t\na: 1\n", Operation(DELETE, ("a",)), "# t\n{}\n"),
    "only item": ("a:\n- 1\nb: 2\n", Operation(DELETE, ("a", 0)), "a: []\nb: 2\n"),
    "first key behind a dash": ("- x: 1 # c\n  y: 2\n", Operation(DELETE, (0, "x")), "- y: 2\n"),
    "first key behind a dash, comment below": (
        "- x: 1\n  # about y\n  y: 2\n", Operation(DELETE, (0, "x")), "- # about y\n  y: 2\n",
    ),
    "item line": ("a:\n- 1 # c\n- 2\n", Operation(DELETE, ("a", 0)), "a:\n- 2\n"),
    "first item behind a dash": ("- - 1\n  - 2\n", Operation(DELETE, (0, 0)), "- - 2\n"),
    "first in flow": ("a: {x: 1, y: 2} # c\n", Operation(DELETE, ("a", "x")), "a: {y: 2} # c\n"),
    "last in flow": ("a: [1, 2, 3 ]\n", Operation(DELETE, ("a", 2)), "a: [1, 2 ]\n"),
    "last in flow with a comma": ("a: [1, 2, ]\n", Operation(DELETE, ("a", 1)), "a: [1, ]\n"),
    "only in flow": ("a: {x: 1,}\n", Operation(DELETE, ("a", "x")), "a: {}\n"),
    "line in flow": (
        "a: {\n  x: 1, # x\n  y: 2, # y\n  z: 3\n}\n", Operation(DELETE, ("a", "y")), "a: {\n  x: 1, # x\n  z: 3\n}\n",
    ),
    "last line in flow": (
        "a: {\n  x: 1, # x\n  y: 2 # y\n}\n", Operation(DELETE, ("a", "y")), "a: {\n  x: 1 # x\n}\n",
    ),
    "all of a key set twice": ("a: 1\nb: 2\na: 3\n", Operation(DELETE, ("a",)), "b: 2\n"),
    "explicit key goes": ("? a\n: 1\n? b\n: 2\n", Operation(DELETE, ("a",)), "? b\n: 2\n"),
    # rename
    "key": ("a : 1 # c\n", Operation(RENAME, ("a",), "bb"), "bb : 1 # c\n"),
    "quoted key": ('"a": 1\n', Operation(RENAME, ("a",), "bb"), '"bb": 1\n'),
    "key in flow": ("{a: 1, c}\n", Operation(RENAME, ("c",), "d, e"), "{a: 1, 'd, e'}\n"),
    "boolean key": ("on: 1\n", Operation(RENAME, (True,), "on"), "'on': 1\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_edit(name: str) -> None:
    before, operation, after = CASES[name]
    result = edit(SpanDoc.parse_text(before), [operation])
    assert isinstance(result, Edited), result
    assert result.text == after
    assert edits.apply(SpanDoc.parse_text(before), result.splices) == after


REFUSED = {
    "no such key": ("a: 1\n", Operation(SET, ("b",), 1)),
    "no such item": ("a: [1]\n", Operation(DELETE, ("a", 1))),
    "used again through an alias": ("a: &x 1\nb: *x\n", Operation(SET, ("a",), 2)),
    "an alias would lose its anchor": ("a: &x 1\nb: *x\n", Operation(DELETE, ("a",))),
    "inside a shared mapping": ("a: &x {k: 1}\nb: *x\n", Operation(SET, ("a", "k"), 2)),
    "inside an alias": ("a: &x {k: 1}\nb: *x\n", Operation(SET, ("b", "k"), 2)),
    "into an alias": ("a: &x {k: 1}\nb: *x\n", insert("b", "n", value=1)),
    "into an alias of nothing": ("a: &x\nb: *x\n", Operation(ITEM, ("b", 0), 1)),
    "a merged key cannot go": ("a:\n  <<: {k: 1}\n  b: 1\n", Operation(DELETE, ("a", "k"))),
    "inside a merged value": ("a:\n  <<: {k: {x: 1}}\n", Operation(SET, ("a", "k", "x"), 2)),
    "the key is there": ("a: 1\n", insert("a", value=1)),
    "the new name is there": ("a: 1\nb: 2\n", Operation(RENAME, ("a",), "b")),
    "rename one of two": ("a: 1\na: 2\n", Operation(RENAME, ("a",), "b")),
    "rename an item": ("- 1\n", Operation(RENAME, (0,), "b")),
    "rename all": ("a: 1\n", Operation(RENAME, (), "b")),
    "into a scalar": ("a: 1\n", insert("a", "k", value=1)),
    "into a pair without braces": ("a: [x: 1]\n", insert("a", 0, "k", value=1)),
    "no such sibling": ("a: 1\n", insert("k", value=1, after="b")),
    "item behind the end": ("a: [1]\n", Operation(ITEM, ("a", 3), 1)),
    "the document cannot go": ("a: 1\n", Operation(DELETE, ())),
    "not parsed": ("a: [\n", insert("k", value=1)),
    "two variables": ("a: ${A:1}${B:2}\n", Operation(DEFAULT, ("a",), "3")),
    "no variable": ("a: A:1\n", Operation(DEFAULT, ("a",), "3")),
    "no default": ("a: ${A}\n", Operation(DEFAULT, ("a",), "3")),
    "a default that ends the variable": ("a: ${A:1}\n", Operation(DEFAULT, ("a",), "}")),
    "a default that is no plain text": ("a: ${A:1}\n", Operation(DEFAULT, ("a",), "x #y")),
    "a deeper comment would fall into a block scalar": ("a: |\n  x\nb: 1\n  # c\n", Operation(DELETE, ("b",))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_said(name: str) -> None:
    text, operation = REFUSED[name]
    result = edit(SpanDoc.parse_text(text), [operation])
    assert isinstance(result, EditError)
    assert result.message


def test_a_bad_second_edit_undoes_the_first() -> None:
    doc = SpanDoc.parse_text("a: 1\n")
    assert isinstance(edit(doc, [Operation("set", ("a",), 2), Operation("delete", ("b",))]), EditError)


def test_many_edits_are_splices_of_the_first_text() -> None:
    text = "# t\r\nm: {}\r\nn:\r\n  a: ${A:1}   # a\r\n  b: 2\r\n"
    doc = SpanDoc.parse_text(text)
    result = edit(
        doc,
        [
            insert("m", "x", value=1),
            insert("m", "y", value=[2], comment="new"),
            Operation("set-default", ("n", "a"), "16"),
            Operation("rename", ("n", "b"), "c"),
            Operation("set", ("n", "c"), None),
            Operation("set", ("m", "x"), 3),
        ],
    )
    assert isinstance(result, Edited)
    assert result.text == ("# t\r\nm:\r\n  x: 3\r\n  y: [2]  # new\r\nn:\r\n  a: ${A:16}  # a\r\n  c: null\r\n")
    assert edits.apply(doc, result.splices) == result.text


def test_setting_what_is_there_changes_nothing() -> None:
    doc = SpanDoc.parse_text("a: 0x10   # c\nb:\n  - 'x'\n  - {k: ~}\nc: &x\nd: *x\n")
    paths: list[tuple[Any, ...]] = [("a",), ("b",), ("b", 0), ("b", 1, "k"), ()]
    result = edit(doc, [Operation("set", path, doc.node(path).value) for path in paths])  # type: ignore[union-attr]
    assert isinstance(result, Edited)
    assert (result.text, result.splices) == (doc.source.text, [])


def test_a_block_of_lines_goes_below_its_key() -> None:
    doc = SpanDoc.parse_text("m:\r\n    a: 1\r\n")
    splices = edits.append(doc, ("m",), "k", "x: 1\ny:\n- 2\n", "new")
    assert isinstance(splices, list)
    assert edits.apply(doc, splices) == (
        "m:\r\n    a: 1\r\n    k:  # new\r\n        x: 1\r\n        y:\r\n        - 2\r\n"
    )
    assert isinstance(edits.append(SpanDoc.parse_text("m: {a: 1}"), ("m",), "k", "x: 1\n"), EditError)
    assert isinstance(edits.append(SpanDoc.parse_text("m: [{}]"), ("m", 0), "k", "x: 1\n"), EditError)


def test_first_goes_above_all() -> None:
    doc = SpanDoc.parse_text("# top\nm:\n  # c\n  a: 1\n")
    splices = edits.insert_first(doc, ("m",), "k", "5")
    assert isinstance(splices, list)
    assert edits.apply(doc, splices) == "# top\nm:\n  # c\n  k: 5\n  a: 1\n"


def test_one_of_two_equal_keys_can_go() -> None:
    doc = SpanDoc.parse_text("m:\n  a: 1 # first\n  b: 2\n  a: 3\n")
    mapping = doc.node(("m",))
    assert mapping is not None
    splices = edits.delete_entry(doc, ("m",), mapping.own_entries[0])
    assert isinstance(splices, list)
    assert edits.apply(doc, splices) == "m:\n  b: 2\n  a: 3\n"
    assert isinstance(edits.delete_entry(doc, (), mapping.own_entries[0]), EditError)


def test_overlapping_splices_are_an_error() -> None:
    doc = SpanDoc.parse_text("a: 1\n")
    assert edits.apply(doc, [Splice(3, 3, "x"), Splice(3, 4, "y")]) == "a: xy\n"
    assert edits.apply(doc, [Splice(3, 3, "x"), Splice(3, 3, "y")]) == "a: xy1\n"
    for bad in ([Splice(2, 4, ""), Splice(3, 4, "")], [Splice(4, 3, "")], [Splice(0, 9, "")]):
        assert isinstance(edits.apply(doc, bad), EditError)


@pytest.mark.parametrize(
    ("new", "splices"),
    [
        ("a: 2\nb: 2 # c\n", None),  # a changed as meant, b as well
        ("a: 2\nb: '1' # c\n", None),  # another type
        ("a: 2\nb: 1.0 # c\n", None),
        ("a: 2\nb: [\n", None),
        ("a: 2\nb: 1\n", [Splice(3, 4, "2")]),  # not these splices
        ("b: 1\na: 2\n", [Splice(3, 4, "2")]),
    ],
)
def test_verify_refuses_what_was_not_meant(new: str, splices: list[Splice] | None) -> None:
    doc = SpanDoc.parse_text("a: 1\nb: 1 # c\n")
    assert isinstance(edits.verify(doc, new, [Operation("set", ("a",), 2)], splices), EditError)


def test_verify_refuses_a_lost_comment() -> None:
    doc = SpanDoc.parse_text("a: 1\nb: 1 # c\n")
    assert edits.verify(doc, "a: 1\nb: 1 # c\n", [], []) is None
    assert edits.verify(doc, "a: 1\nb: 1 # x # c\n", []) is None
    error = edits.verify(doc, "a: 1\nb: 1 # x # c\n", [], [Splice(9, 9, " # x")])
    assert error is not None and "'# c'" in error.message


@pytest.mark.parametrize(("mark", "encoding"), [(b"", "utf-8"), (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le")])
def test_bytes_outside_of_an_edit_stay(mark: bytes, encoding: str) -> None:
    text = "é: 1 # ü\r\nb: \U0001f600\r\n"
    source = SourceText.from_bytes("f", mark + text.encode(encoding))
    result = edit(SpanDoc.parse(source), [Operation("set", ("é",), "漢")])
    assert isinstance(result, Edited)
    assert edits.encode(source, result.text) == mark + text.replace("1", "漢").encode(encoding)
