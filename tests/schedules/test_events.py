"""Every schedule runs every piece of work once, in an order that can be run; a few orders by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.schedules.events import (
    FOLDED_KINDS,
    KINDS,
    SPLIT_BACKWARD_KINDS,
    Event,
    chunks_per_rank,
    forward_table,
    rank_schedule,
    schedule,
    stage_of,
)
from primus_lint.schedules.names import PRIMUS_ALGORITHMS, TORCH_SCHEDULES, primus_microbatches, torch_group
from tests.schedules.legal import cases


def short(events: list[Event]) -> str:
    """'F0 F1 B0 ...', with a letter per chunk behind chunk 0 and '+' for fused with the next."""
    return " ".join(
        f"{e.kind}{e.microbatch}{'abcd'[e.chunk - 1] if e.chunk else ''}{'+' if e.fused else ''}" for e in events
    )


def stages_passed(kind: str, pp: int, vpp: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For every route, the (rank, chunk) in the order in which a micro-batch passes them."""
    chunks = chunks_per_rank(kind, vpp)
    places = [(rank, chunk) for rank in range(pp) for chunk in range(chunks)]
    if kind == "dualpipe":
        routes = {(0, chunk): [p for p in places if p[1] == chunk] for chunk in (0, 1)}
    else:
        routes = {(0, 0): places}
    return {route: sorted(ps, key=lambda p: stage_of(kind, pp, *p)) for route, ps in routes.items()}


def check_runs_everything_once(kind: str, pp: int, m: int, vpp: int, events: list[list[Event]]) -> None:
    """Each micro-batch through each chunk: F before B before W, once each (W only where backward is split)."""
    split = kind in SPLIT_BACKWARD_KINDS
    half = m // 2
    for rank, todo in enumerate(events):
        assert all(event.rank == rank for event in todo)
        at = {event[:4]: position for position, event in enumerate(todo)}
        assert len(at) == len(todo)
        for chunk in range(chunks_per_rank(kind, vpp)):
            mine = range(m) if kind != "dualpipe" else (range(half) if chunk == 0 else range(half, m))
            for microbatch in mine:
                forward = at.pop(("F", rank, microbatch, chunk))
                backward = at.pop(("B", rank, microbatch, chunk))
                assert forward < backward
                if split:
                    assert backward < at.pop(("W", rank, microbatch, chunk))
        assert not at
        assert not todo[-1].fused


def check_can_run(kind: str, pp: int, vpp: int, events: list[list[Event]]) -> None:
    """Let every rank run whatever it can, again and again, until all is done. Written apart from `timeline`."""
    way = stages_passed(kind, pp, vpp)
    before: dict[tuple[int, int], tuple[int, int] | None] = {}
    behind: dict[tuple[int, int], tuple[int, int] | None] = {}
    for places in way.values():
        for index, place in enumerate(places):
            before[place] = places[index - 1] if index else None
            behind[place] = places[index + 1] if index + 1 < len(places) else None
    done: set[tuple[str, tuple[int, int], int]] = set()
    left = [list(todo) for todo in events]
    moved = True
    while moved:
        moved = False
        for todo in left:
            while todo:
                size = 1
                while todo[size - 1].fused:
                    size += 1
                group = todo[:size]
                made = {(e.kind, (e.rank, e.chunk), e.microbatch) for e in group}
                needs = set()
                for event in group:
                    place = (event.rank, event.chunk)
                    if event.kind == "F" and before[place]:
                        needs.add(("F", before[place], event.microbatch))
                    if event.kind == "B":
                        needs.add(("F", place, event.microbatch))
                        if behind[place]:
                            needs.add(("B", behind[place], event.microbatch))
                    if event.kind == "W":
                        needs.add(("B", place, event.microbatch))
                if not needs <= done | made:
                    break
                done |= made
                del todo[:size]
                moved = True
    assert not any(left), f"deadlock: {[todo[:2] for todo in left if todo][:3]}"


