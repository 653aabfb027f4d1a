"""The simulation against an independent longest path, the formulas against the simulation."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.schedules.bounds import equal_bubble_s, equal_makespan_s, makespan_lower_s, makespan_upper_s
from primus_lint.schedules.events import KINDS, SPLIT_BACKWARD_KINDS, Event, chunks_per_rank, schedule, stage_of
from primus_lint.schedules.timeline import Timeline, compile_order, planned_order, simulate
from tests.schedules.legal import Case, cases

Table = list[list[float]]


def longest_paths(
    kind: str, events: list[list[Event]], tables: dict[str, Table], p2p: list[list[float]]
) -> dict[tuple[str, int, int, int], tuple[float, float]]:
    """(start, end) of every event, by relaxing all constraints until nothing moves (Bellman-Ford)."""
    pp = len(events)
    pieces: list[list[Event]] = []
    edges: list[tuple[int, int, float]] = []  # (piece, piece, delay between its end and the other's start)
    piece_of: dict[tuple[str, int, int, int], int] = {}
    for todo in events:
        previous = None
        group: list[Event] = []
        for event in todo:
            group.append(event)
            if not event.fused:
                pieces.append(group)
                here = len(pieces) - 1
                for member in group:
                    piece_of[member[:4]] = here
                if previous is not None:
                    edges.append((previous, here, 0.0))
                previous, group = here, []
    for kind_, rank, microbatch, chunk in piece_of:
        stage = stage_of(kind, pp, rank, chunk)
        for other in range(pp):
            for other_chunk in range(len(tables["F"][0])):
                if kind == "dualpipe" and chunk != other_chunk:
                    continue
                other_stage = stage_of(kind, pp, other, other_chunk)
                source = (kind_, other, microbatch, other_chunk)
                if (kind_ == "F" and other_stage == stage - 1) or (kind_ == "B" and other_stage == stage + 1):
                    delay = 0.0 if other == rank else p2p[other][rank]
                    edges.append((piece_of[source], piece_of[kind_, rank, microbatch, chunk], delay))
        if kind_ in "BW":
            source = ({"B": "F", "W": "B"}[kind_], rank, microbatch, chunk)
            if piece_of[source] != piece_of[kind_, rank, microbatch, chunk]:
                edges.append((piece_of[source], piece_of[kind_, rank, microbatch, chunk], 0.0))
    length = [sum(tables[e.kind][e.rank][e.chunk] for e in piece) for piece in pieces]
    start = [0.0] * len(pieces)
    for _ in range(len(pieces) + 1):
        moved = False
        for source, target, delay in edges:
            earliest = start[source] + length[source] + delay
            if earliest > start[target] + 1e-12:
                start[target] = earliest
                moved = True
        if not moved:
            break
    else:
        raise AssertionError("the constraints form a circle")
    return {key: (start[piece], start[piece] + length[piece]) for key, piece in piece_of.items()}


def random_tables(rng: random.Random, pp: int, chunks: int, spread: float = 1.0) -> dict[str, Table]:
    return {
        kind: [[base + spread * rng.random() for _ in range(chunks)] for _ in range(pp)]
        for kind, base in (("F", 1.0), ("B", 1.5), ("W", 0.5))
    }


def equal(kind: str, case: Case, f: float, b: float, w: float, p2p: float = 0.0) -> Timeline:
    _, pp, m, vpp, group = case
    chunks = chunks_per_rank(kind, vpp)
    order = planned_order(kind, pp, m, vpp, group)
    return simulate(order, [[f] * chunks] * pp, [[b] * chunks] * pp, [[w] * chunks] * pp, p2p)


def work_per_rank(case: Case, f: float, b: float, w: float) -> float:
    kind, _, m, vpp, _ = case
    return m * vpp * (f + b + (w if kind in SPLIT_BACKWARD_KINDS else 0.0))


@pytest.mark.parametrize("kind", KINDS)
def test_simulation_is_the_longest_path(kind: str) -> None:
    rng = random.Random(kind)
    population = list(cases((kind,), range(1, 5), range(1, 11), range(1, 4), every_group=True))
    for case in rng.sample(population, min(8, len(population))):
        _, pp, m, vpp, group = case
        events = schedule(kind, pp, m, vpp, group)
        chunks = chunks_per_rank(kind, vpp)
        tables = random_tables(rng, pp, chunks)
        p2p = [[rng.random() for _ in range(pp)] for _ in range(pp)]
        expected = longest_paths(kind, events, tables, p2p)
        found = simulate(compile_order(kind, events), tables["F"], tables["B"], tables["W"], p2p)
        for rank, todo in enumerate(events):
            for position, event in enumerate(todo):
                start, end = expected[event[:4]]
                assert found.start_s[rank][position] == pytest.approx(start)
                assert found.end_s[rank][position] == pytest.approx(end)
        assert found.makespan_s == pytest.approx(max(end for _, end in expected.values()))


def test_ranks_work_without_overlap_and_idle_adds_up() -> None:
    rng = random.Random(5)
    for kind in KINDS:
        vpp = 2 if kind in ("interleaved", "zbv", "v-half", "v-min", "dualpipev") else 1
        events = schedule(kind, 4, 8, vpp)
        tables = random_tables(rng, 4, chunks_per_rank(kind, vpp))
        found = simulate(compile_order(kind, events), tables["F"], tables["B"], tables["W"], 0.1)
        for rank, todo in enumerate(events):
            for position in range(1, len(todo)):
                if not todo[position - 1].fused:
                    assert found.start_s[rank][position] >= found.end_s[rank][position - 1]
            work = sum(tables[e.kind][e.rank][e.chunk] for e in todo)
            assert found.busy_s[rank] == pytest.approx(work)
            assert found.idle_s[rank] == pytest.approx(found.makespan_s - work)
            assert found.span_s[rank] == found.end_s[rank][-1] - found.start_s[rank][0]
        assert found.bubble_fraction == pytest.approx(sum(found.idle_s) / (4 * found.makespan_s))
        assert 0 < found.bubble_fraction < 1


def test_hand_computed_timeline() -> None:
    """1F1B, pp 2, 2 micro-batches, F 1 s and 2 s, B 3 s and 4 s, links 0.5 s.

    rank 0: F0 0-1, F1 1-2, B0 after B0 of rank 1 (7.5) + .5: 8-11, B1 after 13.5 + .5: 14-17
    rank 1: F0 1.5-3.5, B0 3.5-7.5, F1 7.5-9.5, B1 9.5-13.5
    """
    order = planned_order("1f1b", 2, 2)
    found = simulate(order, [[1.0], [2.0]], [[3.0], [4.0]], None, 0.5)
    assert found.start_s == [[0, 1, 8, 14], [1.5, 3.5, 7.5, 9.5]]
    assert found.end_s == [[1, 2, 11, 17], [3.5, 7.5, 9.5, 13.5]]
    assert (found.makespan_s, found.longest_span_s, found.busy_s) == (17, 17, [8, 12])
    assert found.idle_s == [9, 5]
    assert found.bubble_fraction == 1 - 20 / 34


def test_fused_pairs_can_be_cheaper() -> None:
    """A fused forward and backward may overlap: priced at the longer of the two, nothing else changes."""
    events = schedule("interleaved", 2, 4, 2, overlap=True)
    order = compile_order("interleaved", events)
    f, b = [[1.0] * 2] * 2, [[2.0] * 2] * 2
    apart = simulate(order, f, b)
    together = simulate(order, f, b, fused_s=lambda members: 2.0 if len(members) == 2 else math.nan)
    pairs = [sum(event.fused for event in todo) for todo in events]
    assert [x - y for x, y in zip(apart.busy_s, together.busy_s, strict=True)] == pairs
    assert together.makespan_s < apart.makespan_s
    # as a sum it is worth what the single events are worth
    assert apart.makespan_s == simulate(planned_order("interleaved", 2, 4, 2, None, True), f, b).makespan_s


def test_arrays_are_simulated_like_numbers() -> None:
    rng = random.Random(7)
    for kind, vpp in (("1f1b", 1), ("interleaved", 2), ("zbv", 2), ("dualpipe", 1)):
        order = planned_order(kind, 4, 8, vpp)
        chunks = chunks_per_rank(kind, vpp)
        many = [random_tables(rng, 4, chunks) for _ in range(5)]
        links = [rng.random() for _ in range(5)]
        stacked = {
            k: [[np.array([t[k][rank][c] for t in many]) for c in range(chunks)] for rank in range(4)] for k in "FBW"
        }
        grid = simulate(order, stacked["F"], stacked["B"], stacked["W"], np.array(links))
        for index, (tables, link) in enumerate(zip(many, links, strict=True)):
            one = simulate(order, tables["F"], tables["B"], tables["W"], link)
            assert grid.makespan_s[index] == one.makespan_s
            assert grid.longest_span_s[index] == one.longest_span_s
            assert grid.bubble_fraction[index] == pytest.approx(one.bubble_fraction)


def test_a_broken_schedule_is_reported() -> None:
    f0, b0 = Event("F", 0, 0, 0), Event("B", 0, 0, 0)
    f1, b1 = Event("F", 1, 0, 0), Event("B", 1, 0, 0)
    with pytest.raises(ValueError, match="before its forward"):
        compile_order("1f1b", [[f0, b0], [b1, f1]])
    later = Event("F", 0, 1, 0)
    with pytest.raises(ValueError, match="deadlock"):
        # rank 0 wants the gradient of micro-batch 0 before it sends micro-batch 1, rank 1 the other way round
        compile_order("1f1b", [[f0, b0, later], [Event("F", 1, 1, 0), f1, b1]])


DURATIONS = ((1, 1, 1), (1, 2, 0), (2, 3, 1), (4, 5, 4), (3, 1, 2), (2, 5, 6), (7, 2, 5))


def test_bubbles_of_equal_stages() -> None:
    """The published formulas, and ours for short steps, are what the simulation gives."""
    checked = 0
    for case in cases(tuple(KINDS), range(1, 7), range(1, 16), range(1, 4), every_group=True):
        kind, pp, m, vpp, _ = case
        if kind == "zb-heuristic" or (kind == "zb-h1" and vpp > 1):
            continue
        for f, b, w in DURATIONS:
            if kind == "zb-h2" and not (m >= 2 * pp - 1 or 2 * w <= f + b):
                continue
            if kind == "zbv" and not (w <= f <= b and (m >= 2 * pp - 1 or w == f)):
                continue
            if kind in ("v-half", "v-min") and not (f == b == w and m >= pp > 2):
                continue
            if kind in ("dualpipe", "dualpipev") and f != b:
                continue
            bubble = equal(kind, case, f, b, w).longest_span_s - work_per_rank(case, f, b, w)
            assert bubble == pytest.approx(equal_bubble_s(kind, pp, m, f, b, w, vpp)), (case, f, b, w)
            checked += 1
    assert checked > 3000
    # the named forms: 1F1B (p-1)(F+B); interleaved (p-1)(F+B)/v in the times of a whole rank; H1, H2, ZB-V by table
    assert equal_bubble_s("1f1b", 8, 32, 1.0, 2.0) == 7 * 3.0
    assert equal_bubble_s("interleaved", 8, 32, 1.0 / 4, 2.0 / 4, vpp=4) == 7 * 3.0 / 4
    assert equal_bubble_s("zb-h1", 8, 32, 1.0, 1.0, 1.0) == 7 * (1 + 1 - 1)
    assert equal_bubble_s("zb-h2", 8, 32, 1.0, 1.0, 1.0) == 0
    assert equal_bubble_s("zbv", 8, 32, 1.0, 1.0, 1.0, 2) == 0
    assert equal_bubble_s("dualpipe", 8, 32, 1.0, 1.0, 1.0) == (4 - 1) * (3 + 2 - 3)  # (PP/2-1)(F&B + B - 3W)


def test_makespan_of_equal_stages_with_links() -> None:
    checked = 0
    for case in cases(("1f1b", "gpipe", "interleaved"), range(1, 6), range(1, 16), range(1, 4), every_group=True):
        kind, pp, m, vpp, group = case
        for f, b, link in ((1, 1, 0.25), (2, 5, 2), (5, 2, 1), (1, 2, 10)):
            if kind == "interleaved" and link > min(f, b):
                continue
            found = equal(kind, case, f, b, 0, link).makespan_s
            assert found == pytest.approx(equal_makespan_s(kind, pp, m, f, b, link, vpp, group)), (case, f, b, link)
            checked += 1
    assert checked > 1000


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_bounds_hold(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([k for k in KINDS if k != "dualpipe"]))
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    case = rng.choice(list(cases((kind,), range(1, 7), range(1, 20), range(1, 4), every_group=True)))
    _, pp, m, vpp, group = case
    tables = random_tables(rng, pp, vpp, rng.choice((0.0, 0.2, 1.0, 5.0)))
    link = rng.choice((0.0, 0.05, 0.5, 3.0))
    makespan = simulate(planned_order(kind, pp, m, vpp, group), tables["F"], tables["B"], tables["W"], link).makespan_s
    assert makespan_lower_s(kind, m, tables["F"], tables["B"], tables["W"], link, group) <= makespan * (1 + 1e-12)
    if kind in ("1f1b", "gpipe", "interleaved", "zb-h2", "zbv") or (kind == "zb-h1" and vpp == 1):
        assert makespan_upper_s(kind, m, tables["F"], tables["B"], tables["W"], link, group) >= makespan * (1 - 1e-12)
    else:
        with pytest.raises(ValueError, match="simulate it"):
            makespan_upper_s(kind, m, tables["F"], tables["B"], tables["W"], link, group)


def test_bounds_are_tight_where_stages_are_equal() -> None:
    for case in cases(("1f1b", "gpipe", "interleaved"), range(2, 6), range(1, 16), range(1, 4)):
        kind, pp, m, vpp, group = case
        f, b = [[1.0] * vpp] * pp, [[2.0] * vpp] * pp
        makespan = equal(kind, case, 1, 2, 0).makespan_s
        assert makespan_upper_s(kind, m, f, b, None, 0.0, group) == pytest.approx(makespan)
        if kind != "gpipe":
            assert makespan_lower_s(kind, m, f, b, None, 0.0, group) == pytest.approx(makespan)


def test_bounds_serve_arrays() -> None:
    slow = np.array([1.0, 1.5, 3.0])[:, None]
    m = np.array([4, 8, 32])[None, :]
    f = [[1.0, 1.0], [1.0, slow], [1.0, 1.0], [1.0, 1.2]]
    b = [[2.0, 2.0], [2.0, 2 * slow], [2.0, 2.0], [2.0, 2.4]]
    low = makespan_lower_s("interleaved", m, f, b, None, 0.1)
    high = makespan_upper_s("interleaved", m, f, b, None, 0.1)
    assert low.shape == high.shape == (3, 3)
    for i in range(3):
        for j in range(3):
            one_f = [[float(np.broadcast_to(x, (3, 1))[i, 0]) for x in row] for row in f]
            one_b = [[float(np.broadcast_to(x, (3, 1))[i, 0]) for x in row] for row in b]
            steps = int(m[0, j])
            assert low[i, j] == pytest.approx(makespan_lower_s("interleaved", steps, one_f, one_b, None, 0.1))
            assert high[i, j] == pytest.approx(makespan_upper_s("interleaved", steps, one_f, one_b, None, 0.1))
            exact = simulate(planned_order("interleaved", 4, steps, 2), one_f, one_b, None, 0.1).makespan_s
            assert low[i, j] <= exact * (1 + 1e-12)
            assert exact <= high[i, j] * (1 + 1e-12)
