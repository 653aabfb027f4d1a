from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from primus_lint.source import builder, merge
from primus_lint.source.node import Node
from primus_lint.source.spans import SpanDoc

from .corpus import FILES, needs_corpus
from .documents import documents
from .support import same

TEXT = """\
top: &t  !!str five   # c
list:
- 1
- {x: 'y', z: }
-
nested:   # n
  literal: |2  # hdr
     two
     lines

  # after
  folded: >-
    a
    b
  absent:
  again: *t
"quoted key": [a, "b\\n", 0x10]
"""


def node(doc: SpanDoc, *path: Any) -> Node:
    found = doc.node(path)
    assert found is not None
    return found


def test_kinds_styles_and_places() -> None:
    doc = SpanDoc.parse_text(TEXT)
    assert not doc.problems
    assert same(doc.to_python(), yaml.safe_load(TEXT))
    shown = {
        ("top",): ("scalar", "plain", "five", "&t  !!str five"),
        ("list",): ("sequence", "block", "- 1\n- {x: 'y', z: }\n-", None),
        ("list", 1): ("mapping", "flow", "{x: 'y', z: }", None),
        ("list", 1, "x"): ("scalar", "single", "'y'", None),
        ("list", 2): ("scalar", "plain", "", None),
        ("nested", "literal"): ("scalar", "literal", "|2  # hdr\n     two\n     lines", None),
        ("nested", "folded"): ("scalar", "folded", ">-\n    a\n    b", None),
        ("nested", "again"): ("scalar", "alias", "*t", None),
        ("quoted key", 1): ("scalar", "double", '"b\\n"', None),
    }
    for path, (kind, style, raw, whole) in shown.items():
        each = node(doc, *path)
        assert (each.kind, each.style, each.raw) == (kind, style, raw)
        assert TEXT[slice(*each.span)] == (whole or raw)
    assert node(doc, "top").anchor == "t"
    assert node(doc, "top").tag == "tag:yaml.org,2002:str"
    assert node(doc, "nested", "again").is_alias
    assert node(doc, "nested").raw.startswith("literal") and node(doc, "nested").raw.endswith("*t")
    assert node(doc, "nested", "absent").is_absent
    entry = doc.entry(("quoted key",))
    assert entry is not None and entry.key.raw == '"quoted key"'
    assert doc.source.location(entry.key.span)[:2] == (17, 1)


def test_paths_that_lead_nowhere() -> None:
    doc = SpanDoc.parse_text(TEXT)
    for path in [("none",), ("top", "x"), ("list", 3), ("list", "0"), ("list", True), ("nested", 0), ("top", 0, 1)]:
        assert doc.node(path) is None
        assert doc.entry(path) is None
    assert doc.entry(()) is None
    assert doc.entry(("list", 0)) is None
    assert node(doc).get(["unhashable"]) is None
    assert node(doc, "list").get("x") is None


def test_a_key_set_twice_keeps_both_and_the_later_counts() -> None:
    doc = SpanDoc.parse_text("a: 1\nb: 2\na: 3\n")
    root = node(doc)
    assert [entry.key.value for entry in root.entries] == ["a", "b", "a"]
    assert node(doc, "a").value == 3
    assert doc.to_python() == {"a": 3, "b": 2}
    (problem,) = doc.problems
    assert (problem.code, problem.fatal, doc.source.position(problem.span.start)) == ("duplicate-key", False, (3, 1))
    assert doc.source.position(problem.related[0][1].start) == (1, 1)


def test_boolean_keys_are_kept_with_their_value() -> None:
    doc = SpanDoc.parse_text("on: 1\n5: 2\n~: 3\ntext: 4\n")
    assert doc.to_python() == {True: 1, 5: 2, None: 3, "text": 4}
    assert [each.code for each in doc.problems] == ["non-string-key"] * 3
    assert node(doc, True).value == 1


MERGES = [
    "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n",
    "a: &a {x: 1}\nb: {y: 3, <<: *a, x: 5}\n",
    "a: &a {xx: 1, y: 2}\nb: &b {xx: 3, z: 4}\nc: {<<: [*a, *b]}\nd: {<<: [*b, *a]}\n",
    "a: &a {x: 1, y: 2}\nb: &b {x: 3, z: 4}\nc: {<<: [*a, *b]}\nd: {<<: [*b, *a]}\n",
    "a: &a {xx: 1}\nb: &b {<<: *a, yy: 2}\nc: {<<: *b, <<: *a, zz: 3}\n",
    "a: {<<: {x: 1}, <<: {x: 2, yy: 3}}\n",
    "'<<': 1\n=: 2\n",
    "a: !!set {<<: {x: }, y}\n",
    "a: {<<: []}\n",
]


@pytest.mark.parametrize("text", MERGES)
def test_merge_keys_merge_as_the_safe_loader_merges(text: str) -> None:
    doc = SpanDoc.parse_text(text)
    assert not doc.fatal
    assert same(doc.to_python(), yaml.safe_load(text))


