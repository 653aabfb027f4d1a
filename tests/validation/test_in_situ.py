"""The shipped in-situ ratios are those that the published runs give, and no source is scored with its own."""

from __future__ import annotations

import math

import pytest

from primus_lint.hardware import accelerator
from tests.validation.__main__ import DEFAULTS, SHARED
from tests.validation.in_situ import Sample, fit, left_out, run
from tests.validation.in_situ_ratios import LEFT_OUT, family, without_source

PATHS = [SHARED / path for path in DEFAULTS["in-situ"]]


def test_the_fit_finds_the_ratio_of_made_up_runs() -> None:
    runs = [Sample("a", 10 + 6 * 0.2, 10.0, {"x": 6.0}), Sample("b", 5 + 4 * 0.2 + 1 * 0.05, 5.0, {"x": 4.0, "y": 1.0})]
    assert fit([*runs, Sample("c", 2 * 1.05, 2.0, {"y": 2.0})]) == {"x": 1.2, "y": 1.05}
    many = [Sample(f"s{number}", 11.2, 10.0, {"x": 6.0}) for number in range(9)]
    assert fit([*many, Sample("d", 500.0, 10.0, {"x": 6.0})])["x"] < 1.24  # an outlier pulls no harder than its sign


def test_a_source_does_not_see_its_own_runs() -> None:
    runs = [Sample("a", 12.0, 10.0, {"x": 10.0}), Sample("b", 11.0, 10.0, {"x": 10.0})]
    ratios = left_out(runs)
    assert ratios["a"] == {"x": 1.1} and ratios["b"] == {"x": 1.2}
    assert math.isclose(ratios[""]["x"], 1.15, abs_tol=0.011)


def test_the_releases_of_a_table_are_one_source() -> None:
    assert family("NVIDIA Megatron-Bridge performance summary 25.11") == family(
        "NVIDIA Megatron-Bridge performance summary 26.02"
    )
    assert family("torchtitan docs/performance.md 2024") == family("torchtitan asyncTP H100 2025-06")


def test_the_database_holds_the_ratios_of_all_sources() -> None:
    shipped = {}
    for name in ("h100", "mi355x"):
        found = accelerator(name)
        assert found is not None
        shipped.update({e["class"]: e["ratio"] for e in found.rates["in_situ"].values() if isinstance(e, dict)})
        own = without_source(found, "NVIDIA NeMo 24.07 performance benchmarks").rates["in_situ"]
        assert {e["ratio"] for e in own.values() if isinstance(e, dict)} <= set(
            LEFT_OUT["NVIDIA NeMo 24.07 performance benchmarks"].values()
        )
        assert without_source(found, "somebody else") is found
    assert shipped == LEFT_OUT[""]


@pytest.mark.skipif(not all(path.exists() for path in PATHS), reason="needs ../shared/ground-truth beside the checkout")
def test_the_runs_give_the_shipped_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    ratios = run(PATHS)["ratios"]
    capsys.readouterr()
    assert set(ratios) == set(LEFT_OUT)
    for name, found in ratios.items():
        for key, ratio in found.items():
            assert ratio == pytest.approx(LEFT_OUT[name][key], abs=0.021), (name, key)
