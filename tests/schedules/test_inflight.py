"""In-flight counts: the event lists against known tables, the closed forms against the event lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.schedules.closed_form import (
    alive_after_forward,
    composition,
    interleaved_weighted_peak,
    peak_in_flight,
)
from primus_lint.schedules.events import KINDS, Event, chunks_per_rank, rank_schedule, schedule
from primus_lint.schedules.inflight import (
    counts,
    fewer_microbatches,
    frontier,
    frontier_peak,
    loads,
    peak,
    rank_frontier,
    weighted_peak,
)
from tests.schedules.full_grid import check_composition, check_peak, check_weighted
from tests.schedules.legal import cases

PLANNED_FROM_COSTS = "zb-heuristic"
WITH_FORMULA = tuple(kind for kind in KINDS if kind != PLANNED_FROM_COSTS)


def history(events: list[Event]) -> list[tuple[dict[int, int], dict[int, int]]]:
    """Alive and pending sets replayed in the plainest way: after every event, who has had F, B, W."""
    out = []
    split = any(e.kind == "W" for e in events)
    for stop in range(1, len(events) + 1):
        had = {kind: {(e.microbatch, e.chunk) for e in events[:stop] if e.kind == kind} for kind in "FBW"}
        whole = {(e.microbatch, e.chunk) for e in events if e.kind == "B" and e.fused}
        alive = had["F"] - had["B"]
        pending = (had["B"] - had["W"] - whole) if split else set()
        out.append(tuple({c: sum(1 for x in xs if x[1] == c) for c in (0, 1, 2, 3)} for xs in (alive, pending)))
    return out  # type: ignore[return-value]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_against_a_plain_replay(kind: str) -> None:
    for _, pp, m, vpp, group in cases((kind,), range(1, 5), range(1, 10)):
        for todo in schedule(kind, pp, m, vpp, group):
            states = history(todo)
            got = counts(todo)
            assert got.alive == max(sum(alive.values()) for alive, _ in states)
            assert got.pending == max(sum(pending.values()) for _, pending in states)
            assert got.total == max(sum(a.values()) + sum(p.values()) for a, p in states)
            chunks = chunks_per_rank(kind, vpp)
            for event, load, before, after in zip(todo, loads(todo), [({}, {}), *states], states, strict=False):
                # a forward counts itself, a backward and a weight gradient are still counted while they run
                alive, pending = after if event.kind == "F" else before
                assert load.alive == tuple(alive.get(c, 0) for c in range(chunks))
                assert load.pending == tuple(pending.get(c, 0) for c in range(chunks))


def test_published_and_measured_tables() -> None:
    """Figures of ../shared/reference/byte-accounting-amd.md section 4.3 (executed on CPU), and of the papers."""
    for pp, m in itertools.product((2, 3, 4, 8), (16, 17, 24)):
        for rank, todo in enumerate(schedule("1f1b", pp, m)):
            assert counts(todo) == (pp - rank, 0, pp - rank)
        for rank, todo in enumerate(schedule("interleaved", pp, m // pp * pp, 2)):
            assert counts(todo).total == 2 * (pp - rank - 1) + pp + 1
        for rank, todo in enumerate(schedule("zb-h1", pp, m)):
            assert counts(todo) == (pp - rank, rank + 1, pp)
        for rank, todo in enumerate(schedule("zb-h2", pp, m)):  # arXiv 2401.10241 table 1: 2p - 1
            assert counts(todo) == (2 * (pp - rank) - 1, 2 * rank + 1, 2 * pp - 1)
        for rank, todo in enumerate(schedule("zbv", pp, m, 2)):
            assert counts(todo) == (2 * pp, 2 * rank + 1, 2 * pp)
        for todo in schedule("v-half", pp, m, 2):
            assert counts(todo).total == counts(todo).alive == {2: 4, 3: 4, 4: 6, 8: 10}[pp]
            assert 2 <= counts(todo).pending <= 4
        for todo in schedule("v-min", pp, m, 2):
            assert counts(todo).total == counts(todo).alive == {2: 4, 3: 4, 4: 4, 8: 8}[pp]
            assert 1 <= counts(todo).pending <= 2
        for todo in schedule("zb-heuristic", pp, m, max_in_flight=pp):
            assert counts(todo).total == pp
    # no limit: grows with the number of micro-batches
    assert [counts(todo) for todo in schedule("zb-heuristic", 4, 16)] == [
        (10, 6, 16),
        (7, 10, 16),
        (4, 13, 16),
        (1, 16, 16),
    ]
    for pp in (2, 4, 8):  # DeepSeek's table: PP + 1; the folded form has twice the stages per rank
        assert {counts(todo).total for todo in schedule("dualpipe", pp, 4 * pp)} == {pp + 1}
        assert {counts(todo).total for todo in schedule("dualpipev", pp, 4 * pp, 2)} == {2 * pp + 1}


def test_uneven_example_of_the_reference() -> None:
    """../shared/reference/byte-accounting.md rule 6: pp 4, vpp 2, m 8, rank 0: 7 of chunk 0 and 4 of chunk 1."""
    found = peak(rank_schedule("interleaved", 4, 0, 8, 2))
    assert found.alive == (7, 4)
    assert found.value == 11
    assert found.event == ("F", 0, 6, 0, False)
    assert composition(4, 0, 8, 2) == (7, 4)


def test_all_forwards_first_holds_everything() -> None:
    for todo in schedule("interleaved", 4, 4, 3, all_forwards_first_at_pp=True):
        assert counts(todo).total == 12


def test_closed_forms_on_a_small_grid() -> None:
    """The whole grid (pp <= 16, m <= 64, vpp <= 8) is `python -m tests.schedules.full_grid`."""
    checked = 0
    for case in cases(WITH_FORMULA, range(1, 8), range(1, 20), range(1, 4), every_group=True):
        checked += check_peak(*case)
    for case in cases(("interleaved",), range(2, 6), range(1, 13), range(1, 4), every_group=True):
        for overlap in (False, True):
            checked += check_composition(*case[1:], overlap)
            checked += check_weighted(*case[1:], overlap)
    assert checked > 8_000


def test_closed_forms_serve_arrays() -> None:
    pp = np.array([2, 3, 4, 8])[:, None]
    m = np.array([8, 24, 48])[None, :]
    for kind in ("1f1b", "zb-h1", "zb-h2", "zbv", "v-half", "v-min", "gpipe", "interleaved"):
        vpp = 2 if kind in ("zbv", "v-half", "v-min", "interleaved") else 1
        grid = peak_in_flight(kind, pp, 1, m, vpp)
        assert grid.shape == (4, 3) or kind == "gpipe"
        for i, j in itertools.product(range(4), range(3)):
            expected = peak_in_flight(kind, int(pp[i, 0]), 1, int(m[0, j]), vpp)
            assert np.broadcast_to(grid, (4, 3))[i, j] == expected
    heavy = np.array([1.0, 5.0, 40.0])[:, None]
    steps = np.array([8, 12, 20, 64])[None, :]
    grid = interleaved_weighted_peak([heavy, 7, 1], 4, 1, steps)
    front = {int(s): rank_frontier("interleaved", 4, 1, int(s), 3) for s in steps[0]}
    for i, j in itertools.product(range(3), range(4)):
        weights = [float(heavy[i, 0]), 7, 1]
        todo = rank_schedule("interleaved", 4, 1, int(steps[0, j]), 3)
        assert grid[i, j] == weighted_peak(todo, weights).value == frontier_peak(front[int(steps[0, j])], weights)
    assert frontier_peak(front[8], [heavy, 7, 1]).shape == (3, 1)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_weighted_peak_of_any_weights(data: st.DataObject) -> None:
    """Closed form, frontier and walk agree for any weights; the frontier also with pending weights and extras."""
    pp = data.draw(st.integers(2, 6))
    group = data.draw(st.integers(pp, pp + 5))
    m = group * data.draw(st.integers(1, 5)) + data.draw(st.sampled_from([0, *range(pp, group)]))
    vpp = data.draw(st.integers(1, 5))
    rank = data.draw(st.integers(0, pp - 1))
    weights = data.draw(st.lists(st.integers(0, 1000), min_size=vpp, max_size=vpp))
    overlap = data.draw(st.booleans())
    todo = rank_schedule("interleaved", pp, rank, m, vpp, group, overlap=overlap)
    found = weighted_peak(todo, weights)
    assert interleaved_weighted_peak(weights, pp, rank, m, group, overlap) == found.value
    assert frontier_peak(rank_frontier("interleaved", pp, rank, m, vpp, group, overlap), weights) == found.value
    assert sum(a * w for a, w in zip(found.alive, weights, strict=True)) == found.value
    forward = data.draw(st.integers(0, m * vpp - 1))
    position = [i for i, event in enumerate(todo) if event.kind == "F"][forward]
    assert alive_after_forward(forward, pp, rank, m, vpp, group, overlap) == list(loads(todo))[position].alive


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_frontier_prices_every_kind(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(WITH_FORMULA))
    _, pp, m, vpp, group = data.draw(st.sampled_from(list(cases((kind,), range(1, 6), range(1, 31), range(1, 4)))))
    chunks = chunks_per_rank(kind, vpp)
    draw = st.lists(st.integers(0, 100), min_size=chunks, max_size=chunks)
    weights, pending = data.draw(draw), data.draw(draw)
    extra = {event_kind: data.draw(draw) for event_kind in "FBW"}
    rank = data.draw(st.integers(0, pp - 1))
    todo = schedule(kind, pp, m, vpp, group)[rank]
    found = weighted_peak(todo, weights, pending, extra)
    assert frontier_peak(rank_frontier(kind, pp, rank, m, vpp, group), weights, pending, extra) == found.value
    held = sum(a * w + p * q for a, w, p, q in zip(found.alive, weights, found.pending, pending, strict=True))
    assert found.value == held + extra[found.event.kind][found.event.chunk]


@pytest.mark.parametrize("kind", [k for k in WITH_FORMULA if k not in ("gpipe", "looped-bfs")])
def test_fewer_microbatches_have_the_same_frontier(kind: str) -> None:
    shorter = 0
    for _, pp, m, vpp, group in cases((kind,), range(1, 5), range(1, 41, 3), range(1, 4)):
        few = fewer_microbatches(kind, pp, m, vpp, group)
        shorter += few < m
        full, cut = schedule(kind, pp, m, vpp, group), schedule(kind, pp, few, vpp, group)
        for a, b in zip(full, cut, strict=True):
            assert set(frontier(a)) == set(frontier(b))
    assert shorter > 0


def test_no_formula_for_the_heuristic() -> None:
    with pytest.raises(ValueError, match="no closed form"):
        peak_in_flight(PLANNED_FROM_COSTS, 4, 0, 8)
    with pytest.raises(ValueError, match="costs"):
        rank_frontier(PLANNED_FROM_COSTS, 4, 0, 8)
