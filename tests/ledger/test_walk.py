"""The walk through a run: its highest point is the ledger's peak, and what crosses a limit is found where it happens."""

from __future__ import annotations

import random
from typing import Any

import pytest

from primus_lint.ledger import peak
from primus_lint.ledger.walk import STEADY, first_over, kept_tensors, peak_words, walk
from tests.ledger.support import account, run_of
from tests.oracle.recipes import MODELS

DEEPSEEK = MODELS["deepseek-v3"]
LLAMA = {**MODELS["llama3.1-8b"], "global_batch_size": 64, "gradient_accumulation_fusion": True}
PP4 = {"pipeline_model_parallel_size": 4}
PRIMUS = {"gpu": "mi300x", "framework": "primus-megatron", "version": "d3528a21"}


def recipes() -> list[tuple[dict[str, Any], int, dict[str, Any]]]:
    """Drawn recipes of every schedule with some form of recomputation."""
    pick = random.Random(11)
    out: list[tuple[dict[str, Any], int, dict[str, Any]]] = []
    for algorithm, vpp in [
        (None, 1), (None, 2), ("zero-bubble", 1), ("zero-bubble-heuristic", 1), ("zbv-formatted", 2), ("v-half", 2),
        ("v-min", 2), ("1f1b", 1), ("1f1b-interleaved", 2),
    ]:  # fmt: skip
        for _ in range(4):
            args: dict[str, Any] = {**LLAMA, **PP4, "micro_batch_size": pick.choice([1, 2]), "seq_length": 4096}
            args["global_batch_size"] = args["micro_batch_size"] * pick.choice([8, 12, 16])
            if vpp > 1:
                args["num_virtual_stages_per_pipeline_rank"] = vpp
            if algorithm:
                args |= {"patch_primus_pipeline": True, "pp_algorithm": algorithm, "overlap_grad_reduce": False}
            if pick.random() < 0.5 and (algorithm is None or "1f1b" in algorithm):
                args |= {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2}
            out.append((args, 4, PRIMUS if algorithm else {}))
    out.append((LLAMA, 8, {}))
    out.append(({**LLAMA, "use_distributed_optimizer": False, "use_torch_fsdp2": True, "global_batch_size": 8}, 8, {}))
    return out


@pytest.mark.parametrize(("args", "world", "where"), recipes())
def test_the_highest_point_is_the_peak(args: dict[str, Any], world: int, where: dict[str, Any]) -> None:
    run, ledger = run_of(args, world, **where), account(args, world, **where)
    for rank in ledger.ranks:
        points = list(walk(run, rank))
        most = max(point.allocated for point in points if point.phase == STEADY)
        shift = rank.peak_allocated_bytes - max(rank.moments.values())  # "order of blocks", in the walk from the start
        assert most == rank.moments[peak.MOMENT] + shift
        for name, size in rank.moments.items():
            if name != peak.MOMENT:
                assert any(point.allocated in (size, size + shift) for point in points), name


def test_the_peak_is_an_event() -> None:
    """1F1B on 4 ranks: rank 0 peaks at the first backward with 4 in flight; the last rank has one."""
    ranks = account({**LLAMA, **PP4}, 4).ranks
    run = run_of({**LLAMA, **PP4}, 4)
    assert peak_words(run, ranks[0]) == "backward of micro-batch 1, 4 in flight"
    assert peak_words(run, ranks[3]).startswith(
        ("backward of micro-batch 1, 1 in flight", "forward of micro-batch 1, 1")
    )


def test_what_crosses_the_limit() -> None:
    """A limit one byte below what a point needs is crossed there; the phases come in the order of the program."""
    run, ledger = run_of({**LLAMA, **PP4}, 4), account({**LLAMA, **PP4}, 4)
    rank = ledger.ranks[0]
    outside = rank.device_low_bytes - max(rank.moments.values())
    points = list(walk(run, rank))
    for wanted in ("weights dense", "optimizer main parameters", "activations dense layers", "optimizer moment 2"):
        point = next(point for point in points if point.item == wanted)
        if any(other.allocated >= point.allocated for other in points[: points.index(point)]):
            continue  # something before needs as much
        found = first_over(run, ledger, outside + point.allocated - 1)
        assert found is not None and found.surely
        assert (found.rank.pp_rank, found.point) == (0, point)
        assert found.after_bytes == outside + point.allocated and found.before_bytes == found.after_bytes - point.size
    assert first_over(run, ledger, max(rank.device_high_bytes for rank in ledger.ranks)) is None
    between = first_over(run, ledger, rank.device_low_bytes)
    assert between is not None and not between.surely


def test_the_tensors_of_a_layer_add_up() -> None:
    run, ledger = run_of(LLAMA, 8), account(LLAMA, 8)
    found = kept_tensors(run, 0)
    items = ledger.ranks[0].items
    assert sum(found["one dense layer"].values()) == items["activations dense layers"].numbers["each"] // 32
    assert sum(found["output layer and loss"].values()) == items["activations output and loss"].bytes
    assert sum(found["the embedding"].values()) == items["activations embedding"].bytes
    assert sum(found["the final norm"].values()) == items["activations final norm"].bytes


def test_router_and_permutation_of_newer_megatron_core() -> None:
    """A layer of DeepSeek-V3 on 8 expert ranks, as the real modules keep it: megatron-core 0.16.1, and 0.19.2 for the
    version of 2026, asked with ../shared/oracle/megatron_activations.py --model deepseek-v3 --layers 4 --ep 8 --seq 4096."""
    args = {**DEEPSEEK, "expert_model_parallel_size": 8, "num_layers": 4, "mtp_num_layers": None, "seq_length": 4096}
    args["moe_layer_freq"] = [0, 0, 0, 1]
    found = {}
    for version in ("core-0.16.1", "d98e8a64"):
        tensors = kept_tensors(run_of(args, 8, version=version), 0)["one MoE layer"]
        found[version] = [
            sum(size for name, size in tensors.items() if name.startswith(part)) for part in ("router.", "dispatch.")
        ]
    assert found == {"core-0.16.1": [10_700_802, 3_407_872], "d98e8a64": [10_782_724, 8_650_752]}
