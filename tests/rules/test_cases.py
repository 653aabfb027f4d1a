"""Public reports of failed runs: what a linter should have said of each is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.validation import cases

LOG = Path(__file__).resolve().parents[3] / "shared" / "cases" / "cases.md"


@pytest.mark.parametrize("name", sorted(cases.CASES))
def test_case(name: str) -> None:
    assert [problem for recipe in cases.CASES[name] if (problem := cases.judge(recipe))] == []


def test_every_case_of_the_log_is_treated() -> None:
    if not LOG.exists():
        pytest.skip("the case log (../shared/cases/cases.md) is not at hand")
    figures = cases.run([LOG])
    untreated = [name for name, row in figures["cases"].items() if "not treated" in row["problems"]]
    assert untreated == []
    assert figures["said"] == figures["judged"] >= 20
