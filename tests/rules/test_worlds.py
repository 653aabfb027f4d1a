"""Legal world sizes: against brute force over sizes, with the conditions written down anew, and with the engine itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from primus_lint.ir.run import Target
from primus_lint.lower.megatron import Lowered, lower
from primus_lint.lower.megatron.namespace import DERIVED, depends_on_world
from primus_lint.readers.batch import section_of
from primus_lint.rules.engine import UNDECIDED, check
from primus_lint.rules.worlds import LIMIT, candidates, legal_world_sizes

DENSE: dict[str, Any] = {
    "micro_batch_size": 1, "global_batch_size": 128, "train_iters": 500, "lr": 3e-4, "bf16": True, "swiglu": True,
    "normalization": "RMSNorm", "position_embedding_type": "rope", "add_bias_linear": False, "mock_data": True,
    "num_layers": 48, "hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 14336, "vocab_size": 128256,
    "seq_length": 8192, "max_position_embeddings": 8192, "sequence_parallel": True, "use_distributed_optimizer": True,
}  # fmt: skip
MOE = {**DENSE, "num_experts": 16, "moe_router_topk": 2, "moe_ffn_hidden_size": 1024, "moe_grouped_gemm": True}


def at(args: dict[str, Any], world_size: int | None, version: str = "d3528a21") -> Lowered:
    section = section_of({"args": args}, "megatron")
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    return lower(section, Target(None, world_size, 8), version, "megatron", env, {"arch": 9})


def sizes(args: dict[str, Any], version: str = "d3528a21", limit: int = LIMIT) -> list[int]:
    return legal_world_sizes(at(args, None, version), limit)


def expected(args: dict[str, Any], version: str, limit: int) -> list[int]:
    """World sizes by trying each: grids, batch, evaluation batch and interleaved groups, as Megatron checks them."""
    tp, pp = args.get("tensor_model_parallel_size", 1), args.get("pipeline_model_parallel_size", 1)
    cp, ep = args.get("context_parallel_size", 1), args.get("expert_model_parallel_size", 1)
    etp = args.get("expert_tensor_parallel_size") or tp
    virtual = args.get("num_virtual_stages_per_pipeline_rank", 1)
    shards = args.get("tensor_parallel_num_weight_shards", tp) // tp
    legal = []
    for world in range(1, limit + 1):
        if world % (tp * pp * cp * shards) or world % (etp * ep * pp):
            continue
        ranks = world // (tp * pp * cp)
        gbs, mbs = args.get("global_batch_size"), args["micro_batch_size"]
        ramp, steps = args.get("rampup_batch_size"), args.get("step_batch_size_schedule")
        rounds = args.get("decrease_batch_size_if_needed", False)
        batch = gbs if gbs is not None else mbs * ranks // shards
        if version == "d98e8a64":
            evaluation = args.get("eval_global_batch_size", batch)
            if evaluation % (args.get("eval_micro_batch_size", mbs) * ranks):
                continue
            if steps is not None:
                batch = int(steps.split()[0].partition(":")[2])
        elif ramp is not None:
            batch = ramp[0]
        if batch % (mbs * ranks) and not rounds:
            continue
        count = batch // (mbs * ranks)
        if count < 1:
            continue
        if virtual > 1 and (count < pp or count % pp):
            continue
        legal.append(world)
    return legal


def recipe(rng: random.Random) -> tuple[dict[str, Any], str]:
    version = rng.choice(["d3528a21", "d98e8a64"])
    args = dict(rng.choice([DENSE, MOE]))
    args["tensor_model_parallel_size"] = rng.choice([1, 2, 4, 8])
    args["pipeline_model_parallel_size"] = rng.choice([1, 2, 3, 4])
    args["context_parallel_size"] = rng.choice([1, 1, 2, 4])
    args["micro_batch_size"] = rng.choice([1, 2, 3])
    args["global_batch_size"] = rng.choice([1, 24, 60, 128, 1000, 1536, 12_288, None])
    if "num_experts" in args:
        args["expert_model_parallel_size"] = rng.choice([1, 2, 4, 16])
        args["expert_tensor_parallel_size"] = rng.choice([None, 1, 2])
    if args["pipeline_model_parallel_size"] > 1:
        args["num_virtual_stages_per_pipeline_rank"] = rng.choice([1, 2, 4])
    batch = args["global_batch_size"]
    kind = rng.choice(["plain", "plain", "rounded", "stepped", "evaluated", "sharded"])
    if kind == "rounded":
        args["decrease_batch_size_if_needed"] = True
    elif kind == "stepped" and version == "d3528a21" and batch is not None and batch >= 60:
        args.update(train_iters=None, train_samples=10**6, rampup_batch_size=[12, 12, 1000])
        args["global_batch_size"] = 12 * (batch // 12)
    elif kind == "stepped" and version == "d98e8a64":
        args.update(global_batch_size=None, step_batch_size_schedule="0:96 10M:1920")
    elif kind == "evaluated" and version == "d98e8a64":
        args.update(eval_global_batch_size=rng.choice([48, 64]), eval_micro_batch_size=rng.choice([1, 2]))
    elif kind == "sharded" and version == "d98e8a64":
        args["tensor_parallel_num_weight_shards"] = args["tensor_model_parallel_size"] * rng.choice([1, 2])
    return {key: value for key, value in args.items() if value is not None}, version


@pytest.mark.parametrize("seed", range(8))
def test_against_conditions_written_anew(seed: int) -> None:
    rng = random.Random(f"worlds {seed}")
    some = 0
    for _ in range(20):
        args, version = recipe(rng)
        right = expected(args, version, 2_048)
        assert sizes(args, version, 2_048) == right, (args, version)
        some += bool(right)
    assert some >= 5, "hardly a recipe of this seed is legal anywhere: the comparison says little"


@pytest.mark.parametrize("seed", range(4))
def test_against_the_engine_at_each_size(seed: int) -> None:
    """The verdict on a recipe at a world size is the one of the list of legal sizes."""
    rng = random.Random(f"engine {seed}")
    for _ in range(4):
        args, version = recipe(rng)
        legal = set(sizes(args, version))
        others = rng.sample(range(1, LIMIT + 1), 6)
        for world in [*range(1, 65), *sorted(legal)[:20], *others]:
            errors = [finding.code for finding in check(at(args, world, version)) if finding.severity == "error"]
            assert (not errors) == (world in legal), (args, version, world, errors)


def test_all_sizes_to_the_limit() -> None:
    """One GPU per replica and a batch that follows: every size is legal; two per replica: every second."""
    free = {key: value for key, value in DENSE.items() if key != "global_batch_size"}
    assert sizes(free) == list(range(1, 16_385))
    assert sizes({**free, "tensor_model_parallel_size": 2}) == list(range(2, 16_385, 2))


def test_batch_ramp() -> None:
    """A ramp from 8: the 8 samples of the first step need at most 8 ranks; the final 128 do not matter at start."""
    ramp = {**DENSE, "train_iters": None, "train_samples": 10**6, "rampup_batch_size": [8, 8, 1000]}
    assert sizes(ramp) == [1, 2, 4, 8]
    assert sizes({**ramp, "rampup_batch_size": [24, 8, 1000]}) == [1, 2, 3, 4, 6, 8, 12, 24]


def test_batch_schedule_and_evaluation() -> None:
    """A schedule from 12 with evaluation at 8: the ranks divide both, so 1, 2 and 4."""
    args = {**DENSE, "step_batch_size_schedule": "0:12 1B:24", "eval_global_batch_size": 8}
    del args["global_batch_size"]
    assert sizes(args, "d98e8a64") == [1, 2, 4]
    assert sizes({**DENSE, "eval_global_batch_size": 12}, "d98e8a64") == [1, 2, 4]
    assert sizes({**DENSE, "decrease_batch_size_if_needed": True}, "d98e8a64") == [1, 2, 4, 8, 16, 32, 64, 128]
    assert sizes({**DENSE, "decrease_batch_size_if_needed": True}, limit=200) == list(range(1, 129))


def test_illegal_at_every_size() -> None:
    assert sizes({**DENSE, "num_attention_heads": 30, "hidden_size": 4080, "tensor_model_parallel_size": 4}) == []
    assert sizes({**DENSE, "micro_batch_size": 3}) == []  # 128 is no multiple of 3
    assert sizes({**DENSE, "tensor_model_parallel_size": 0}) == []
    assert sizes({**DENSE, "optimizer": "adamw"}) == []  # a check in code


def test_candidates_are_few() -> None:
    """The divisors of 1,536 are 20 numbers; nothing else is looked at."""
    assert len(candidates(at({**DENSE, "global_batch_size": 1_536}, None).namespace)) == 20


def test_symbols_know_that_they_depend_on_the_world() -> None:
    """A symbol whose value changes with the number of GPUs is marked so: the list of legal sizes relies on it."""
    rng = random.Random("symbols")
    for _ in range(40):
        args, version = recipe(rng)
        small, large = at(args, 48, version).namespace, at(args, 480, version).namespace
        for name in DERIVED:
            if depends_on_world(name):
                continue
            try:
                one, two = small[name], large[name]
            except UNDECIDED:
                continue
            assert one == two, name
