"""Calibration finds the factor that a slower device has, and nothing else."""

from __future__ import annotations

import pytest

from primus_lint.projection import project
from primus_lint.projection.calibrate import compute_factor, factors
from primus_lint.projection.cost import COMPUTE

from . import plain
from .recipes import run


def test_a_known_factor_is_found_again() -> None:
    acc, node = plain.accelerator(), plain.node()
    recipe = run("llama3-8b", world_size=16, tensor_model_parallel_size=2, sequence_parallel=True)
    truth = project(recipe, acc, node, factors=dict.fromkeys(COMPUTE, 1.3))
    assert truth is not None and truth.source == "mixed"
    assert compute_factor(recipe, truth.iteration_s, acc, node) == pytest.approx(1.3, rel=1e-3)
    other = run("llama3-8b", world_size=8, micro_batch_size=2)
    expected = project(other, acc, node, factors=dict.fromkeys(COMPUTE, 1.3))
    found = project(other, acc, node, factors=factors([(recipe, truth.iteration_s)], acc, node))
    assert expected is not None and found is not None
    assert found.iteration_s == pytest.approx(expected.iteration_s, rel=2e-3)


def test_an_impossible_measurement_gives_no_factor() -> None:
    acc, node = plain.accelerator(), plain.node()
    recipe = run("llama3-8b")
    assert compute_factor(recipe, 1e-6, acc, node) is None
    assert compute_factor(recipe, 1e6, acc, node) is None
    assert factors([(recipe, 1e6)], acc, node) == {}
