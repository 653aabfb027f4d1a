"""Interpolation between measured shapes: exact at them, the median far away, the same for arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from primus_lint.projection.interpolate import BETWEEN, EXACT, FITTED, Table, curve_at

ROWS = [((1024.0, 4096.0), 1.2, 0.01), ((2048.0, 4096.0), 1.4, 0.02), ((65536.0, 4096.0), 2.0, 0.03)]


def test_a_measured_shape_is_exact() -> None:
    table = Table(ROWS, 0.3)
    ratio = table.at(2048, 4096)
    assert ratio.factor == pytest.approx(1.4)
    assert (ratio.spread, ratio.tier) == (0.02, EXACT)


def test_between_two_shapes_the_ratio_lies_between_theirs() -> None:
    """Half-way (in log2) between the first two: equal weights 4, the third 5.5 octaves away, the median 1.4 weighs 1."""
    ratio = Table(ROWS, 0.3).at(1024 * math.sqrt(2), 4096)
    third = 1 / 5.5**2
    expected = (4 * math.log(1.2) + 4 * math.log(1.4) + third * math.log(2.0) + math.log(1.4)) / (9 + third)
    assert math.log(ratio.factor) == pytest.approx(expected, rel=1e-9)
    assert ratio.tier == BETWEEN
    assert 0.01 + 0.3 * 0.5 <= ratio.spread + 1e-9 <= 0.02 + 0.3 * 0.5 + 2e-9  # half an octave away from either


def test_far_away_the_median_of_the_device_counts() -> None:
    ratio = Table(ROWS, 0.3).at(2.0**60, 2.0**60)
    assert ratio.factor == pytest.approx(1.4, rel=0.01)
    assert ratio.tier == FITTED
    assert ratio.spread == pytest.approx(0.03 + 0.3)  # the closest row's own, and the model's


def test_arrays_give_what_scalars_give() -> None:
    table = Table(ROWS, 0.3)
    first, second = np.array([[1024.0], [1500.0], [1e6]]), np.array([4096.0, 128.0])
    together = table.at(first, second)
    for i in range(3):
        for j in range(2):
            alone = table.at(float(first[i, 0]), float(second[j]))
            assert together.factor[i, j] == pytest.approx(alone.factor)
            assert together.spread[i, j] == pytest.approx(alone.spread)
    assert together.tier == FITTED  # the least sure of them


def test_a_curve_is_exact_at_its_points_flat_below_and_proportional_above() -> None:
    sizes, seconds = [1024.0, 4096.0, 16384.0], [1e-5, 2e-5, 8e-5]
    assert curve_at(sizes, seconds, 4096) == pytest.approx(2e-5)
    assert curve_at(sizes, seconds, 8192) == pytest.approx(4e-5)  # log-log: half-way between 2 and 8 is 4
    assert curve_at(sizes, seconds, 1) == pytest.approx(1e-5)
    assert curve_at(sizes, seconds, 32768) == pytest.approx(16e-5)
    many = np.array([1.0, 1024.0, 8192.0, 32768.0])
    assert curve_at(sizes, seconds, many) == pytest.approx([curve_at(sizes, seconds, size) for size in many.tolist()])
