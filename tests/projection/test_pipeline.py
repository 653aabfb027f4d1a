"""The makespan formulas against the event simulation of `primus_lint.schedules`, and against the known bubbles."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.ir.layout import folded, stages_from_counts
from primus_lint.projection.pipeline import Times, closed_form, makespan, simulated
from primus_lint.schedules.events import schedule
from primus_lint.schedules.timeline import compile_order, simulate


def equal(pp: int, vpp: int, forward: float, backward: float, weight: float, link: float = 0.0) -> Times:
    return Times([[forward] * vpp] * pp, [[backward] * vpp] * pp, [[weight] * vpp] * pp, link)


def timeline(kind: str, times: Times, microbatches: int, split: bool = False) -> float:
    """Independent: every event of the schedule, one by one."""
    pp, vpp = len(times.forward), len(times.forward[0])
    order = compile_order(kind, schedule(kind, pp, microbatches, vpp))
    if split:
        return float(simulate(order, times.forward, times.backward, times.weight, times.link_s).makespan_s)
    whole = [[b + w for b, w in zip(x, y, strict=True)] for x, y in zip(times.backward, times.weight, strict=True)]
    return float(simulate(order, times.forward, whole, None, times.link_s).makespan_s)


TIMES = [(1.0, 1.0, 1.0), (1.0, 1.0, 0.8), (1.0, 1.4, 0.7), (1.3, 1.0, 1.0)]


@pytest.mark.parametrize("pp", range(1, 9))
@pytest.mark.parametrize("forward, backward, weight", TIMES)
def test_equal_stages_1f1b(pp: int, forward: float, backward: float, weight: float) -> None:
    for microbatches in (1, 2, 3, pp, pp + 1, 2 * pp, 3 * pp + 1, 32):
        times = equal(pp, 1, forward, backward, weight)
        span = closed_form("1f1b", times, microbatches)
        assert span.makespan_s == pytest.approx(timeline("1f1b", times, microbatches))
        # (m + p - 1)(F + B): the formula of arXiv 2104.04473, section 2.2
        assert span.makespan_s == pytest.approx((microbatches + pp - 1) * (forward + backward + weight))
        assert span.bubble_fraction == pytest.approx((pp - 1) / (microbatches + pp - 1), abs=1e-12)


@pytest.mark.parametrize("pp", range(2, 9))
@pytest.mark.parametrize("vpp", (2, 3, 4, 8))
@pytest.mark.parametrize("forward, backward, weight", TIMES)
def test_equal_stages_interleaved(pp: int, vpp: int, forward: float, backward: float, weight: float) -> None:
    for rounds in (1, 2, 3, 8):
        times = equal(pp, vpp, forward, backward, weight)
        span = closed_form("interleaved", times, pp * rounds)
        assert span.makespan_s == pytest.approx(timeline("interleaved", times, pp * rounds))
        # bubble (p - 1)(F + B)/v of the rank's times, F = v*f (arXiv 2104.04473, section 2.2.2)
        assert span.makespan_s == pytest.approx((pp * rounds * vpp + pp - 1) * (forward + backward + weight))


@pytest.mark.parametrize("pp, microbatches", [(2, 8), (4, 8), (4, 16), (8, 32)])
@pytest.mark.parametrize("forward, backward, weight", [(1, 1, 1), (1, 1.2, 0.8), (1, 1.5, 0.8)])
def test_equal_stages_zb_h1(pp: int, microbatches: int, forward: float, backward: float, weight: float) -> None:
    times = equal(pp, 1, forward, backward, weight)
    span = makespan("zb-h1", times, microbatches)
    assert span.makespan_s == pytest.approx(timeline("zb-h1", times, microbatches, split=True))
    bubble = (pp - 1) * (forward + backward - weight)  # arXiv 2401.10241, table 1
    assert span.makespan_s == pytest.approx(microbatches * (forward + backward + weight) + bubble)


@st.composite
def unequal(draw: st.DrawFn, vpp: int = 1) -> tuple[Times, int]:
    pp = draw(st.integers(2, 8))
    spread = draw(st.sampled_from((0.02, 0.1, 0.3)))
    second = st.floats(1 - spread, 1 + spread)

    def table() -> list[list[float]]:
        return [[draw(second) for _ in range(vpp)] for _ in range(pp)]

    return Times(table(), table(), table(), draw(st.sampled_from((0.0, 0.05)))), pp * draw(st.integers(1, 6))


@settings(max_examples=150, deadline=None)
@given(unequal())
def test_unequal_1f1b_is_a_lower_bound_within_5_percent(case: tuple[Times, int]) -> None:
    times, microbatches = case
    formula, exact = closed_form("1f1b", times, microbatches).makespan_s, timeline("1f1b", times, microbatches)
    assert formula <= exact * (1 + 1e-9)
    assert exact <= formula * 1.05


@settings(max_examples=100, deadline=None)
@given(unequal(vpp=2))
def test_unequal_interleaved_is_a_lower_bound_within_13_percent(case: tuple[Times, int]) -> None:
    times, microbatches = case
    formula = closed_form("interleaved", times, microbatches).makespan_s
    exact = timeline("interleaved", times, microbatches)
    assert formula <= exact * (1 + 1e-9)
    assert exact <= formula * 1.13


@pytest.mark.parametrize("vpp", (1, 2, 4))
@pytest.mark.parametrize("extra", (0.1, 0.3, 1.0))
def test_a_heavier_last_stage_is_within_2_percent(vpp: int, extra: float) -> None:
    """The common unequal case: all chunks alike but the one with the head."""
    kind = "1f1b" if vpp == 1 else "interleaved"
    for pp in (2, 4, 8):
        for rounds in (1, 2, 4, 8):
            tables = [[[1.0] * vpp for _ in range(pp)] for _ in range(3)]
            for table in tables:
                table[-1][-1] += extra
            times = Times(*tables, 0.02)
            formula = closed_form(kind, times, pp * rounds).makespan_s
            exact = timeline(kind, times, pp * rounds)
            assert exact * 0.98 <= formula <= exact * (1 + 1e-9)


@pytest.mark.parametrize("kind, vpp", [("zbv", 2), ("v-half", 2), ("v-min", 2), ("dualpipev", 2)])
@pytest.mark.parametrize("pp", (2, 4, 8))
def test_simulated_kinds_carry_on_linearly(kind: str, vpp: int, pp: int) -> None:
    times = Times(
        [[1.0 + 0.1 * ((rank + chunk) % 3) for chunk in range(vpp)] for rank in range(pp)],
        [[1.2 - 0.1 * (rank % 2) for _ in range(vpp)] for rank in range(pp)],
        [[0.8 + 0.05 * (rank % 4) for _ in range(vpp)] for rank in range(pp)],
        0.02,
    )
    for rounds in (3, 4, 6, 10):
        exact = timeline(kind, times, rounds * pp, split=True)
        assert simulated(kind, times, rounds * pp).makespan_s == pytest.approx(exact, rel=0.005)


@pytest.mark.parametrize("kind, vpp", [("zbv", 2), ("v-half", 2), ("zb-h1", 1)])
def test_simulated_kinds_with_ranks_of_their_own_speed(kind: str, vpp: int) -> None:
    """Uneven ranks take several rounds to settle; and no rank ends before its own work."""
    for pp in (2, 4):
        for seed in range(6):
            rng = random.Random(seed)
            forward, backward, weight = (
                [[rng.uniform(*within) for _ in range(vpp)] for _ in range(pp)]
                for within in ((0.9, 1.2), (1.1, 1.6), (0.8, 1.1))
            )
            times = Times(forward, backward, weight, 0.0)
            found, exact = simulated(kind, times, 16 * pp), timeline(kind, times, 16 * pp, split=True)
            assert max(found.busy_s) <= found.makespan_s
            assert found.makespan_s == pytest.approx(exact, rel=0.005)


def test_arrays_give_what_scalars_give() -> None:
    np = pytest.importorskip("numpy")
    rows = [(1.0, 1.1, 0.9), (1.2, 0.8, 1.0), (0.7, 1.5, 0.6)]
    for kind, vpp in (("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zbv", 2)):
        for microbatches in (4, 8, 32):
            columns = [np.array(column) for column in zip(*rows, strict=True)]
            grid = makespan(kind, equal(4, vpp, *columns, link=np.array([0.0, 0.01, 0.02])), microbatches)  # type: ignore[arg-type]
            for index, (row, link) in enumerate(zip(rows, (0.0, 0.01, 0.02), strict=True)):
                alone = makespan(kind, equal(4, vpp, *row, link=link), microbatches)
                assert grid.makespan_s[index] == pytest.approx(alone.makespan_s, rel=1e-12)


def test_gpipe_runs_all_forwards_first() -> None:
    times = equal(4, 1, 1.0, 1.0, 1.0)
    assert closed_form("gpipe", times, 8).makespan_s == pytest.approx(timeline("gpipe", times, 8)) == (8 + 3) * 3.0


def test_a_v_goes_down_the_ranks_and_back() -> None:
    """Four stages on two ranks: 0 and 3 on the first, 1 and 2 on the second; other schedules keep the loop."""
    looped = stages_from_counts([[1, 1], [1, 1]])
    assert [[chunk.layers for chunk in row] for row in looped] == [[(0,), (2,)], [(1,), (3,)]]
    assert [[chunk.layers for chunk in row] for row in folded(looped, "zbv")] == [[(0,), (3,)], [(1,), (2,)]]
    assert folded(looped, "interleaved") == looped
    one = stages_from_counts([[2], [2]])
    assert folded(one, "zbv") == one
