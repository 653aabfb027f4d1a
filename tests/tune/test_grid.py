"""Array forms on grids say what the scalar forms say of each element; what the search relies on holds."""

from __future__ import annotations

import random
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from primus_lint.subject import Subject  # noqa: E402
from primus_lint.tune.bounds import SPLITS, WITHOUT, Bounds  # noqa: E402
from primus_lint.tune.certificate import MEMORY_TOLERANCE, TIME_TOLERANCE  # noqa: E402
from primus_lint.tune.forms import families  # noqa: E402
from primus_lint.tune.grid import Evaluator, Shape, together  # noqa: E402
from primus_lint.tune.keys import PP, RECOMPUTE_KEYS  # noqa: E402
from primus_lint.tune.records import Found  # noqa: E402
from primus_lint.tune.search import unrelated_errors  # noqa: E402
from primus_lint.tune.space import Pins, Space  # noqa: E402
from primus_lint.tune.switches import accelerations, improvements  # noqa: E402
from primus_lint.tune.what_if import with_changes  # noqa: E402
from tests.tune import recipes  # noqa: E402


def drawn(seed: int) -> Subject:
    rng = random.Random(seed)
    while True:
        subject = recipes.drawn(rng)
        if subject.run is not None and subject.accelerator is not None:
            return subject


def space_of(subject: Subject, unsafe: bool = False) -> tuple[Evaluator, Space]:
    assert subject.run is not None and subject.accelerator is not None
    evaluator = Evaluator(subject, subject.accelerator, unrelated_errors(subject))
    return evaluator, Space(subject.run, evaluator.given, subject.accelerator, Pins(unsafe=unsafe), {})


@pytest.mark.parametrize("seed", range(24))
def test_arrays_equal_scalars(seed: int) -> None:
    """Mask, seconds and bytes of random elements of random structures."""
    rng = random.Random(seed)
    subject = drawn(seed)
    evaluator, space = space_of(subject, unsafe=seed % 3 == 0)
    excused = unrelated_errors(subject)
    bases = list(space.bases())
    for base in rng.sample(bases, min(6, len(bases))):
        form, axis = rng.choice(list(space.forms(base)))
        axes = (*base.axes, axis) if axis is not None else base.axes
        shape = Shape(axes, evaluator.given)
        keys = {**base.keys, **form}
        with np.errstate(all="ignore"):
            names = evaluator.names(keys, shape.columns)
            rules = [*evaluator.others, *evaluator.about_forms]
            keep = evaluator.legal(names, rules, shape.valid, lambda name, number: None)
            run = evaluator.run(names)
            seconds = evaluator.seconds(run, shape.shape, {})
            peak = evaluator.bytes(run, shape.shape)
        nothing = np.zeros(1)
        for index in rng.sample(list(np.flatnonzero(shape.valid)), 3) + list(np.flatnonzero(keep)[:2]):
            found = Found(keys, shape, np.array([index]), None, nothing, nothing, nothing)
            other = with_changes(subject, found.changes(0, evaluator.given))
            errors = {f.name for f in other.conditions if f.severity == "error" and f.code not in excused}
            assert bool(keep.flat[index]) == (not errors - evaluator.undecided), (
                errors,
                found.changes(0, evaluator.given),
            )
            if errors or other.ledger is None or other.projection is None:
                continue
            assert seconds is not None and peak is not None
            assert abs(seconds.flat[index] / float(other.projection.iteration_s) - 1) <= TIME_TOLERANCE / 10
            exact = other.ledger.worst_rank.device_high_bytes
            assert 0 <= peak.flat[index] / exact - 1 <= MEMORY_TOLERANCE / 10


@pytest.mark.parametrize("seed", range(12))
def test_recomputation_is_never_faster(seed: int) -> None:
    """The bound of a base is that of all its forms."""
    rng = random.Random(seed)
    subject = drawn(100 + seed)
    evaluator, space = space_of(subject)
    bases = list(space.bases())
    without = dict.fromkeys(RECOMPUTE_KEYS)
    for base in rng.sample(bases, min(4, len(bases))):
        shape = Shape(base.axes, evaluator.given)
        with np.errstate(all="ignore"):
            names = evaluator.names({**base.keys, **without}, shape.columns)
            keep = evaluator.legal(names, evaluator.others, shape.valid, lambda name, number: None)
            least = evaluator.seconds(evaluator.run(names), shape.shape, {})
            if least is None or not keep.any():
                continue
            for form, axis in space.forms(base):
                columns: dict[str, Any] = dict(shape.columns)
                if axis is not None:
                    columns[axis.keys[0]] = axis.rows[-1][0]
                names = evaluator.names({**base.keys, **form}, columns)
                more = evaluator.seconds(evaluator.run(names), shape.shape, {})
                if more is not None:
                    assert (more[keep] >= least[keep] * (1 - 1e-12)).all(), (base.keys, form)