def test_every_schedule_runs_everything_once_and_never_stops() -> None:
    count = 0
    for kind, pp, m, vpp, group in cases(pps=range(1, 6), microbatches=range(1, 13)):
        events = schedule(kind, pp, m, vpp, group)
        check_runs_everything_once(kind, pp, m, vpp, events)
        check_can_run(kind, pp, vpp, events)
        count += 1
    assert count > 700


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_group_size_overlap_and_all_forwards_first(data: st.DataObject) -> None:
    pp = data.draw(st.integers(2, 6))
    group = data.draw(st.integers(pp, pp + 6))
    rest = data.draw(st.sampled_from([0, *range(pp, group)]))
    m = group * data.draw(st.integers(1, 4)) + rest
    vpp = data.draw(st.integers(1, 4))
    overlap = data.draw(st.booleans())
    events = schedule("interleaved", pp, m, vpp, group, overlap=overlap)
    check_runs_everything_once("interleaved", pp, m, vpp, events)
    check_can_run("interleaved", pp, vpp, events)
    assert any(event.fused for todo in events for event in todo) == (overlap and m * vpp > 1 + (vpp - 1) * group)


@settings(deadline=None, max_examples=40)
@given(
    pp=st.integers(1, 6),
    m=st.integers(1, 16),
    costs=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 20)),
    limit=st.one_of(st.none(), st.integers(1, 20)),
)
def test_heuristic_with_any_costs(pp: int, m: int, costs: tuple[int, int, int, int], limit: int | None) -> None:
    events = schedule("zb-heuristic", pp, m, costs=costs, max_in_flight=limit)
    check_runs_everything_once("zb-heuristic", pp, m, 1, events)
    check_can_run("zb-heuristic", pp, 1, events)
    if limit is not None:
        for todo in events:
            held = most = 0
            for event in todo:
                held += {"F": 1, "B": 0, "W": -1}[event.kind]
                most = max(most, held)
            assert most <= limit


def test_orders_by_hand() -> None:
    # 1F1B, pp 3, 4 micro-batches: warm-up 2, 1, 0 (arXiv 2104.04473 figure 4)
    one = schedule("1f1b", 3, 4)
    assert short(one[0]) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert short(one[1]) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert short(one[2]) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert short(schedule("1f1b", 1, 2)[0]) == "F0 B0 F1 B1"
    assert short(schedule("1f1b", 1, 3, overlap=True)[0]) == "F0 F1+ B0 F2+ B1 B2"
    assert short(schedule("1f1b", 3, 1)[0]) == "F0 B0"
    assert short(schedule("1f1b", 2, 2, forward_only=True)[1]) == "F0 F1"
    # the example in the comments of Megatron-Core's schedule table: pp 2, groups of 3, 5 micro-batches, 2 chunks
    table = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (3, 1), (4, 1)]
    assert forward_table(5, 2, 3) == table
    # rank 1 of it: warm-up 0 + 1*3
    assert short(rank_schedule("interleaved", 2, 1, 5, 2, 3)) == (
        "F0 F1 F2 F0a B0a F1a B1a F2a B2a F3 B0 F4 B1 F3a B2 F4a B3a B4a B3 B4"
    )
    assert short(rank_schedule("interleaved", 2, 1, 2, 2)) == "F0 F1 F0a B0a F1a B1a B0 B1"
    all_first = schedule("interleaved", 2, 2, 2, all_forwards_first_at_pp=True)
    assert short(all_first[1]) == "F0 F1 F0a F1a B0a B1a B0 B1"
    # a warm-up one longer, then pairs in one piece
    assert short(rank_schedule("interleaved", 2, 1, 2, 2, overlap=True)) == "F0 F1 F0a F1a+ B0a B1a B0 B1"
    assert short(schedule("gpipe", 2, 2)[0]) == "F0 F1 B0 B1"
    assert short(schedule("looped-bfs", 2, 2, 2)[0]) == "F0 F1 F0a F1a B1a B0a B1 B0"
    # W late by the rank (H1) and by twice the rank (H2)
    assert short(schedule("zb-h1", 2, 3)[0]) == "F0 F1 B0 W0 F2 B1 W1 B2 W2"
    assert short(schedule("zb-h1", 2, 3)[1]) == "F0 B0 F1 B1 W0 F2 B2 W1 W2"
    assert short(schedule("zb-h2", 2, 4)[0]) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"
    assert short(schedule("zb-h2", 2, 4)[1]) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"
    assert short(schedule("zbv", 1, 2, 2)[0]) == "F0 F0a B0a W0a F1 B0 W0 F1a B1a W1a B1 W1"


