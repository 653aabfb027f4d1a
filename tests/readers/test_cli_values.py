"""Words of command lines: Primus's typing (end of section 2 of the reference), and ours."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.readers.cli_values import primus_value, primus_words, set_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", "1e-5"), ("1.0e-5", 1e-5), ("0.1", 0.1), ("1.", 1.0), ("8", 8), ("-1", -1), ("true", True),
        ("False", False), ("null", "null"), ("None", None), ("[1, 2]", [1, 2]), ("(1,)", (1,)), ("{'a': 1}", {"a": 1}),
        ("([0]*1+[1]*26)", "([0]*1+[1]*26)"), ("[broken", "[broken"), ("1.2.3", "1.2.3"), ("x", "x"), ("", ""),
    ],
)  # fmt: skip
def test_primus_types(text: str, value: Any) -> None:
    found = primus_value(text)
    assert found == value and type(found) is type(value)


def test_primus_words() -> None:
    words = ["--lr", "1e-5", "--a.b=2", "c=3", "--neg", "-1", "--flag", "--last"]
    assert primus_words(words) == [("lr", "1e-5"), ("a.b", 2), ("c", 3), ("neg", -1), ("flag", True), ("last", True)]
    assert primus_words(["stray", "--x", "y=1"]) == [("x", True), ("y", 1)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", "1e-5"), ("1.0e-5", 1e-5), ("017", 15), ("yes", True), ("null", None), ("~", None), ("", None),
        ("[0, a]", [0, "a"]), ("{a: 1}", {"a": 1}), ("'8'", "8"), ("[broken", "[broken"), ("a: b", "a: b"), (" 8 ", 8),
        ("2024-02-31", "2024-02-31"),
    ],
)  # fmt: skip
def test_set_values(text: str, value: Any) -> None:
    found = set_value(text)
    assert found == value and type(found) is type(value)
