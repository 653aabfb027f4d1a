"""Batch ramp-up: with fewer micro-batches no rank of most schedules holds more, whatever the chunks weigh."""

from __future__ import annotations

from typing import Any

from primus_lint.ledger.inflight import loads
from primus_lint.schedules import KINDS, schedule
from primus_lint.schedules.inflight import weighted_peak
from tests.ledger.support import run_of
from tests.oracle.recipes import MODELS
from tests.schedules.legal import cases

BOUNDED = ("v-half", "v-min")


def falls(kind: str) -> int:
    """How often a rank's weighted peak falls when one micro-batch is added."""
    found = 0
    least: dict[tuple[int, int, int], list[int]] = {}
    for _, pp, m, vpp, group in cases((kind,), range(1, 7), range(1, 20), range(1, 4)):
        weights = [1 + 3 * chunk % 5 for chunk in range(2 if kind == "dualpipe" else vpp)]
        peaks = [weighted_peak(events, weights).value for events in schedule(kind, pp, m, vpp, group)]
        before = least.get((pp, vpp, group or 0), peaks)
        found += sum(new < old for new, old in zip(peaks, before, strict=True))
        least[pp, vpp, group or 0] = peaks
    assert least
    return found


def test_fewer_micro_batches_hold_more_in_bounded_schedules_alone() -> None:
    assert {kind for kind in KINDS if kind != "zb-heuristic" and falls(kind)} <= set(BOUNDED)
    assert all(falls(kind) for kind in BOUNDED)


def test_a_ramp_counts_in_a_bounded_schedule() -> None:
    """V-Half on 5 ranks, its second chunk four times as heavy: 3 micro-batches hold more than 4; a ramp meets both."""
    args = {
        **MODELS["llama3.1-8b"], "num_layers": 30, "pipeline_model_parallel_size": 5, "global_batch_size": 4,
        "num_virtual_stages_per_pipeline_rank": 2, "patch_primus_pipeline": True, "pp_algorithm": "v-half",
        "overlap_grad_reduce": False,
    }  # fmt: skip

    def most(changes: dict[str, Any]) -> list[int]:
        run = run_of({**args, **changes}, 5, gpu="mi300x", framework="primus-megatron", version="d3528a21")
        return [max(load.alive[0] + 4 * load.alive[1] for load in loads(run, rank)) for rank in range(5)]

    four, three = most({}), most({"global_batch_size": 3})
    assert any(a > b for a, b in zip(three, four, strict=True))
    ramp = most({"rampup_batch_size": [3, 1, 300], "train_samples": 1000})
    assert ramp == [max(a, b) for a, b in zip(three, four, strict=True)]
