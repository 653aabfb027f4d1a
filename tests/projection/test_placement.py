"""Groups on real ranks, against an enumeration of all ranks in Megatron's order."""

from __future__ import annotations

from itertools import product

import pytest

from primus_lint.projection.placement import boundary_crosses_node, group, place

from .recipes import run


def nodes_by_enumeration(size: int, stride: int, gpus_per_node: int, world: int) -> int:
    """Most nodes that any group {base + i*stride} touches."""
    most = 0
    block = size * stride
    for start in range(0, world - block + 1, block):
        for offset in range(stride):
            most = max(most, len({(start + offset + i * stride) // gpus_per_node for i in range(size)}))
    return most


@pytest.mark.parametrize("gpus_per_node", (4, 8))
def test_nodes_of_a_group(gpus_per_node: int) -> None:
    for size, stride in product((1, 2, 3, 4, 6, 8, 16, 32), (1, 2, 4, 8, 16, 64)):
        world = size * stride * gpus_per_node  # room for every alignment
        assert group(size, stride, gpus_per_node).nodes == nodes_by_enumeration(size, stride, gpus_per_node, world)


def test_tensor_parallel_8_stays_in_a_node_of_8_and_straddles_nodes_of_4() -> None:
    recipe = run("llama3-70b", world_size=64, tensor_model_parallel_size=8)
    assert place(recipe.parallel, 8).tp.nodes == 1
    assert place(recipe.parallel, 4).tp.nodes == 2


def test_expert_groups_fold_into_data_parallel_ranks() -> None:
    """World 64, TP 2, EP 8, ETP 1: expert groups are 8 consecutive ranks; ETP 2: 16, over two nodes."""
    args = {
        "world_size": 64,
        "tensor_model_parallel_size": 2,
        "expert_model_parallel_size": 8,
        "sequence_parallel": True,
    }
    inside = place(run("qwen3-30b-a3b", expert_tensor_parallel_size=1, **args).parallel, 8)
    assert (inside.ep.nodes, inside.ep.stride, inside.expert_data.size) == (1, 1, 8)
    across = place(run("qwen3-30b-a3b", expert_tensor_parallel_size=2, **args).parallel, 8)
    assert (across.ep.nodes, across.ep.stride, across.expert_data.size) == (2, 2, 4)
    assert (inside.data.size, inside.data.stride, inside.data.nodes, inside.data.per_node) == (32, 2, 8, 4)


def test_pipeline_boundaries() -> None:
    """World 16, PP 4: stages of 4 ranks: 0-1 and 2-3 share a node of 8, 1-2 does not."""
    where = place(run("llama3-8b", world_size=16, pipeline_model_parallel_size=4).parallel, 8)
    assert [boundary_crosses_node(where, stage) for stage in range(3)] == [0, 1, 0]
