"""The benchmark counts recipes of grids that a sample proves equal to the scalar form."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from primus_lint.tune import bench  # noqa: E402


def test_a_sample_equals_the_scalar_form() -> None:
    case = bench.EXPERTS._replace(splits=((2, 1), (4, 3)))
    made = list(bench.grids(case))
    assert all(grid.size > 100 for grid in made)
    bench.check(made)


def test_a_wrong_grid_is_noticed() -> None:
    grid = next(bench.grids(bench.DENSE))
    columns = {**grid.columns, "mbs": grid.columns["mbs"] * 2}
    with pytest.raises(AssertionError):
        bench.check([grid._replace(columns=columns)])


def test_rates() -> None:
    rates = bench.recipes_per_second(seconds=0.01, workers=1)
    assert set(rates) == {"memory_recipes_per_s", "memory_time_recipes_per_s"}
    assert all(value > 0 for value in rates.values())
