"""A forward layer beside a backward layer of another micro-batch, against two streams played event by event."""

from __future__ import annotations

import random
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from primus_lint.projection.comm import paired_s, unpaired

Part = tuple[float, float, float]
WAYS = ("forward", "backward", "backward_dw")


# (part, stream, pass that it waits for and holds up; a weight gradient holds nothing up but its stream)
ISSUED = (
    ("moe_combine backward", "transfer", "backward"),
    ("attn forward", "compute", "forward"),
    ("mlp backward", "compute", "backward"),
    ("moe_dispatch forward", "transfer", "forward"),
    ("mlp backward_dw", "compute", None),
    ("moe_dispatch backward", "transfer", "backward"),
    ("mlp forward", "compute", "forward"),
    ("moe_combine forward", "transfer", "forward"),
    ("attn backward", "compute", "backward"),
    ("attn backward_dw", "compute", None),
)


def played(attention: Part, experts: Part, transfer_s: float, layers: int) -> float:
    """Seconds of that many pairs: an operation starts when its stream is free and its pass has come to it."""
    seconds = {"attn": attention, "mlp": experts}
    free = {"compute": 0.0, "transfer": 0.0}
    ready = {"forward": 0.0, "backward": 0.0}
    for _ in range(layers):
        for name, stream, chain in ISSUED:
            part, way = name.split()
            takes = transfer_s if stream == "transfer" else seconds[part][WAYS.index(way)]
            free[stream] = max(free[stream], ready[chain] if chain else 0.0) + takes
            if chain:
                ready[chain] = free[stream]
    return max(*free.values(), *ready.values())


@pytest.mark.oracle
def test_the_order_is_megatron_core_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real function runs on parts that note what is called (extra `oracle`)."""
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
    plans = pytest.importorskip("megatron.core.models.common.model_chunk_schedule_plan", exc_type=ImportError)
    seen: list[str] = []

    class Part_:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, way: str) -> Any:
            return lambda *_: seen.append(f"{self.name} {way}")

    parts = {name: Part_(name) for name in ("attn", "moe_dispatch", "mlp", "moe_combine", "mtp_post_process")}
    config = SimpleNamespace(ep_overlap_early_attn_memory_release=False)
    layer = SimpleNamespace(**parts, config=config, get_fp8_context=nullcontext)
    plans.TransformerLayerSchedulePlan.run(layer, layer)
    assert [name for name in seen if not name.startswith("mtp")] == [name for name, _, _ in ISSUED]


@pytest.mark.parametrize("seed", range(40))
def test_a_pair_takes_what_the_two_streams_take(seed: int) -> None:
    dice = random.Random(seed)
    attention, experts = ((dice.random(), dice.random(), dice.random() * (seed % 2)) for _ in range(2))
    transfer_s = 2 * dice.random() ** 2
    layer = (played(attention, experts, transfer_s, 60) - played(attention, experts, transfer_s, 20)) / 40
    assert paired_s(attention, experts, transfer_s) == pytest.approx(layer)


def recipe(pp: int, vpp: int, microbatches: int, group: int = 1, kind: str = "interleaved") -> Any:
    return SimpleNamespace(
        batch=SimpleNamespace(num_microbatches=microbatches),
        schedule=SimpleNamespace(kind=kind),
        parallel=SimpleNamespace(pp=pp, vpp=vpp, microbatch_group_size=group),
    )


def test_passes_of_the_first_rank_without_a_partner() -> None:
    """Warm-up of Megatron-Core: 2(pp - 1) + (vpp - 1) group, and one more; never more than there are."""
    assert unpaired(recipe(1, 1, 8)) == 1 / 8
    assert unpaired(recipe(4, 3, 16, 4)) == (6 + 8 + 1) / 48
    assert unpaired(recipe(4, 1, 16)) == 4 / 16
    assert unpaired(recipe(8, 4, 8, 8)) == 1.0


@pytest.mark.parametrize("pp", (2, 4, 8))
def test_passes_of_a_v_schedule_without_a_partner(pp: int) -> None:
    """Of the rank that waits longest, by the schedule's own events: forwards before its first backward, backwards after its last
    forward."""
    from primus_lint.schedules.events import schedule

    longest = 0
    for rank in range(pp):
        events = schedule("zbv", pp, 4 * pp, 2)
        passes = [event.kind for row in events for event in row if event.rank == rank and event.kind in "FB"]
        longest = max(longest, passes.index("B"), passes[::-1].index("F"))
    assert unpaired(recipe(pp, 2, 4 * pp, pp, "zbv")) == longest / (8 * pp)


@pytest.mark.parametrize(
    ("keys", "beside"),
    [
        ({}, True),  # Megatron's own interleaved schedule
        ({"patch_primus_pipeline": True, "pp_algorithm": "zbv-formatted"}, True),
        ({"patch_primus_pipeline": True, "pp_algorithm": "1f1b-interleaved"}, False),
        ({"patch_primus_pipeline": True, "pp_algorithm": "v-half"}, False),
        ({"patch_zero_bubble": True, "zero_bubble_v_schedule": True}, False),
    ],
)
def test_schedules_that_combine_passes(keys: dict[str, Any], beside: bool) -> None:
    """Primus's `PrimusPipelineParallelLauncher.run` hands the switch to zbv-formatted alone."""
    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron import lower
    from primus_lint.readers.batch import read_batch

    args = {
        "bf16": True, "seq_length": 4096, "pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2,
        "expert_model_parallel_size": 4, "overlap_moe_expert_parallel_comm": True, **keys,
    }  # fmt: skip
    document = read_batch({"framework": "primus-megatron", "model": "mixtral-8x7b", "args": args})
    lowered = lower(document.sections[0], Target("mi300x", 16), "d3528a21", "primus-megatron").run
    assert lowered is not None
    assert lowered.schedule.overlap_moe_ep is beside
