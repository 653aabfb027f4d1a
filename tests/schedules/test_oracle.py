"""The event lists against the real schedule code: Megatron-Core's functions run, torch's plans read.

Run with an interpreter that has the extra `oracle` and pytest: python -m pytest -m oracle tests/schedules
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint.schedules.closed_form import composition, peak_in_flight, warmup
from primus_lint.schedules.events import FOLDED_KINDS, Event, rank_schedule, schedule
from primus_lint.schedules.inflight import counts
from primus_lint.schedules.names import torch_group

HERE = Path(__file__).resolve().parent
SHARED_SCRIPT = HERE.parents[2] / "shared" / "oracle" / "megatron_inflight.py"
pytestmark = pytest.mark.oracle


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (extra `oracle`)")


def questions() -> list[dict[str, Any]]:
    """Combinations of pp, vpp, micro-batches, group size, rank, forward-only; a few with overlapped P2P."""
    out = []
    for pp in (1, 2, 3, 4, 8):
        for vpp in (None, 1, 2, 3, 4):
            if pp == 1 and vpp is not None:
                continue
            for m in sorted({1, pp, pp + 1, 2 * pp, 3 * pp, 5 * pp}):
                for group in (None,) if vpp is None else (None, pp + 1, 2 * pp):
                    for rank in range(pp):
                        for forward_only in (False, True) if rank in (0, pp - 1) else (False,):
                            out.append(
                                {
                                    "pp": pp, "vpp": vpp, "microbatches": m, "group": group, "rank": rank,
                                    "overlap_p2p": (vpp or 1) > 1 and rank % 2 == 1, "forward_only": forward_only,
                                }
                            )  # fmt: skip
    return out


def test_megatron_runs_what_the_event_list_says() -> None:
    """Order of forwards and backwards, peak, composition and warm-up of every rank; and what Megatron refuses."""
    need("torch")
    need("megatron")
    asked = questions()
    done = subprocess.run(
        [sys.executable, str(HERE / "megatron_order.py")],
        input=json.dumps(asked), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked)
    accepted = 0
    for question, found in zip(asked, answers, strict=True):
        pp, rank, m, group = (question[name] for name in ("pp", "rank", "microbatches", "group"))
        vpp = question["vpp"] or 1
        kind = "1f1b" if question["vpp"] is None else "interleaved"
        if "refused" in found:
            with pytest.raises(ValueError, match="group"):
                schedule(kind, pp, m, vpp, group)
            continue
        accepted += 1
        mine = rank_schedule(kind, pp, rank, m, vpp, group, forward_only=question["forward_only"])
        assert [[e.kind, e.microbatch, e.chunk] for e in mine] == found["order"], question
        if question["forward_only"]:
            assert found["warmup"] == m * vpp
            continue
        held = [0] * vpp
        heights = []
        for event_kind, _, chunk in found["order"]:
            held[chunk] += 1 if event_kind == "F" else -1
            heights.append((sum(held), tuple(held)))
        most = max(height for height, _ in heights)
        assert counts(mine).total == most == peak_in_flight(kind, pp, rank, m, vpp, group), question
        first = next(chunks for height, chunks in heights if height == most)
        assert composition(pp, rank, m, vpp, group) == first if kind == "interleaved" else first == (most,)
        assert warmup(kind, pp, rank, m, vpp, group) == found["warmup"]
        if kind == "interleaved":
            assert warmup(kind, pp, rank, m, vpp, group, True) == found["warmup_overlap"]
    assert accepted >= 900


def test_shared_sweep_counts_the_same_peaks() -> None:
    """The repository's own oracle counts live micro-batches inside the real functions; its peaks are ours."""
    need("torch")
    need("megatron")
    if not SHARED_SCRIPT.is_file():
        pytest.skip("../shared/oracle is not at hand")
    done = subprocess.run([sys.executable, str(SHARED_SCRIPT), "--sweep"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) >= 900
    for row in rows:
        kind = "1f1b" if row["vpp"] is None else "interleaved"
        group = None if row["vpp"] is None else row["group"]
        vpp = row["vpp"] or 1
        assert peak_in_flight(kind, row["pp"], row["rank"], row["m"], vpp, group) == row["peak"], row
        if kind == "interleaved":
            at_peak = {str(c): n for c, n in enumerate(composition(row["pp"], row["rank"], row["m"], vpp, group)) if n}
            assert at_peak == {c: n for c, n in row["chunks_at_peak"].items() if n}, row


def torch_plan(name: str, pp: int, m: int, chunks: int) -> list[list[Event]]:
    """The plan of a torch.distributed.pipelining schedule, without its stages and its communication."""
    from torch.distributed.pipelining import schedules

    cls = getattr(schedules, name)
    plan = cls.__new__(cls)
    plan._n_microbatches = m
    plan._num_stages = plan.num_stages = pp * chunks
    plan._stages = range(chunks)
    plan.pp_group_size = pp
    plan.n_local_stages = chunks
    plan.number_of_rounds = max(1, m // pp)
    plan.microbatches_per_round = m // plan.number_of_rounds
    folded = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    out = []
    for rank in range(pp):
        if chunks == 1 and name == "ScheduleGPipe":
            actions = plan._get_pipeline_order()[rank]
        else:
            actions = plan._calculate_single_rank_operations(rank)
        events: list[Event] = []
        for action in actions:
            if action is None or action.computation_type.value == "REDUCE_GRAD":
                continue
            for stage, computation, microbatch, _ in action.sub_actions or (action,):
                chunk = (0 if stage < pp else 1) if folded else stage // pp
                fused = action.sub_actions is not None
                if computation.value == "B":  # a whole backward: B and W in one piece where others are split
                    events.append(Event("B", rank, microbatch, chunk, folded))
                    if folded:
                        events.append(Event("W", rank, microbatch, chunk))
                else:
                    letter = {"F": "F", "I": "B", "W": "W"}[computation.value]
                    events.append(Event(letter, rank, microbatch, chunk, fused and letter == "F"))
        out.append(events)
    return out


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ScheduleGPipe", "gpipe"),
        ("ScheduleLoopedBFS", "looped-bfs"),
        ("ScheduleInterleaved1F1B", "interleaved"),
        ("ScheduleInterleavedZeroBubble", "zb-h1"),
        ("ScheduleZBVZeroBubble", "zbv"),
        ("ScheduleDualPipeV", "dualpipev"),
    ],
)
def test_torch_plans_what_the_event_list_says(name: str, kind: str) -> None:
    need("torch")
    compared = 0
    for pp in (2, 3, 4, 5, 8):
        for m in range(1, 30):
            for chunks in (2,) if kind in FOLDED_KINDS else (1,) if kind == "gpipe" else (1, 2, 3):
                if kind == "dualpipev" and m < 2 * pp:
                    continue
                group = None
                if kind in ("interleaved", "zb-h1"):
                    try:
                        group = torch_group(pp, m)
                    except ValueError:
                        continue
                assert torch_plan(name, pp, m, chunks) == schedule(kind, pp, m, chunks, group), (pp, m, chunks)
                compared += 1
    assert compared >= 90
