"""Every problem has its code, its place, and is fatal exactly when the safe loader refuses the file (or it is ours)."""

from __future__ import annotations

import pytest
import yaml

from primus_lint.source import builder
from primus_lint.source.spans import SpanDoc

REFUSED = [  # text, code, line, column
    ("a: 1\n b: 2\n", "yaml-syntax", 2, 3),
    ("a: [1, 2\nb: 3\n", "yaml-syntax", 2, 2),
    ("a: 'x\n", "yaml-syntax", 2, 1),
    ("a: @x\n", "yaml-syntax", 1, 4),
    ("a: 1\nb\n", "yaml-syntax", 2, 1),  # where the colon is missing, not where PyYAML notices
    ("a: 1\nb:\u00a02 # x\nc: 3\n", "yaml-syntax", 2, 1),
    ("a:\n  b: 1\n<<<<<<< HEAD\n  c: 1\n=======\n  c: 2\n>>>>>>> other\n", "yaml-syntax", 3, 1),
    ("a: b: c\n", "yaml-syntax", 1, 5),
    ("é: \x01\n", "yaml-syntax", 1, 4),
    ("a: \x00\n", "yaml-syntax", 1, 4),
    ("a:\n\tb: 1\n", "tab-indent", 2, 1),
    ("a:\n  b: 1\n\tc: 1\n", "tab-indent", 3, 1),
    ("a: 1\t\nb: 2\n", "tab-separator", 1, 5),
    ("a: 1\t# c\n", "tab-separator", 1, 5),
    ("a: x\ty\n", "tab-separator", 1, 5),
    ("a: [1,\t2]\n", "tab-separator", 1, 7),
    ("a: |\t\n  x\n", "tab-separator", 1, 5),
    ("a: 1\n\t\nb: 2\n", "tab-indent", 2, 1),
    ("a: 1\n---\nb: 2\n", "multiple-documents", 2, 1),
    ("a: *x\n", "undefined-alias", 1, 4),
    ("a: &x 1\nb: &x 2\n", "duplicate-anchor", 2, 4),
    ("? [a]\n: 1\n", "unhashable-key", 1, 3),
    ("? {a: 1}\n: 1\n", "unhashable-key", 1, 3),
    ("{[a]: 1}\n", "unhashable-key", 1, 2),
    ("a: !x 1\n", "unknown-tag", 1, 4),
    ("a: !!python/object:os.system {}\n", "unknown-tag", 1, 4),
    ("a: !!map [1]\n", "tag-mismatch", 1, 4),
    ("a: !!int {b: 1}\n", "tag-mismatch", 1, 4),
    ("a: !!seq x\n", "tag-mismatch", 1, 4),
    ("a: !!set x\n", "tag-mismatch", 1, 4),
    ("a: !!nothing x\n", "unknown-tag", 1, 4),
    ("a: !!value x\n", "invalid-scalar", 1, 4),
    ("a: !!omap [b]\n", "tag-mismatch", 1, 12),
    ("a: !!omap [{b: 1, c: 2}]\n", "tag-mismatch", 1, 12),
    ("a: !!int x\n", "invalid-scalar", 1, 4),
    ("a: 2024-02-31\n", "invalid-scalar", 1, 4),
    ("a: 0b_\n", "invalid-scalar", 1, 4),
    ("a: " + "9" * 5000 + "\n", "invalid-scalar", 1, 4),
    ("a: =\n", "invalid-scalar", 1, 4),
    ("- <<\n", "invalid-scalar", 1, 3),
    ("a: {<<: 1}\n", "merge-key-invalid", 1, 9),
    ("a: {<<: [{b: 1}, 2]}\n", "merge-key-invalid", 1, 18),
]


def test_a_conflict_that_git_marked_is_called_one() -> None:
    for text in ("a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> x\n", "a: 1\r\n>>>>>>> x\r\nb: 2\r\n"):
        (problem,) = SpanDoc.parse_text(text).problems
        assert "merge conflict" in problem.message


