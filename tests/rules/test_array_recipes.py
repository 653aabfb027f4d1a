"""The scalar and the array form of every condition agree, element by element, on random recipes with array axes.

The search judges a whole grid of recipes at once with the array form; a finding comes from the scalar form. Each
recipe here starts from a base of the catalogue, flips some arguments, and gives two or three axes several values each,
on broadcast dimensions of their own. Every point of the grid is then lowered and judged by itself.
(`test_array_form` holds each rule's own example against both forms.)
"""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import numpy as np
import pytest
import yaml

from primus_lint import resources
from primus_lint.ir.run import Target
from primus_lint.lower.megatron import adjust, namespace
from primus_lint.lower.megatron.namespace import Namespace
from primus_lint.lower.megatron.tables import defaults, keys
from primus_lint.rules import catalogue
from primus_lint.rules.engine import UNDECIDED, violated

AXES: dict[str, list[int]] = {
    "tensor_model_parallel_size": [1, 2, 3, 4, 8],
    "context_parallel_size": [1, 2, 4],
    "expert_model_parallel_size": [1, 2, 4, 8, 16],
    "expert_tensor_parallel_size": [1, 2, 4],
    "micro_batch_size": [1, 2, 3, 4],
    "global_batch_size": [1, 7, 8, 24, 64, 100, 128, 768],
    "world_size": [1, 4, 8, 12, 16, 24, 32, 64, 256],
    "num_virtual_stages_per_pipeline_rank": [1, 2, 3, 4],
    "recompute_num_layers": [1, 2, 4],
    "microbatch_group_size_per_vp_stage": [2, 4, 8],
    "seq_length": [4096, 8190, 8192],
}
SCALARS: dict[str, list[Any]] = {
    "pipeline_model_parallel_size": [1, 2, 4, 8],
    "decoder_first_pipeline_num_layers": [3, 8],
    "decoder_last_pipeline_num_layers": [5, 8],
    "num_layers_per_virtual_pipeline_stage": [2, 3],
    "fp8": ["e4m3", "hybrid"],
    "fp8_recipe": ["delayed", "tensorwise", "mxfp8", "blockwise"],
    "recompute_granularity": ["full", "selective"],
    "recompute_method": ["uniform", "block"],
    "cp_comm_type": [["p2p"], ["a2a"], ["all_gather"]],
    "num_distributed_optimizer_instances": [2],
    "moe_token_dispatcher_type": ["allgather", "alltoall", "flex"],
    "moe_expert_capacity_factor": [1.0],
    "moe_shared_expert_intermediate_size": [1407, 2048],
    "moe_ffn_hidden_size": [1407, 2048],
    "ffn_hidden_size": [14335],
    "num_query_groups": [1, 4, 8],
    "mtp_num_layers": [1],
    "cpu_offloading_num_layers": [4],
    "eval_global_batch_size": [16],
    "tensor_parallel_num_weight_shards": [8],
    "transformer_impl": ["local"],
}
RECIPES = 2_000  # about 20 s of CPU
PER_TEST = 200


def bases() -> list[dict[str, Any]]:
    with open(os.path.join(resources.data_root("rules"), "bases.yaml"), encoding="utf-8") as file:
        return [base["args"] for base in yaml.safe_load(file).values()]


def lowered(args: dict[str, Any], world_size: Any, version: str, framework: str, stack: dict[str, Any]) -> Namespace:
    """The effective namespace of arguments that may be arrays."""
    full = {**defaults(version, framework), **args}
    given = dict(full)
    adjust.megatron(full, version)
    target = Target(None, world_size, 8)
    return namespace(full, given, target, version, framework, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, stack)


def recipe(rng: random.Random) -> tuple[dict[str, Any], dict[str, list[int]], str, str, dict[str, Any]]:
    """(scalar arguments, axes with their values, version, framework, stack) of one random recipe."""
    version = rng.choice(["d3528a21", "d98e8a64"])
    table = keys(version)
    args = dict(rng.choice(bases()))
    switches = [key for key, entry in table.items() if entry["type"] == "bool"]
    for key in rng.sample(switches, rng.choice([0, 2, 8])):
        args[key] = rng.random() < 0.5
    for key in rng.sample(sorted(SCALARS), rng.choice([0, 2, 4])):
        if key in table:
            args[key] = rng.choice(SCALARS[key])
    args.setdefault("sequence_parallel", rng.random() < 0.7)
    names = rng.sample(sorted(AXES), rng.choice([2, 3]))
    axes = {name: rng.sample(AXES[name], rng.choice([2, 3])) for name in names if name == "world_size" or name in table}
    stack = {} if rng.random() < 0.5 else {"arch": 9, "te": "2.11.0", "torch": "2.13.0"}
    return args, axes, version, rng.choice(["megatron", "primus-megatron"]), stack


def array_result(function: Any, names: Namespace, shape: tuple[int, ...]) -> Any:
    """Where the array form says that the rule is broken; nowhere when it cannot be decided."""
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.broadcast_to(np.asarray(function(names), dtype=bool), shape)
    except UNDECIDED:
        return np.zeros(shape, dtype=bool)


def disagreements(rng: random.Random) -> list[str]:
    args, axes, version, framework, stack = recipe(rng)
    shape = tuple(len(values) for values in axes.values())
    arrays: dict[str, Any] = {}
    for dimension, (name, values) in enumerate(axes.items()):
        index = [1] * len(shape)
        index[dimension] = len(values)
        arrays[name] = np.array(values).reshape(index)
    world = arrays.pop("world_size", 32)
    grid = lowered({**args, **arrays}, world, version, framework, stack)
    scalar = [entry for entry in catalogue.applicable(framework, version) if entry.function is not None]
    array = {entry.code: entry.function for entry in catalogue.applicable(framework, version, "array")}
    broken = {entry.code: array_result(array[entry.code], grid, shape) for entry in scalar}
    found = []
    for point in itertools.product(*(range(length) for length in shape)):
        own: dict[str, Any] = {name: axes[name][index] for name, index in zip(axes, point, strict=True)}
        own_world = own.pop("world_size", 32)
        one = lowered({**args, **own}, own_world, version, framework, stack)
        for entry in scalar:
            assert entry.function is not None
            said = violated(entry.function, one)
            if bool(said) != bool(broken[entry.code][point]):
                found.append(f"{entry.code} {entry.name}: the scalar form says {said} at {own}, {own_world} GPUs")
    return found


@pytest.mark.parametrize("seed", range(RECIPES // PER_TEST))
def test_forms_agree(seed: int) -> None:
    rng = random.Random(f"array form {seed}")
    found = [line for _ in range(PER_TEST) for line in disagreements(rng)]
    assert not found, sorted({line.partition(":")[0] for line in found}) + found[:5]
