from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from primus_lint.source.render import render_scalar, render_value
from primus_lint.source.scalars import ScalarError, looks_like_float, resolve_plain

from .support import same

WORDS = """
1 0 -1 +5 010 08 0o17 0x1F 0b101 0b_ 1_000 _1 12:30:45 190:20:30.15 1:60 1. .5 -.5 1.5e3 1.0e-5 1e-5 163.0e12 1.e+5
.inf -.INF +.Inf .nan .NaN nan inf yes Yes YES no on Off OFF true True TRUE tRue y n null Null ~ none
2024-01-01 2024-02-31 2024-1-1 2001-12-14t21:59:43.10-05:00 2001-12-14 21:59:43 12e03 - -- ... text a:b 0.1.2 1,2
"""


@pytest.mark.parametrize("text", [*WORDS.split(), "", "2001-12-14 21:59:43.1 +1:30", "9" * 4000, "0" + "7" * 30])
def test_plain_scalars_are_what_the_safe_loader_makes_of_them(text: str) -> None:
    try:
        want = yaml.safe_load(f"- {text}\n")[0]
    except (yaml.YAMLError, ValueError):
        assert isinstance(resolve_plain(text), ScalarError)
        return
    if isinstance(want, (str, int, float, bool, datetime.date)) or want is None:
        assert same(resolve_plain(text), want)


@given(st.text("0123456789+-._:eExXbo~tTZ ", max_size=12))
def test_odd_numbers_are_what_the_safe_loader_makes_of_them(text: str) -> None:
    text = text.strip()
    try:
        want = yaml.safe_load(f"- {text}\n")
        parsed = [type(item) for item in want] if isinstance(want, list) else None
    except (yaml.YAMLError, ValueError, OverflowError):
        return
    if parsed and len(want) == 1 and parsed[0] not in (dict, list) and not text.startswith("- "):
        assert same(resolve_plain(text), want[0])


@pytest.mark.parametrize("text", ["9" * 5000, "0x" + "f" * 5000, "1" + ":59" * 200, "1" + ":59" * 200 + ".5"])
def test_numbers_without_bound_are_errors_and_not_raised(text: str) -> None:
    assert isinstance(resolve_plain(text), ScalarError)


@pytest.mark.parametrize("text", ["1e-5", "163.0e12", "5E6", ".5e3", "-1e5", "+1.5e7"])
def test_floats_that_yaml_1_1_takes_for_strings(text: str) -> None:
    assert yaml.safe_load(text) == text
    assert looks_like_float(text)


@pytest.mark.parametrize(
    "text", ["1.0e-5", "1", "1.5", "nan", "inf", "1e", "e5", "text", "", "12:30", "1_0e5", "0x1e5"]
)
def test_what_is_no_such_float(text: str) -> None:
    assert not looks_like_float(text)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.binary(max_size=9), st.dates(),
    st.datetimes(timezones=st.none() | st.just(datetime.timezone(datetime.timedelta(hours=-5)))),
    st.sampled_from(WORDS.split()), st.text("'\"\\#:,[]{}&*!|>%@`- \n\t\x85\u2028\ufeff\u200b\x00é", max_size=8),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, st.sampled_from([None, "plain", "single", "double", "literal"]))
def test_what_is_written_reads_back_the_same_everywhere(value: Any, style: str) -> None:
    block, flow = render_value(value, style), render_value(value, style, flow=True)
    text = f"k: {block}\nlist:\n- {block}\nflow: [{flow}, {{a: {flow}}}, {flow}]  # end\n"
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        got = yaml.load(text, loader)
        assert same(got, {"k": value, "list": [value], "flow": [value, {"a": value}, value]})


@given(st.text(max_size=20) | st.sampled_from(WORDS.split()))
def test_keys_read_back_the_same(key: str) -> None:
    assert yaml.safe_load(f"{render_scalar(key)}: 1\n") == {key: 1}
    assert yaml.safe_load(f"{{{render_scalar(key, flow=True)}: 1}}\n") == {key: 1}


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (1e-05, None, "1.0e-05"),
        (2.5e-07, None, "2.5e-07"),
        (1e16, None, "1.0e+16"),
        (math.inf, None, ".inf"),
        (-math.inf, None, "-.inf"),
        ("1e-5", None, "'1e-5'"),
        ("yes", None, "'yes'"),
        ("8", None, "'8'"),
        ("${A:8}", None, "${A:8}"),
        ("it's", "single", "'it''s'"),
        ("plain", "double", '"plain"'),
        (8, "double", "8"),
        (None, None, "null"),
        (True, "single", "true"),
        ("two\nlines", None, '"two\\nlines"'),
    ],
)
def test_how_values_are_written(value: Any, style: str | None, text: str) -> None:
    assert render_scalar(value, style) == text


def test_collections_are_written_on_one_line() -> None:
    assert render_value({"a": [1, "x, y", None], "b": {}}) == "{a: [1, 'x, y', null], b: {}}"


def test_what_is_no_scalar_is_a_bug_of_the_caller() -> None:
    with pytest.raises(TypeError):
        render_scalar(object())