def test_a_dualpipe_whole_backward_is_one_piece_of_work() -> None:
    for kind, pp, vpp in (("dualpipe", 4, 1), ("dualpipev", 3, 2)):
        for todo in schedule(kind, pp, 12, vpp):
            for event, following in itertools.pairwise(todo):
                if event.kind == "B" and event.fused:
                    assert following[:4] == ("W", *event[1:4])
                if event.kind == "F" and event.fused:
                    assert following.kind == "B" and following.fused


def test_dualpipe_directions_mirror_each_other() -> None:
    """What rank r does for one direction, rank pp-1-r does for the other."""
    pp, m = 6, 16
    events = schedule("dualpipe", pp, m)
    for rank in range(pp):
        mirrored = [
            (e.kind, pp - 1 - e.rank, (e.microbatch + m // 2) % m, 1 - e.chunk, e.fused) for e in events[pp - 1 - rank]
        ]
        assert mirrored == [tuple(e) for e in events[rank]]


def test_primus_combines_forward_and_backward_of_zbv_unless_the_gradient_comes_between() -> None:
    plain = schedule("zbv", 4, 12, 2)
    combined = schedule("zbv", 4, 12, 2, overlap=True)
    fused = 0
    for rank in range(4):
        assert [e[:4] for e in plain[rank]] == [e[:4] for e in combined[rank]]
        for event, following in itertools.pairwise(combined[rank]):
            if event.fused:
                fused += 1
                assert (event.kind, following.kind) == ("F", "B")
                assert event[2:4] != following[2:4]
    assert fused > 0
    check_can_run("zbv", 4, 2, combined)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("2f2b", 2, 4), "unknown schedule"),
        (("1f1b", 0, 4), "at least 1"),
        (("1f1b", 2, 0), "at least 1"),
        (("1f1b", 2, 4, 2), "one chunk"),
        (("zbv", 2, 4, 1), "two chunks"),
        (("interleaved", 1, 4, 2), "more than one pipeline rank"),
        (("interleaved", 4, 8, 2, 3), "outside"),
        (("interleaved", 4, 3, 2), "outside"),
        (("interleaved", 4, 8, 2, 9), "outside"),
        (("interleaved", 4, 9, 2), "fewer than pp"),
        (("dualpipe", 3, 12), "even number of ranks"),
        (("dualpipe", 4, 9), "even number of micro-batches"),
        (("dualpipe", 4, 6), "at least 8"),
        (("dualpipev", 4, 7, 2), "at least 8"),
    ],
)
def test_impossible_numbers_are_refused(arguments: tuple[object, ...], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        schedule(*arguments)  # type: ignore[arg-type]


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ValueError, match="forward-only"):
        schedule("zbv", 2, 4, 2, forward_only=True)
    with pytest.raises(ValueError, match="overlap"):
        schedule("1f1b", 2, 4, overlap=True)
    with pytest.raises(ValueError, match="not one of"):
        rank_schedule("1f1b", 2, 2, 4)
    with pytest.raises(ValueError, match="in flight"):
        schedule("zb-heuristic", 4, 8, max_in_flight=0.5)
    with pytest.raises(ValueError, match="positive"):
        schedule("zb-heuristic", 4, 8, costs=(1, 0, 1, 0))


def test_names_lead_to_known_kinds() -> None:
    assert set(PRIMUS_ALGORITHMS.values()) | set(TORCH_SCHEDULES.values()) <= set(KINDS)
    assert primus_microbatches("zbv-formatted", 4, 5) == 7  # its table is written for 2*pp-1 at least
    assert primus_microbatches("zbv-formatted", 4, 8) == 8
    assert primus_microbatches("v-half", 4, 5) == 5
    assert [torch_group(4, m) for m in (3, 4, 8, 10, 12)] == [3, 4, 4, 5, 4]
    with pytest.raises(ValueError, match="rounds"):
        torch_group(4, 9)


def test_rank_schedule_is_the_row_of_schedule() -> None:
    for kind in KINDS:
        vpp = 2 if kind in FOLDED_KINDS or kind == "interleaved" else 1
        whole = schedule(kind, 4, 8, vpp)
        assert [rank_schedule(kind, 4, rank, 8, vpp) for rank in range(4)] == whole