def test_merged_entries_keep_their_own_place() -> None:
    text = "a: &a {x: 1}\nb:\n  <<: *a\n  y: 3\n"
    root = node(SpanDoc.parse_text(text), "b")
    assert [(entry.key.raw, entry.merged) for entry in root.entries] == [("x", True), ("y", False)]
    assert [(entry.key.raw, entry.is_merge) for entry in root.own_entries] == [("<<", True), ("y", False)]
    merged = root.get("x")
    assert merged is not None and merged.start == text.index("1")


def test_of_merged_mappings_older_versions_let_the_first_win(monkeypatch: pytest.MonkeyPatch) -> None:
    # the merge key's specification: "keys in mapping nodes earlier in the sequence override keys specified later"
    monkeypatch.setattr(merge, "_keeps_order", False)
    doc = SpanDoc.parse_text("- &a {xx: 1, y: 0}\n- &b {xx: 2}\n- {<<: [*a, *b]}\n- {<<: *a, <<: *b}\n")
    assert doc.to_python()[2] == {"xx": 1, "y": 0}
    assert doc.to_python()[3] == {"xx": 2, "y": 0}
    assert [each.code for each in doc.problems] == ["merge-conflict"]


@pytest.mark.parametrize(
    "text",
    [
        "!!set {a, b}",
        "!!omap [a: 1, b: {c: 2}]",
        "!!pairs [a: 1, a: 2]",
        "!!map {a: 1}",
        "!!seq [1]",
        '! "5"',
        "!!int '5'",
        "!!float '5'",
        "!!binary aGk=",
        "!!null ''",
        "!!bool 'yes'",
        "!!timestamp '2024-01-01'",
        "a: !!timestamp 2001-12-14 21:59:43.10 -5",
        "!<tag:yaml.org,2002:str> 5",
        "%TAG !e! tag:yaml.org,2002:\n---\n!e!str 5",
        "[&b 1, *b]",
        "? a\n: b",
        "--- |\n x\n",
        "",
        "# only\n",
        "---\n",
    ],
)
def test_tags_and_odd_roots_are_what_the_safe_loader_makes_of_them(text: str) -> None:
    doc = SpanDoc.parse_text(text)
    assert not doc.fatal
    assert same(doc.to_python(), yaml.safe_load(text))


def test_timestamps_are_dates() -> None:
    assert SpanDoc.parse_text("2024-01-31").to_python() == datetime.date(2024, 1, 31)


def test_aliases_share_their_value() -> None:
    value = SpanDoc.parse_text("- &a [1]\n- *a\n").to_python()
    assert value[0] is value[1]


def test_several_documents_only_when_asked_for() -> None:
    doc = SpanDoc.parse_text("a: 1\n")
    assert doc.documents == 1
    from primus_lint.source.text import SourceText

    many = SpanDoc.parse(SourceText.from_text("f", "a: &x 1\n---\nb: 2\n---\n"), multi=True)
    assert (many.documents, [root.value for root in many.roots]) == (3, [{"a": 1}, {"b": 2}, None])
    assert not many.problems


@settings(max_examples=300)
@given(documents())
def test_any_layout_has_the_safe_loaders_values_and_exact_places(text: str) -> None:
    doc = SpanDoc.parse_text(text)
    if doc.fatal:
        with pytest.raises(yaml.YAMLError):
            yaml.safe_load(text)
        return
    assert same(doc.to_python(), yaml.safe_load(text))
    check_places(doc)


def check_places(doc: SpanDoc) -> None:
    """Every scalar's text, read alone, is its value; children stand in order inside their parent."""
    text = doc.source.text
    for root in doc.roots:
        for each in root.walk():
            assert 0 <= each.start <= each.value_start <= each.end <= len(text)
            parts = [part for entry in each.own_entries for part in (entry.key, entry.value)] or each.items
            if each.is_alias:
                assert each.raw.startswith("*")
                continue
            places = [place for part in parts for place in part.span]
            assert places == sorted(places)
            if places and each.style == "block":
                assert (each.value_start, each.end) == (
                    places[0] if each.kind == "mapping" else each.value_start,
                    places[-1],
                )
            if each.style in ("single", "double"):
                assert yaml.safe_load(each.raw) == each.scalar
            elif each.style == "plain" and "\n" not in each.raw:
                assert each.raw == each.scalar
            elif each.style == "flow":
                assert each.raw[0] + each.raw[-1] in ("{}", "[]") or len(each.own_entries) == 1


@needs_corpus
def test_without_libyaml_the_tree_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def tree(text: str) -> list[tuple[Any, ...]]:
        doc = SpanDoc.parse_text(text)
        assert not doc.problems
        return [
            (each.kind, each.style, each.start, each.value_start, each.end, each.anchor, each.tag, repr(each.value))
            for root in doc.roots
            for each in root.walk()
        ]

    texts = [path.read_bytes().decode("utf-8-sig") for path in FILES[::12]]
    with_c = [tree(text) for text in texts]
    monkeypatch.setattr(builder, "Parser", yaml.SafeLoader)
    monkeypatch.setattr(builder, "IN_BYTES", False)
    assert [tree(text) for text in texts] == with_c
