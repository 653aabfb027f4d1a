"""The search finds what plain enumeration with the scalar path finds; its certificate adds up and claims no more."""

from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("numpy")

from primus_lint.tune.certificate import Certificate
from primus_lint.tune.keys import MBS, RECOMPUTE_KEYS, TP, TUNED
from primus_lint.tune.search import Pins, search
from primus_lint.tune.space import Space
from tests.tune import recipes
from tests.tune.optimality import compare, draw

SPACES = 200
ELEMENTS = 40  # recipes of a space at most; `python -m tests.tune.optimality` takes larger ones


def test_the_winner_is_the_optimum_of_200_random_spaces() -> None:
    problems = {}
    for seed in range(SPACES):
        kind = ("tokens", "tokens", "minimal", "memory-headroom")[seed % 4]
        outcome = compare(*draw(seed, ELEMENTS), kind)
        if outcome.problem:
            problems[seed] = outcome.problem
    assert problems == {}


def test_own_recomputation_that_repeats_nothing_stays() -> None:
    """No layer of the model has a dense MLP: none recomputed is as fast, and two changed keys more."""
    subject = recipes.subject(
        "mixtral-8x7b", "mi355x", num_layers=4, recompute_granularity="selective", recompute_modules=["mlp"]
    )
    outcome = compare(subject, Pins(frozenset(key for key in TUNED if key not in (MBS, *RECOMPUTE_KEYS))))
    assert outcome.fitting > 4 and outcome.problem == ""


def test_nothing_wins_against_the_recipe_that_stands_when_it_is_the_best() -> None:
    subject = recipes.subject("llama3.2-1b", num_layers=4, micro_batch_size=4)
    assert subject.accelerator is not None
    first = search(subject, subject.accelerator).best[0]
    from primus_lint.tune.what_if import with_changes

    again = with_changes(subject, first.changes)
    assert search(again, subject.accelerator).best[0].changes == {}


def test_pins_and_limits_hold() -> None:
    subject = recipes.subject("llama3.1-8b", num_layers=8, tensor_model_parallel_size=2, sequence_parallel=True)
    assert subject.accelerator is not None
    kept = search(subject, subject.accelerator, pins=Pins(frozenset((TP, MBS)))).best
    assert kept and all(not {TP, MBS} & set(candidate.changes) for candidate in kept)
    limited = search(subject, subject.accelerator, pins=Pins(limits={TP: (4,), MBS: (2,)})).best
    assert (limited[0].changes.get(TP) == 4 and limited[0].changes.get(MBS) == 2) or limited[0].changes == {}
    assert all(c.changes == {} or (c.changes[TP], c.changes[MBS]) == (4, 2) for c in limited)


def test_batch_sequence_and_model_are_no_axes() -> None:
    from primus_lint.tune import safety
    from primus_lint.tune.keys import FOLLOWING, TUNED

    trained = {key for key, entry in safety.BY_KEY.items() if entry.safety == safety.DISPLAY}
    assert {"global_batch_size", "seq_length", "num_layers", "hidden_size", "lr"} <= trained
    assert not trained & set(TUNED)
    assert set(TUNED) <= set(safety.BY_KEY)
    for seed in range(30):
        subject = recipes.drawn(random.Random(seed))
        if subject.run is None or subject.accelerator is None:
            continue
        space = Space(subject.run, dict(subject.lowered.namespace.given), subject.accelerator, Pins(unsafe=True), {})
        base = next(iter(space.bases()))
        keys = {
            *base.keys,
            *(key for axis in base.axes for key in axis.keys),
            *(k for f, _ in space.forms(base) for k in f),
        }
        assert keys <= {*TUNED, *FOLLOWING}


def test_unsafe_keys_change_only_when_allowed() -> None:
    from primus_lint.tune import safety

    subject = recipes.subject("llama3.1-8b", num_layers=8)
    assert subject.accelerator is not None and subject.run is not None
    given = subject.lowered.namespace.given
    for unsafe in (False, True):
        best = search(subject, subject.accelerator, pins=Pins(unsafe=unsafe)).best
        kinds = {safety.class_of_all(c.changes.items(), given, subject.run.model) for c in best}
        assert (safety.UNSAFE in kinds) == unsafe
        assert safety.DISPLAY not in kinds


def test_an_early_end_reports_a_gap() -> None:
    subject = recipes.subject("llama3.1-8b", num_layers=8, world_size=16)
    assert subject.accelerator is not None
    result = search(subject, subject.accelerator, budget_s=0.0)
    certificate = result.certificate
    assert certificate.gap > 0 and not certificate.complete
    total = sum(certificate.removed.values()) + certificate.bounded + certificate.slower + certificate.fitting
    assert certificate.space == total + certificate.unseen and certificate.unseen > 0
    whole = search(subject, subject.accelerator).best[0]
    assert result.best == [] or whole.iteration_s >= result.best[0].iteration_s / (1 + certificate.gap) * (1 - 1e-9)


def test_a_space_that_there_is_no_time_for_has_a_bound_all_the_same() -> None:
    """DeepSeek-V3 with all that is unsafe on 4,096 GPUs: billions of recipes, and not a second to look at one."""
    from primus_lint.tune.sweep import climb

    subject = recipes.subject(
        "deepseek-v3", gpu="b200", world_size=4096, global_batch_size=16384, moe_grouped_gemm=True, moe_aux_loss_coeff=0.0,
        moe_token_dispatcher_type="alltoall", pipeline_model_parallel_size=16, expert_model_parallel_size=64,
        expert_tensor_parallel_size=1,
    )  # fmt: skip
    assert subject.accelerator is not None
    pins, capacity = Pins(unsafe=True), float(subject.accelerator.visible_hbm_bytes)
    seeds = climb(subject, pins, capacity, frozenset())
    result = search(subject, subject.accelerator, pins=pins, budget_s=0.0, seeds=seeds)
    certificate = result.certificate
    assert certificate.space == certificate.unseen > 1e9 and not certificate.complete
    assert result.best and result.best[0].iteration_s == min(seed.iteration_s for seed in seeds)
    assert 0 < certificate.gap < 3  # products and attention are no small part of a step


def test_statement_says_what_is_proved() -> None:
    proved, open_, void = Certificate(), Certificate(), Certificate()
    open_.gap, void.trusted = 0.05, False
    assert [c.complete for c in (proved, open_, void)] == [True, False, False]
    assert "none of the space is better" in proved.statement()
    assert "5.0%" in open_.statement()
    assert void.statement().startswith("not proved")


def test_headroom_is_left_free() -> None:
    subject = recipes.subject("llama3.1-8b", gpu="h100", num_layers=16)
    assert subject.accelerator is not None
    limit = subject.accelerator.visible_hbm_bytes * 0.5
    best = search(subject, subject.accelerator, min_headroom=0.5).best
    assert best and all(candidate.peak_bytes <= limit for candidate in best)


def test_the_front_is_one() -> None:
    from primus_lint.tune.explain import front

    subject = recipes.subject("qwen2.5-7b", num_layers=12, world_size=16)
    assert subject.accelerator is not None
    result = search(subject, subject.accelerator, reach=1.2, front=True)
    points = front(subject, result, frozenset())
    assert points and points[0].iteration_s <= result.best[0].iteration_s * (1 + 1e-9)
    for faster, smaller in itertools.pairwise(points):
        assert faster.iteration_s <= smaller.iteration_s and faster.peak_bytes > smaller.peak_bytes
