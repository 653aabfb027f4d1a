"""Moments besides forward and backward, and host memory: by hand from the sizes of Llama 3.1 8B."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ledger.host import node
from tests.ledger.support import account
from tests.oracle.recipes import MODELS

LLAMA = {
    **MODELS["llama3.1-8b"],
    "global_batch_size": 64,
    "gradient_accumulation_fusion": True,
    "overlap_grad_reduce": False,
}
PARAMETERS = 8_030_261_248
S, H, F, VOCAB = 8192, 4096, 14336, 128256
LOW = {
    "use_precision_aware_optimizer": True, "main_grads_dtype": "fp32", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"
}  # fmt: skip


def above(args: dict[str, Any], moment: str, world: int = 8, **where: Any) -> int:
    rank = account(args, world, **where).ranks[0]
    return int(rank.moments[moment] - rank.moments["gradient norm"])  # nothing above the steady state


def test_saving_raises_low_moments_to_fp32() -> None:
    """Two moments in bf16, 1/8 of the parameters owned: 2 x 4 B x 1,003,782,656 elements (no padding: rule 2)."""
    assert "checkpoint save" not in account({**LLAMA, **LOW}, 8).ranks[0].moments
    assert above({**LLAMA, **LOW, "save": "x"}, "checkpoint save") == 8 * PARAMETERS // 8
    assert above({**LLAMA, "save": "x"}, "checkpoint save") == 0
    assert above({**LLAMA, **LOW, "save": "x", "no_save_optim": True}, "checkpoint save") == 0


def test_saving_in_gathered_form() -> None:
    """One bucket (no overlap): 8 ranks' shards in fp32, and the own one, on the device; 12 B a parameter on the host of
    every rank, or of the first data-parallel rank alone."""
    args = {**LLAMA, "save": "x", "dist_ckpt_optim_fully_reshardable": True}
    assert above(args, "checkpoint save") == 4 * PARAMETERS + 4 * PARAMETERS // 8
    used = node(account(args, 8), 8, 8, 1)
    assert used.items["checkpoint gather"] == 8 * 12 * PARAMETERS
    first = {**args, "distrib_optim_fully_reshardable_mem_efficient": True}
    assert node(account(first, 8), 8, 8, 1).items["checkpoint gather"] == 12 * PARAMETERS
    assert above(first, "checkpoint save") == 0
    legacy = node(account({**LLAMA, "save": "x", "ckpt_format": "torch"}, 8), 8, 8, 1)
    assert legacy.items["checkpoint gather"] == 12 * PARAMETERS and "checkpoint states" not in legacy.items


def test_a_plain_save_stages_what_the_ranks_write() -> None:
    """torch_dist: 12 B of states an owned element, and each rank its eighth of the bf16 weights."""
    used = node(account({**LLAMA, "save": "x"}, 8), 8, 8, 1)
    assert used.items["checkpoint states"] == 12 * PARAMETERS
    assert used.items["checkpoint weights"] == 2 * PARAMETERS
    assert used.saving_bytes - used.training_bytes == 14 * PARAMETERS
    assert used.training_bytes == used.permanent["data loader"]


def test_the_data_loader_of_a_long_sequence() -> None:
    """8 workers x 2 micro-batches of 131,072 tokens: 28 B a token and a mask of a byte a pair, on one rank in eight."""
    args = {**LLAMA, "tensor_model_parallel_size": 8, "sequence_parallel": True, "num_workers": 8}
    long = {**args, "seq_length": 131072, "max_position_embeddings": 131072}
    assert node(account(long, 8), 8, 8, 8).training_bytes == 16 * 131072 * (28 + 131072)
    without = {**long, "create_attention_mask_in_dataloader": False}
    assert node(account(without, 8), 8, 8, 8).training_bytes == 16 * 131072 * 28
    assert node(account({**args, "num_workers": 0}, 8), 8, 8, 8).training_bytes == 0


def test_evaluation_needs_less_than_training() -> None:
    """The loss: gathered hidden states, bf16 logits, and (unfused) their fp32 copy with its bf16 source."""
    args = {**LLAMA, "eval_iters": 10, "eval_interval": 100}
    found = above(args, "evaluation")
    assert found == S * H * 2 + S * VOCAB * (2 + 4)
    rank = account(args, 8).ranks[0]
    assert rank.moments["evaluation"] < rank.peak_allocated_bytes
    assert "evaluation" not in account({**args, "eval_iters": 0}, 8).ranks[0].moments


def test_a_larger_micro_batch_of_evaluation_can_be_the_peak() -> None:
    args = {
        **LLAMA, "eval_iters": 10, "eval_interval": 100, "eval_micro_batch_size": 16, "recompute_granularity": "full",
        "recompute_method": "uniform", "recompute_num_layers": 1,
    }  # fmt: skip
    rank = account(args, 8, version="d98e8a64").ranks[0]
    assert rank.peak_moment == "evaluation"
    assert above(args, "evaluation", version="d98e8a64") == 16 * (S * H * 2 + S * VOCAB * (2 + 4))


def test_layer_wise_muon_gathers_all_parameters() -> None:
    """dist_muon on 8 ranks: flat bf16 copies of all parameters and of the own eighth, at the parameter all-gather."""
    args = {**LLAMA, "optimizer": "dist_muon", "use_distributed_optimizer": False}
    assert above(args, "parameter all-gather") == 2 * (PARAMETERS + PARAMETERS // 8)


@pytest.mark.parametrize("framework", ["megatron", "primus-megatron"])
def test_primus_saves_at_the_end_unless_told_not_to(framework: str) -> None:
    args = {**LLAMA, **LOW, "train_iters": 50, "save_interval": 1000}
    where = {"framework": framework, "version": "d3528a21"}
    always = framework == "primus-megatron"
    assert ("checkpoint save" in account(args, 8, **where).ranks[0].moments) is always
    assert "checkpoint save" not in account({**args, "disable_last_saving": True}, 8, **where).ranks[0].moments


def test_pinned_copies_are_rounded_to_powers_of_two() -> None:
    """One rank, everything offloaded: each parameter's fp32 copy and gradient take a power of two of bytes. In a layer qkv
    6144 x 4096 (96 MiB, 128 taken) and fc1, fc2 28672 and 14336 x 4096 (448 and 224 MiB: 512 and 256) are no such."""
    low = {"use_precision_aware_optimizer": True, "main_grads_dtype": "fp32", "optimizer_cpu_offload": True}
    args = {**LLAMA, **low, "optimizer_offload_fraction": 1.0, "num_layers": 4}
    rank = account(args, 1).ranks[0]
    mib = 1 << 20
    lost = 4 * (32 + 64 + 32) * mib + 2 * (2048 * mib - 4 * VOCAB * H) + 0
    assert rank.items["host pinned rounding"].bytes == pytest.approx(2 * lost, rel=1e-6)
    plain = account({**args, "pin_cpu_params": False, "pin_cpu_grads": False}, 1).ranks[0]
    assert plain.host_bytes == plain.items["host optimizer state"].bytes


def test_muon_orthogonalises_one_matrix_at_a_time() -> None:
    """fc1 is 28,672 x 4,096: fp32 gradient and normalised matrix, bf16 form; split over 2 tensor ranks a rank has half of
    it, and `duplicated` gathers (fp32 shards, then their concatenation). A nearly square one (qkv of one key/value group,
    4,352 x 4,096) is largest in an iteration: in bf16 the matrix before and after, and two squares."""
    matrix = 28672 * 4096
    args = {**LLAMA, "optimizer": "muon", "use_distributed_optimizer": False}
    assert above(args, "optimizer step") == (4 + 4 + 2) * matrix
    halves = {**args, "tensor_model_parallel_size": 2}
    assert above(halves, "optimizer step") == (4 + 4 + 2) * matrix // 2
    assert above({**halves, "muon_tp_mode": "duplicated"}, "optimizer step") == (2 + 4 + 4 + 4 + 2) * matrix
    square = {**args, "swiglu": False, "ffn_hidden_size": 4096, "num_query_groups": 1}
    assert above(square, "optimizer step") == 4 * 4352 * 4096 + 2 * (2 * 4352 * 4096 + 2 * 4096**2)
