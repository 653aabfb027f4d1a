"""Recipes that the projection cannot tell apart: the plainer one is preferred, and its band is no licence to be slow."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("numpy")

from primus_lint.tune.search import search
from primus_lint.tune.simplify import AT_MOST, effort, price, simplify
from primus_lint.tune.ties import band_s, model_parallel, told_apart
from primus_lint.tune.what_if import with_changes
from tests.tune import recipes


def test_the_same_step_is_not_told_apart_and_a_much_slower_one_is() -> None:
    one = recipes.subject("llama3.1-8b", num_layers=8)
    whole = with_changes(
        one, {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    )
    assert one.projection is not None and whole.projection is not None
    assert band_s(one.projection, one.projection) == 0 and not told_apart(one.projection, one.projection)
    assert told_apart(whole.projection, one.projection) and not told_apart(one.projection, whole.projection)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_written_is_the_plainest_of_those_that_cannot_be_told_apart(seed: int) -> None:
    subject = recipes.drawn(random.Random(900 + seed))
    if subject.run is None or subject.accelerator is None:
        return
    result = search(subject, subject.accelerator)
    if not result.best or not result.best[0].changes:
        return
    chosen = simplify(subject, result, frozenset())
    best = result.best[0]
    assert best.iteration_s <= chosen.iteration_s <= best.iteration_s * (1 + AT_MOST)
    for other in result.best:
        if effort(other.changes) < effort(chosen.changes) and other.iteration_s <= best.iteration_s * (1 + AT_MOST):
            assert price(other) >= price(chosen)  # left out although plainer: what is kept is worth it


def test_fewer_gpus_a_replica() -> None:
    assert model_parallel(2, 1, 1) < model_parallel(2, 2, 1) < model_parallel(2, 2, 2)
