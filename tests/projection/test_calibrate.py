"""What logs teach: the factors that a device really has, as far as its runs can tell, and no more."""

from __future__ import annotations

import math
from typing import Any

import pytest

from primus_lint.projection import cost, project
from primus_lint.projection.calibrate import KINDS, PRIOR, RUN_SPREAD, Lesson, by_kind, factors, learn, lesson

from . import plain
from .recipes import run


def seconds(recipe: Any, **truth: float) -> float:
    """An iteration on a device whose kinds of work take that many times as long."""
    real = {kind: truth[name] for name in truth for kind in KINDS[name]}
    found = project(recipe, plain.accelerator(), plain.node(), factors=real)
    assert found is not None
    return float(found.iteration_s)


@pytest.mark.parametrize("ratio", (0.02, -0.05, 0.10, 0.18, 0.5))
def test_one_run_of_products_alone(ratio: float) -> None:
    """Compute as a whole and products by themselves share what is learned as their variances; the sum x is where the
    slopes of the prior and of Cauchy's scatter cancel: x / (0.05^2 + 0.1^2) = 2 (ratio - x) / (0.1^2 + (ratio - x)^2)."""
    found = learn([Lesson(ratio, {"compute": 1.0, "gemm": 1.0})])
    total, common = math.log(found["gemm"]), math.log(found["attention"])
    variance = PRIOR["compute"] ** 2 + PRIOR["gemm"] ** 2
    left = ratio - total
    assert total / variance == pytest.approx(2 * left / (RUN_SPREAD**2 + left**2), rel=1e-3)
    assert common / total == pytest.approx(PRIOR["compute"] ** 2 / variance)
    assert found["host"] == found["tp"] == found["dp"] == 1.0
    assert 0.05 < total / ratio < 0.75


def test_many_runs_are_met() -> None:
    found = learn([Lesson(math.log(1.2), {"compute": 1.0, "gemm": 1.0})] * 99)
    assert found["gemm"] == pytest.approx(1.2, rel=2e-3)


def test_runs_of_different_kinds_tell_them_apart() -> None:
    """Compute 1.1 and communication 1.2 times as long, seen through runs with much and with little communication."""
    acc, node = plain.accelerator(), plain.node()
    recipes = [
        run("llama3-8b", world_size=16, tensor_model_parallel_size=tp, sequence_parallel=tp > 1, micro_batch_size=size)
        for tp in (1, 2, 4, 8) for size in (1, 2)
    ]  # fmt: skip
    runs = [(one, seconds(one, compute=1.1, communication=1.2)) for one in recipes]
    found = by_kind(factors(runs * 20, acc, node))
    assert found["gemm"] == pytest.approx(1.1, abs=0.02) and found["communication"] == pytest.approx(1.2, abs=0.04)
    single = by_kind(factors(runs[:1], acc, node))
    assert 1.0 < single["gemm"] < 1.1 and single["host"] == pytest.approx(1.0, abs=0.01)


def test_shares_of_a_run() -> None:
    acc, node = plain.accelerator(), plain.node()
    recipe = run("llama3-8b", world_size=16, tensor_model_parallel_size=8, sequence_parallel=True)
    found = lesson(recipe, seconds(recipe, compute=1.3), acc, node)
    assert found is not None and found.ratio > 0
    plain_s = project(recipe, acc, node, factors={})
    assert plain_s is not None
    compute = sum(plain_s.breakdown_s[kind] for kind in cost.COMPUTE) / plain_s.iteration_s
    assert found.shares["compute"] == pytest.approx(compute, rel=0.15)  # and what waits for the slowest device
    assert found.shares["compute"] == pytest.approx(sum(found.shares[kind] for kind in cost.COMPUTE), rel=0.02)
    assert found.shares["compute"] + found.shares["host"] + found.shares["communication"] <= 1.01


def test_a_run_far_off_moves_nothing_much_and_spoils_nothing() -> None:
    far = learn([Lesson(1.2, {"compute": 1.0, "gemm": 1.0})])
    near = learn([Lesson(0.1, {"compute": 1.0, "gemm": 1.0})])
    assert far["gemm"] < near["gemm"]
    several = [Lesson(0.1, {"compute": 1.0, "gemm": 1.0})] * 4
    spoiled = learn([*several, Lesson(1.2, {"compute": 1.0, "gemm": 1.0})])
    assert spoiled["gemm"] == pytest.approx(learn(several)["gemm"], abs=0.02)


def test_another_recipe_teaches_nothing() -> None:
    acc, node = plain.accelerator(), plain.node()
    recipe = run("llama3-8b")
    assert lesson(recipe, 1e-6, acc, node) is None and lesson(recipe, 1e6, acc, node) is None
    assert factors([(recipe, 1e6)], acc, node) == {} == learn([])


def test_the_host_learns_where_the_host_counts() -> None:
    acc, node = plain.accelerator(), plain.node()
    recipe = run("llama3-8b", seq_length=128, micro_batch_size=1)  # shorter kernels than launches
    found = by_kind(factors([(recipe, seconds(recipe, host=1.3))], acc, node))
    assert found["host"] > 1.1 > 1.02 > found["gemm"]
