"""The Chrome trace: every event of the schedule, in order, ending when the projection says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import CLEAN, OOM


def trace(lint: Any, *words: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(lint("--output-format", "trace", *words).stdout)
    return data


def slices(data: dict[str, Any], process: int = 1) -> dict[int, list[dict[str, Any]]]:
    """Complete events by thread, in the order of time."""
    found: dict[int, list[dict[str, Any]]] = {}
    for event in data["traceEvents"]:
        if event["ph"] == "X" and event["pid"] == process:
            found.setdefault(event["tid"], []).append(event)
    for events in found.values():
        events.sort(key=lambda event: event["ts"])
    return found


def test_all_events_of_a_pipeline(repo: Path, lint: Any, report: Any) -> None:
    """2 ranks and 16 micro-batches under 1F1B: 32 events a rank; rank 0 starts two forwards before its first backward."""
    found = slices(trace(lint, OOM))
    assert sorted(found) == [0, 1]
    for events in found.values():
        work = [event["name"] for event in events if event["cat"] != "step"]
        assert sorted(work) == sorted([f"F{index}" for index in range(16)] + [f"B{index}" for index in range(16)])
        assert all(first["ts"] + first["dur"] <= then["ts"] + 1e-3 for first, then in itertools.pairwise(events))
    assert [event["name"] for event in found[0][:3]] == ["F0", "F1", "B0"]
    assert [event["name"] for event in found[1][:3]] == ["F0", "B0", "F1"]
    end_s = max(event["ts"] + event["dur"] for events in found.values() for event in events) / 1e6
    assert end_s == pytest.approx(report(OOM)["files"][0]["time"]["iteration_s"], rel=1e-3)


def test_the_counter_is_what_a_rank_holds_for_backward(repo: Path, lint: Any) -> None:
    data = trace(lint, OOM)
    for rank, most in ((0, 2), (1, 1)):  # 1F1B: pp - rank micro-batches
        counts = [event["args"]["chunks"] for event in data["traceEvents"] if event["name"] == f"held by rank {rank}"]
        assert max(counts) == most and counts[-1] == 0


def test_threads_and_processes_are_named(repo: Path, lint: Any) -> None:
    data = trace(lint, CLEAN, OOM)
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in data["traceEvents"]
        if event["name"] == "thread_name"
    }
    processes = [event["args"]["name"] for event in data["traceEvents"] if event["name"] == "process_name"]
    assert processes == [CLEAN, OOM]
    assert names == {(1, 0): "pipeline rank 0", (2, 0): "pipeline rank 0", (2, 1): "pipeline rank 1"}
    assert len(slices(data, 1)) == 1 and len(slices(data, 2)) == 2


def test_what_is_not_projected_is_said(repo: Path, lint: Any) -> None:
    data = trace(lint, "--isolated", CLEAN)
    assert data["traceEvents"] == [] and data["otherData"] == {CLEAN: "not projected"}


@pytest.mark.parametrize("kind", ["interleaved", "zbv-formatted"])
def test_virtual_stages_and_split_backwards(repo: Path, lint: Any, kind: str) -> None:
    """4 ranks with 2 chunks: F and B for every chunk, and W as well where the backward is split."""
    text = (
        (repo / OOM)
        .read_text()
        .replace("{PRIMUS_PP:2}", "{PRIMUS_PP:4}")
        .replace("micro_batch_size: 4", "micro_batch_size: 1")
    )
    extra = "      num_virtual_stages_per_pipeline_rank: 2\n"
    if kind != "interleaved":
        extra += f"      patch_primus_pipeline: true\n      pp_algorithm: {kind}\n"
        text = text.replace("overlap_grad_reduce: true", "overlap_grad_reduce: false")
        text = text.replace("overlap_param_gather: true", "overlap_param_gather: false")
    (repo / "configs" / "pp.yaml").write_text(
        text.replace("      weight_decay: 0.1\n", "      weight_decay: 0.1\n" + extra)
    )
    data = trace(lint, "--nodes", "4", "configs/pp.yaml")
    found = slices(data)
    assert len(found) == 4, data["otherData"]
    kinds = "FBW" if kind != "interleaved" else "FB"
    for events in found.values():
        work = [
            (event["name"][0], event["args"]["micro_batch"], event["args"]["chunk"])
            for event in events
            if event["cat"] != "step"
        ]
        assert sorted(work) == sorted(
            (kind, index, chunk) for kind in kinds for index in range(32) for chunk in range(2)
        )
