"""Blocks of the caching allocator, replayed: single rules by hand, and whole runs of ../shared/goldens."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ledger.blocks import Pool, waste_bytes
from tests.ledger.support import account, golden
from tests.oracle.recipes import MODELS

MIB = 1 << 20


def test_small_tensors_are_rounded_to_512_bytes() -> None:
    assert waste_bytes([513, 512], [], [], False, 0, ()) == 511


def test_a_large_tensor_keeps_a_tail_of_at_most_1_mib() -> None:
    # 50,304 x 512 bf16 = 51,511,296 B in a segment of 25 x 2 MiB = 52,428,800 B: 917,504 B remain, not split off
    assert waste_bytes([50304 * 512 * 2], [], [], False, 0, ()) == 917_504
    # in fp32 103,022,592 B in 104,857,600 B: 1,835,008 B remain, more than 1 MiB, and are split off
    assert waste_bytes([50304 * 512 * 4], [], [], False, 0, ()) == 0


def test_tensors_below_10_mib_share_segments_of_20() -> None:
    # six of 3 MiB leave 2 MiB of the segment; 1.5 MiB goes there and keeps the half MiB
    assert waste_bytes([3 * MIB] * 6 + [3 * MIB // 2], [], [], False, 0, ()) == MIB // 2


def test_freed_neighbours_become_one_block() -> None:
    # four of 5 MiB fill a segment. Freed, they take 13.25 MiB and split off the rest; a segment of their own would be
    # 14 MiB and keep the 0.75 MiB tail
    size = 13 * MIB + MIB // 4
    assert waste_bytes([5 * MIB] * 4, [size], [], False, 0, ()) == 3 * MIB // 4
    pool = Pool()
    held = [pool.take(5 * MIB) for _ in range(4)]
    for block in (held[1], held[3], held[0], held[2]):
        pool.give(block, 5 * MIB)
    pool.take(size)
    assert pool.waste == 0


def test_main_parameters_are_made_by_way_of_a_clone() -> None:
    """1.5 Mi elements: clone 3 MiB, main parameter 6 MiB, side by side in a new segment; the clone's place stays free
    and takes the next clone, and after it the first moment that fits."""
    # segment: [3 clone][6 main][6 main][.. 5 free]; moments of 6 MiB need a second segment: nothing is unsplit
    assert waste_bytes([], [], [3 * MIB // 2] * 2, False, 4, (4, 4)) == 0
    # 0.7 Mi elements (2.8 MiB each): the clone's 1.4 MiB are free, moments do not fit there. One segment holds
    # 1.4 + 2.8 * 6 = 18.2 MiB, 1.8 MiB stay free
    numel = 7 * MIB // 10 // 256 * 256
    assert waste_bytes([], [], [numel] * 2, False, 4, (4, 4)) == 0


def test_gradients_of_main_parameters_come_before_the_moments() -> None:
    """Segments of their own for main parameter, gradient and moments. 12 MiB each fill theirs; 19.25 MiB leave three
    quarters of a MiB in each of four segments of 20."""
    assert waste_bytes([], [], [3 * MIB], False, 4, (4, 4), 4) == 0
    assert waste_bytes([], [], [77 * MIB // 16], False, 4, (4, 4), 4) == 4 * 3 * MIB // 4


def test_positions_come_from_the_host_in_fp32() -> None:
    """1.5 Mi elements in fp32, 6 MiB, then halved: [6 free][3 positions][11 free]. A buffer of 5.5 MiB takes the first
    hole and keeps its half MiB."""
    assert waste_bytes([], [11 * MIB // 2], [], False, 0, (), moved=3 * MIB // 2) == MIB // 2


def test_a_loaded_checkpoint_gives_whole_segments_back() -> None:
    pool = Pool()
    held = [(pool.take(size), size) for size in (30 * MIB, 5 * MIB, 5 * MIB)]
    pool.give(*held[0])
    pool.give(*held[1])
    pool.empty()
    assert [size for size, _ in pool.free] == [5 * MIB, 10 * MIB]  # of the segment that is in use


RUNS = [  # case, run, what it shows
    ("gpt/gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset", "dev_dgx_h100"),
    ("gpt/gpt3_mcore_te_tp1_pp4_vp1", "lts_dgx_a100"),  # expandable segments
    ("gpt/gpt3_mcore_te_tp2_pp1_resume_torch_dist_multi_dist_optimizer_instances", "dev_dgx_gb200_2nd"),
    ("gpt/gpt3_mcore_te_tp4_pp1_resume_torch_dist_qk_layernorm_test_mode", "lts_dgx_a100"),
    ("moe/gpt3_mcore_te_tp2_pp1_resume_torch_dist_te_8experts2parallel_dist_optimizer", "dev_dgx_h100"),
    ("moe/gpt3_mcore_te_tp2_pp1_te_8experts2parallel_ddp_average_in_collective", "dev_dgx_h100"),
    ("moe/gpt3_mcore_tp2_pp2_ep2_te_4experts2parallel", "lts_dgx_a100"),
    # blocks of what stays from the first step: Megatron's global buffer beside a projection, gradients in its hole
    ("gpt/gpt3_mcore_tp4_pp1_resume_torch", "lts"),
    ("gpt/gpt3_mcore_tp1_pp4_resume_torch_dist", "lts"),
    ("gpt/gpt3_mcore_tp1_pp4_resume_torch_dist", "lts_dgx_a100_2nd"),
    # the same under TransformerEngine with flash-attention: a last stage, its workspace in the hole of a loaded moment, with
    # deferred weight gradients, a single stage
    ("gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist", "lts"),
    ("gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist", "lts_dgx_a100_2nd"),
    ("gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist_defer_embedding_wgrad_compute", "lts"),
    ("gpt/gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset_1node", "dev_dgx_gb200"),
    ("gpt/gpt3_mcore_te_tp2_pp1_resume_torch_dist_multi_dist_optimizer_instances_1node", "dev_dgx_gb200"),
    # the mask of dropout before its result; a checkpoint's segments that outlive the emptying of the cache
    ("gpt/gpt3_mcore_te_tp2_pp1_resume_torch_dist_multi_dist_optimizer_instances", "lts"),
    ("gpt/gpt3_mcore_tp4_pp1_resume_torch_dist", "dev_dgx_h100_2nd"),
]


@pytest.mark.parametrize(("case", "run"), RUNS)
def test_steady_bytes_to_the_last_one(case: str, run: str) -> None:
    """`memory_allocated` after a step of a real run, to the byte: weights, buffers, states, workspaces, what pipeline and
    dispatchers retain, and the blocks they lie in."""
    measured, ours = golden(case, run)
    assert ours.steady_allocated_bytes == measured["mem_allocated_bytes_mode"]


def test_packed_projections_take_blocks_of_hidden_states() -> None:
    """4,096 tokens of 512 in 2 bytes: hidden states of 4 MiB, projections of 3 MiB at tensor degree 4 (6 MiB at 2); blocks are
    split when more than 1 MiB would remain, and always where segments expand."""
    args = {
        **MODELS["toy"], "hidden_size": 512, "num_attention_heads": 8, "num_query_groups": 8, "seq_length": 1024,
        "micro_batch_size": 4, "sequence_parallel": False,
    }  # fmt: skip

    def beyond(degree: int, **where: Any) -> int:
        rank = account({**args, "tensor_model_parallel_size": degree}, degree, **where).ranks[0]
        found = rank.items.get("unsplit blocks of activations")
        return 0 if found is None else found.bytes

    assert beyond(4) == 4 * (1 << 20)  # layers
    assert beyond(2) == 0
    assert beyond(4, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}) == 0