@pytest.mark.parametrize("seed", range(12))
def test_the_bounds_of_a_group_and_of_its_slowest_ranks_hold_for_every_split(seed: int) -> None:
    rng = random.Random(seed)
    evaluator, space = space_of(drawn(400 + seed), unsafe=seed % 2 == 0)
    bounds = Bounds(evaluator, space, True)
    with np.errstate(all="ignore"):
        groups = [group for group in bounds.groups() if len(group.bases) > 1 and group.least < float("inf")]
        assert any(bounds.floor_s(group.bases) > 0 for group in groups)
        for group in rng.sample(groups, min(4, len(groups))):
            for base in group.bases:
                least = bounds.base(base).least
                assert least >= group.least, base.keys
                assert least >= bounds.floor_s(group.bases), base.keys
                assert least >= bounds.slowest_rank(base, group.legal), base.keys


def test_the_bound_of_the_slowest_rank_is_near() -> None:
    """A large batch on a deep pipeline: layers for every micro-batch are nearly all that a step takes."""
    evaluator, space = space_of(recipes.subject("llama3.1-8b", num_layers=8, world_size=8, global_batch_size=1024))
    bounds = Bounds(evaluator, space, True)
    group = min((g for g in bounds.groups() if g.bases[0].keys[PP] == 4), key=lambda g: g.least)
    near = [bounds.slowest_rank(base, group.legal) / bounds.base(base).least for base in group.bases]
    assert min(near) > 0.8 and max(near) <= 1


@pytest.mark.parametrize("seed", range(16))
def test_no_form_needs_less_than_the_least(seed: int) -> None:
    """What is passed over for lack of memory fits in no form."""
    rng = random.Random(seed)
    evaluator, space = space_of(drawn(500 + seed))
    bounds = Bounds(evaluator, space, True)
    bases = list(space.bases())
    with np.errstate(all="ignore"):
        for base in rng.sample(bases, min(3, len(bases))):
            shape = bounds.shape(base.axes)
            names = evaluator.names({**base.keys, **WITHOUT}, shape.columns)
            indices = np.flatnonzero(evaluator.legal(names, evaluator.others, shape.valid, lambda name, number: None))
            if not len(indices):
                continue
            columns = shape.chosen(indices)
            for form, axis in space.forms(base):
                numbers = {} if axis is None else {axis.keys[0]: rng.choice(axis.rows)[0]}
                peak = evaluator.bytes(
                    evaluator.run(evaluator.names({**base.keys, **form, **numbers}, columns)), (len(indices), 1)
                )
                if peak is None:
                    continue
                least, partly = bounds.least_bytes(base, indices)
                assert (least <= peak[:, 0]).all(), (base.keys, form)
                assert form["recompute_granularity"] == "full" or (partly <= peak[:, 0]).all(), (base.keys, form)


@pytest.mark.parametrize("seed", range(8))
def test_what_structures_share_is_the_same_in_each_of_them(seed: int) -> None:
    """Outcomes of rules between splits, prices of layers and the fixed part of memory between forms."""
    rng = random.Random(seed)
    evaluator, space = space_of(drawn(700 + seed), unsafe=seed % 2 == 0)
    space.given_up = {"moe_permute_fusion": bool(seed % 4 < 2)} if space.run.model.moe is not None else {}
    bounds = Bounds(evaluator, space, True)
    bases = list(space.bases())
    with np.errstate(all="ignore"):
        for base in rng.sample(bases, min(40, len(bases))):
            own: dict[str, int] = {}
            names = evaluator.names({**base.keys, **WITHOUT}, bounds.shape(base.axes).columns)
            valid = bounds.shape(base.axes).valid
            keep = evaluator.legal(names, evaluator.others, valid, own.__setitem__)
            assert own == bounds.removed(base), base.keys
        for base in rng.sample(bases, min(4, len(bases))):
            keep = bounds.legal_and_seconds(base, lambda name, number: None)[0]
            indices = np.flatnonzero(keep)[:20]
            shape = (len(indices), 1)
            for given_up in (False, True)[: 1 + bool(space.given_up)] if len(indices) else ():
                scored = bounds.scored(base, indices, given_up)
                more = space.given_up if given_up else {}
                for form, axis in space.forms(base):
                    number = {} if axis is None else {axis.keys[0]: axis.rows[0][0]}
                    run = evaluator.run(
                        evaluator.names({**base.keys, **form, **number, **more}, scored.elements.columns)
                    )
                    pairs = (
                        (evaluator.seconds(run, shape, scored.prices), evaluator.seconds(run, shape, {})),
                        (evaluator.bytes(run, shape, scored.fixed), evaluator.bytes(run, shape)),
                    )
                    for shared, alone in pairs:
                        assert (shared is None) == (alone is None)
                        assert shared is None or (shared == alone).all(), (base.keys, form)


