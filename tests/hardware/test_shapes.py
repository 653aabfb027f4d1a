"""Measured products: the exact shape first, then between neighbours, then the rate; one recipe and grids alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from primus_lint.hardware import accelerator, measured, rates, shapes
from primus_lint.hardware.records import Accelerator


def device(name: str) -> Accelerator:
    found = accelerator(name)
    assert found is not None
    return found


def at(acc: Accelerator, dtype: str, m: int, n: int, k: int, op: str = "fwd") -> rates.Seconds:
    return shapes.measured(acc, dtype, op, m, n, k, rates.gemm_time_s(acc, dtype, m, n, k, op))


def test_a_measured_product_takes_its_measured_time() -> None:
    for name, source in (("h100", "aiconfigurator"), ("mi300x", "primus-turbo")):
        times: dict[tuple[int, int, int], list[float]] = {}
        for row in measured.rows(f"gemm.{name}.{source}"):
            if row["dtype"] == "bf16" and row["op"] == "fwd":
                times.setdefault((row["m"], row["n"], row["k"]), []).append(row["time_s"])
        for shape in list(times)[::100]:
            found = at(device(name), "bf16", *shape)
            assert found.tier == "measured shape"
            assert min(times[shape]) <= found.time_s * 1.000001 and found.time_s <= max(times[shape]) * 1.000001


def test_near_a_measured_product_the_time_lies_between_it_and_the_rate() -> None:
    points = shapes.Points({(1024, 1024, 1024): 1.5})
    assert points.at(1024, 1024, 1024) == (pytest.approx(1.5), True, "measured shape")
    close = points.at(1024, 1024, 1025)
    assert close.factor == pytest.approx(1.5, rel=1e-4) and close.tier == "between measured shapes" and not close.exact
    # a factor of sqrt(2) away: d = 1/2, weight 4 against the rate's 1
    half = points.at(1024, 1024, 1448)
    assert half.factor == pytest.approx(1.5 ** (4 / 5), rel=1e-3)
    assert points.at(1024, 1024, 2100) == (1.0, False, "")


def test_two_neighbours_weigh_by_their_distance() -> None:
    points = shapes.Points({(1024, 1024, 1024): 1.2, (1024, 1024, 2048): 0.9})
    middle = points.at(1024, 1024, math.sqrt(1024 * 2048))
    assert middle.factor == pytest.approx((1.2 * 0.9) ** (4 / 9))


def test_left_out_neighbours_are_better_than_the_rate() -> None:
    """Every seventh measured product of the H100, taken out: its neighbours meet it closer than the rate, in the mean."""
    acc = device("h100")
    for dtype in ("bf16", "fp8"):
        ratios = {
            (row["m"], row["n"], row["k"]): row["time_s"]
            / rates.gemm_time_s(acc, dtype, row["m"], row["n"], row["k"]).time_s
            for row in measured.rows("gemm.h100.aiconfigurator")
            if row["dtype"] == dtype
        }
        out = list(ratios)[::7]
        rest = shapes.Points({shape: ratio for shape, ratio in ratios.items() if shape not in out})
        near = [(rest.at(*shape), ratios[shape]) for shape in out]
        pairs = [(found.factor, ratio) for found, ratio in near if found.tier == "between measured shapes"]
        assert len(pairs) > 100
        with_rows = sum(abs(found / ratio - 1) for found, ratio in pairs)
        without = sum(abs(1 / ratio - 1) for _, ratio in pairs)
        assert with_rows < 0.95 * without


def test_a_grid_agrees_with_single_shapes() -> None:
    acc = device("h100")
    sizes = np.array([512, 777, 1024, 4096, 8192, 50000, 0, 1024])
    modelled = rates.gemm_time_s(acc, "bf16", sizes, 4096, 4096)
    together = shapes.measured(acc, "bf16", "fwd", sizes, 4096, 4096, modelled)
    for index, m in enumerate(sizes):
        alone = at(acc, "bf16", int(m), 4096, 4096)
        assert together.time_s[index] == pytest.approx(alone.time_s, rel=1e-12)
        assert (together.low[index], together.high[index]) == (alone.low, alone.high)


def test_rows_of_another_device_or_format_are_not_looked_up() -> None:
    for name, dtype in (("h800", "bf16"), ("h100", "mxfp8"), ("mi325x", "fp8"), ("a100-40gb", "bf16")):
        assert "tables" not in device(name).rates["gemm"].get(dtype, {})
    assert device("gh200-96gb").rates["gemm"]["bf16"]["tables"] == ["estimate-train-time"]
    # AIConfigurator's bf16 table of the B200 contradicts the one that its rate is fitted on
    assert device("b200").rates["gemm"]["bf16"]["tables"] == ["simumax"]


def test_passes_without_rows_follow_the_rate() -> None:
    acc = device("h100")
    assert at(acc, "bf16", 4096, 4096, 4096, "wgrad").tier == "fitted"
    assert {at(device("b200"), "bf16", 16384, 12288, 5120, op).tier for op in ("dgrad",)} == {"measured shape"}