@pytest.mark.parametrize(("text", "code", "line", "column"), REFUSED)
def test_what_the_safe_loader_refuses_is_fatal(text: str, code: str, line: int, column: int) -> None:
    with pytest.raises((yaml.YAMLError, ValueError)):
        yaml.safe_load(text)
    doc = SpanDoc.parse_text(text)
    assert [(each.code, each.fatal, *doc.source.position(each.span.start)) for each in doc.problems] == [
        (code, True, line, column)
    ]


TABS_THAT_ARE_FINE = [
    "a: 'x\ty'\n",
    'a: "x\t"\n',
    "a: |\n  x\ty\n",
    "a: 1 # x\ty\n",
    "# \t\na: 1\n",
]


@pytest.mark.parametrize("text", TABS_THAT_ARE_FINE)
def test_tabs_in_quotes_blocks_and_comments_are_fine(text: str) -> None:
    doc = SpanDoc.parse_text(text)
    assert not doc.problems
    assert doc.to_python() == yaml.safe_load(text)


WARNED = [
    ("", "empty-file", 1, 1),
    ("# c\n", "empty-file", 1, 1),
    ("a: 1\na: 2\n", "duplicate-key", 2, 1),
    ("{a: 1, a: 2}", "duplicate-key", 1, 8),
    ("1: a\ntrue: b\n1.0: c\n", "duplicate-key", 2, 1),
    ("yes: 1\n", "non-string-key", 1, 1),
    ("a: {<<: [{b: 1}, {b: 2}]}\n", "merge-conflict", 1, 18),
]


@pytest.mark.parametrize(("text", "code", "line", "column"), WARNED)
def test_what_the_safe_loader_lets_pass_is_not_fatal(text: str, code: str, line: int, column: int) -> None:
    doc = SpanDoc.parse_text(text)
    places = [(each.code, *doc.source.position(each.span.start)) for each in doc.problems]
    assert (code, line, column) in places
    assert not doc.fatal
    assert doc.to_python() == yaml.safe_load(text)


def test_a_related_place_says_where_it_began() -> None:
    doc = SpanDoc.parse_text("a:\n  b: [1,\n    2\nc: 3\n")
    (problem,) = doc.problems
    assert [doc.source.position(span.start) for _, span in problem.related] == [(2, 6)]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


LIMITED = [
    (bomb(9), "alias-bomb"),  # 2 * 9**8 leaves
    (bomb(60), "alias-bomb"),
    ("a: &a [*a]\n", "recursive-alias"),
    ("a: &a\n  b: {c: *a}\n", "recursive-alias"),
    ("[" * 5000, "too-deep"),
    ("{a: " * 300 + "1" + "}" * 300, "too-deep"),
    ("\n".join(" " * n + "a:" for n in range(400)), "too-deep"),
    ("- &a0 []\n" + "\n".join(f"- &a{n} [*a{n - 1}]" for n in range(1, 300)), "too-deep"),
    ("a: 0x" + "f" * 5000, "invalid-scalar"),  # the safe loader builds it, and printing it raises
    ("a: 1" + ":59" * 100_000, "invalid-scalar"),  # quadratic for the safe loader
]


@pytest.mark.parametrize(("text", "code"), LIMITED)
def test_what_grows_without_bound_is_refused(text: str, code: str) -> None:
    doc = SpanDoc.parse_text(text)
    assert doc.problems[-1].code == code
    assert doc.fatal


def test_merges_are_bounded_even_where_pyyaml_keeps_every_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_lint.source import merge

    monkeypatch.setattr(merge, "_keeps_order", False)
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60))]
    doc = SpanDoc.parse_text("\n".join(lines))
    assert doc.problems[-1].code == "alias-bomb"


def test_many_merge_keys_take_linear_time() -> None:
    doc = SpanDoc.parse_text("<<: {a: 1}\n" * 20_000)
    assert doc.to_python() == {"a": 1}


def test_nesting_up_to_the_limit_is_read() -> None:
    deep = builder.MAX_DEPTH
    value = SpanDoc.parse_text("[" * deep + "]" * deep).to_python()
    for _ in range(deep - 1):
        (value,) = value
    assert value == []


def test_aliases_within_bounds_are_read() -> None:
    assert SpanDoc.parse_text(bomb(4)).to_python() == yaml.safe_load(bomb(4))