@pytest.mark.parametrize("seed", range(12))
def test_forms_side_by_side_equal_each_alone(seed: int) -> None:
    """Lists of recomputed modules along the last axis: seconds and bytes are those of every list by itself."""
    rng = random.Random(seed)
    subject = drawn(600 + seed)
    evaluator, space = space_of(subject)
    several = 0
    for base in rng.sample(bases := list(space.bases()), min(3, len(bases))):
        shape = Shape(base.axes, evaluator.given)
        chosen = np.array(rng.sample(list(np.flatnonzero(shape.valid)), min(20, shape.size)))
        columns = shape.chosen(chosen)
        for family in families(space.forms(base)):
            if len(family.forms) == 1:
                continue
            several += 1
            with np.errstate(all="ignore"):
                runs = [evaluator.run(evaluator.names({**base.keys, **form}, columns)) for form in family.forms]
                seconds = evaluator.seconds(together(runs), (len(chosen), len(runs)), {})
                peaks = evaluator.bytes(together(runs), (len(chosen), len(runs)))
                for place, run in enumerate(runs):
                    alone = evaluator.seconds(run, (len(chosen), 1), {}), evaluator.bytes(run, (len(chosen), 1))
                    if seconds is None or peaks is None:
                        assert alone == (seconds, peaks)
                        continue
                    assert np.allclose(seconds[:, place], alone[0][:, 0], rtol=1e-12, equal_nan=True), base.keys
                    assert np.array_equal(peaks[:, place], alone[1][:, 0]), base.keys
    assert several


@pytest.mark.parametrize("seed", range(40))
def test_improvements_cost_nothing_and_accelerations_no_time(seed: int) -> None:
    """What is switched on in every candidate is nowhere slower (and, where it is never given up, nowhere larger)."""
    subject = drawn(200 + seed)
    assert subject.run is not None
    if subject.ledger is None or subject.projection is None:
        return
    given = dict(subject.lowered.namespace.given)
    free = improvements(subject.run, given, Pins(unsafe=True))
    for keys in (*free, *accelerations(subject.run, given, Pins())):
        other = with_changes(subject, keys)
        if other.ledger is None or other.projection is None:
            continue
        assert float(other.projection.iteration_s) <= float(subject.projection.iteration_s) * (1 + 1e-12), keys
        if keys in free:
            assert other.ledger.worst_rank.device_high_bytes <= subject.ledger.worst_rank.device_high_bytes, keys


def test_prices_may_be_shared_between_splits_forms_and_shardings() -> None:
    for seed in range(6):
        subject = drawn(300 + seed)
        evaluator, space = space_of(subject)
        shared: dict[str, dict[Any, Any]] = {}
        for base in list(space.bases())[:12]:
            switches = repr(sorted((k, v) for k, v in base.keys.items() if k not in SPLITS))
            shape = Shape(base.axes, evaluator.given)
            with np.errstate(all="ignore"):
                names = evaluator.names(base.keys, shape.columns)
                run = evaluator.run(names)
                alone = evaluator.seconds(run, shape.shape, {})
                priced = shared.setdefault(repr(base.axes) + switches, {})
                together = evaluator.seconds(run, shape.shape, priced)
            if alone is not None:
                assert np.array_equal(alone[shape.valid], together[shape.valid], equal_nan=True)


def test_a_shape_counts_what_says_the_same_once() -> None:
    """Without tensor parallelism sequence parallelism and the expert-tensor size of 1 change nothing."""
    subject = recipes.subject("mixtral-8x7b", num_layers=4, tensor_model_parallel_size=1, moe_grouped_gemm=True)
    evaluator, space = space_of(subject)
    shape = Shape(space.axes, evaluator.given)
    every = [shape.point(index) for index in np.flatnonzero(shape.valid)]
    assert len({repr(sorted(point.items(), key=lambda pair: pair[0])) for point in every}) == len(every) == shape.size
    alone = [point for point in every if point["tensor_model_parallel_size"] == 1]
    assert all("sequence_parallel" not in point and point["expert_tensor_parallel_size"] is None for point in alone)
