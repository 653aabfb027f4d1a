"""The own median against the standard library's."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_lint.formula import median


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_it_is_the_standard_library_s(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values), abs=1e-6)
    assert median(iter(values)) == median(values)
