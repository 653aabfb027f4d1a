"""One change at a time: exact figures, nothing better passed over, and a climb that a search may start from."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("numpy")

from primus_lint.subject import Subject
from primus_lint.tune.search import search, unrelated_errors
from primus_lint.tune.space import Pins
from primus_lint.tune.sweep import Single, climb, lines, sweep
from primus_lint.tune.what_if import with_changes
from tests.tune import recipes


def drawn(seed: int) -> tuple[Subject, float, frozenset[str]]:
    rng = random.Random(seed)
    while True:
        subject = recipes.drawn(rng)
        if subject.run is not None and subject.accelerator is not None and not unrelated_errors(subject):
            return subject, float(subject.accelerator.visible_hbm_bytes), frozenset()


def runs(subject: Subject, changes: dict[str, object], capacity: float) -> float | None:
    """Seconds of a changed recipe that starts and fits."""
    other = with_changes(subject, changes)
    if any(finding.severity == "error" for finding in other.conditions) or other.ledger is None:
        return None
    if other.ledger.worst_rank.device_high_bytes > capacity or other.projection is None:
        return None
    return float(other.projection.iteration_s)


@pytest.mark.parametrize("seed", range(12))
def test_every_figure_is_that_of_the_changed_recipe_and_nothing_better_is_passed_over(seed: int) -> None:
    subject, capacity, excused = drawn(700 + seed)
    capacity *= random.Random(seed).choice((1.0, 0.3))
    found = sweep(subject, Pins(), capacity, excused)
    own_s = runs(subject, {}, capacity)
    tried = {repr(single.changes): single for single in found}
    for single in found:
        seconds = runs(subject, single.changes, capacity)
        assert (seconds is None) == (single.candidate is None) == (single.why != "")
        if seconds is not None:
            assert single.iteration_s == seconds
            assert single.gain == (None if own_s is None else own_s / seconds - 1)
    times = [single.iteration_s for single in found if single.candidate is not None]
    assert times == sorted(times)
    for line in lines(subject, Pins()):
        best = min((_seconds(tried.get(repr(changes))) for changes in line.ways), default=float("inf"))
        for changes in line.ways:
            if repr(changes) not in tried:
                seconds = runs(subject, changes, capacity)
                assert seconds is None or seconds >= best * (1 - 1e-12), (line.axis, changes)


def _seconds(single: Single | None) -> float:
    return float("inf") if single is None or single.candidate is None else single.candidate.iteration_s


def test_pins_and_limits_hold_in_a_sweep() -> None:
    subject = recipes.subject("llama3.1-8b", num_layers=8, overlap_grad_reduce=True)
    assert subject.accelerator is not None
    pins = Pins(frozenset(("micro_batch_size",)), {"tensor_model_parallel_size": (1, 4)})
    found = sweep(subject, pins, subject.accelerator.visible_hbm_bytes, frozenset())
    assert found and all("micro_batch_size" not in single.changes for single in found)
    assert {single.changes.get("tensor_model_parallel_size", 1) for single in found} <= {1, 4}


@pytest.mark.parametrize("seed", range(6))
def test_a_climb_goes_up_and_a_search_from_it_finds_the_same_optimum(seed: int) -> None:
    subject, capacity, excused = drawn(800 + seed)
    assert subject.accelerator is not None
    seeds = climb(subject, Pins(), capacity, excused)
    for candidate in seeds:
        assert runs(subject, candidate.changes, capacity) == candidate.iteration_s
    times = [candidate.iteration_s for candidate in seeds]
    assert times == sorted(times, reverse=True)
    early = search(subject, subject.accelerator, budget_s=0.0, seeds=seeds)
    whole = search(subject, subject.accelerator)
    seeded = search(subject, subject.accelerator, seeds=seeds)
    assert whole.certificate.complete and seeded.certificate.complete
    assert [each.iteration_s for each in seeded.best[:1]] == [each.iteration_s for each in whole.best[:1]]
    if seeds:  # without a look at the space: the best of the climb, and how far off it can be at most
        assert early.best[0].iteration_s <= times[-1]
        assert whole.best[0].iteration_s >= early.best[0].iteration_s / (1 + early.certificate.gap) * (1 - 1e-9)
