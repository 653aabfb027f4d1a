"""Micro-batches in flight at the peak, and what the event itself needs, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.support import account
from tests.oracle.recipes import MODELS

LLAMA = {**MODELS["llama3.1-8b"], "global_batch_size": 64, "gradient_accumulation_fusion": True}
S, H, F, VOCAB = 8192, 4096, 14336, 128256
PP4 = {"pipeline_model_parallel_size": 4}
VPP2 = {**PP4, "num_virtual_stages_per_pipeline_rank": 2}
PRIMUS = {"patch_primus_pipeline": True, "overlap_grad_reduce": False}


def in_flight(args: dict[str, Any], world: int = 4, **where: Any) -> list[list[int]]:
    """Micro-batches alive per chunk of every pipeline rank."""
    out = []
    for rank in account(args, world, **where).ranks:
        counts = [item.numbers["n"] for name, item in rank.items.items() if name.startswith("activations dense layers")]
        out.append(counts)
    return out


def test_one_forward_one_backward() -> None:
    assert in_flight({**LLAMA, **PP4}) == [[4], [3], [2], [1]]
    assert in_flight({**LLAMA, **PP4, "global_batch_size": 2}) == [[2], [2], [2], [1]]


def test_interleaved() -> None:
    """2 (pp - r - 1) + (vpp - 1) pp + 1 chunks: 11, 9, 7, 5 (byte-accounting.md rule 6)."""
    assert [sum(counts) for counts in in_flight({**LLAMA, **VPP2})] == [11, 9, 7, 5]


@pytest.mark.parametrize(
    ("algorithm", "vpp", "alive"),
    [("zero-bubble", 1, [4, 3, 2, 1]), ("zbv-formatted", 2, [8, 8, 8, 8]), ("v-half", 2, [6, 6, 6, 6])],
)
def test_primus_schedules(algorithm: str, vpp: int, alive: list[int]) -> None:
    """Peak counts of forwards without backward (byte-accounting-amd.md section 4.3, pp 4)."""
    args = {**LLAMA, **PP4, **PRIMUS, "pp_algorithm": algorithm}
    if vpp > 1:
        args["num_virtual_stages_per_pipeline_rank"] = vpp
    found = in_flight(args, gpu="mi300x", framework="primus-megatron", version="d3528a21")
    assert [sum(counts) for counts in found] == alive


def test_delayed_weight_gradients_wait_with_their_clones() -> None:
    """Zero-bubble on the last rank: 1 micro-batch alive, 3 of the 4 more wait for their weight gradients: input and
    output gradient of every linear layer, 2 B x tokens x (4h + 2*heads*d + 2*groups*d + 3f) a layer."""
    args = {**LLAMA, **PP4, **PRIMUS, "pp_algorithm": "zero-bubble"}
    rank = account(args, 4, gpu="mi300x", framework="primus-megatron", version="d3528a21").ranks[3]
    item = rank.items["pending weight gradients"]
    assert item.numbers["n"] == 3
    assert item.numbers["each"] == 8 * 2 * S * (4 * H + 2 * 4096 + 2 * 1024 + 3 * F)


def test_full_recomputation_keeps_inputs_and_one_unit() -> None:
    """32 layers in units of 4: 8 inputs of tokens x h x 2 B; the backward brings 4 whole layers back."""
    base = account(LLAMA, 8).ranks[0]
    layer = base.items["activations dense layers"].numbers["each"] // 32
    changes = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 4}
    rank = account({**LLAMA, **changes}, 8).ranks[0]
    assert rank.items["activations recompute inputs"].bytes == 8 * S * H * 2
    assert rank.items["activations dense layers"].bytes == 0
    block = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 5}
    rank = account({**LLAMA, **block}, 8).ranks[0]
    assert rank.items["activations recompute inputs"].bytes == 5 * S * H * 2
    assert rank.items["activations dense layers"].bytes == 27 * layer


def test_layer_ids_recompute_exactly_those() -> None:
    where: dict[str, Any] = {"gpu": "mi300x", "framework": "primus-megatron", "version": "d3528a21"}
    changes = {"recompute_granularity": "full", "recompute_method": None, "recompute_layer_ids": "0,3,31"}
    base = account({**LLAMA, **PP4}, 4, **where)
    found = account({**LLAMA, **PP4, **changes}, 4, **where)
    for index, chosen in enumerate((2, 0, 0, 1)):
        layer = base.ranks[index].items["activations dense layers"].numbers["each"] // 8
        part = found.ranks[index].items["activations dense layers"]
        assert part.numbers["each"] == (8 - chosen) * layer
        if chosen:
            assert found.ranks[index].items["activations recompute inputs"].numbers["each"] == chosen * S * H * 2


def test_loss_without_fusion_needs_bf16_logits_besides_the_fp32_softmax() -> None:
    """Vocabulary 128,256: the loss keeps the fp32 softmax (and 13 B a token); at its own moment the bf16 logits are
    there too. Fused (TE), the bf16 logits become the gradient in place."""
    plain = account(LLAMA, 8).ranks[0]
    fused = account({**LLAMA, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}, 8).ranks[0]
    logits = S * VOCAB
    kept = plain.items["activations output and loss"].bytes - fused.items["activations output and loss"].bytes
    assert abs(kept - 2 * logits) <= 16 * S
    assert plain.items["transients"].bytes >= 2 * logits


def test_offloaded_layers_are_in_host_memory() -> None:
    """`cpu_offloading_num_layers` 8 of 32: 24 layers stay, two are on their way, 8 are in host memory."""
    base = account(LLAMA, 8).ranks[0]
    layer = base.items["activations dense layers"].numbers["each"] // 32
    rank = account({**LLAMA, "cpu_offloading": True, "cpu_offloading_num_layers": 8}, 8).ranks[0]
    assert rank.items["activations dense layers"].bytes == 24 * layer
    assert rank.host_bytes == 8 * layer


def test_deterministic_and_banded_attention_scratch() -> None:
    """Llama-3.1-70B on one MI355X micro-batch of 8,192 tokens: Turbo's FlyDSL backward has 64 bands of
    8,192 x 64 x 128 x 2 B (byte-accounting-amd.md section 2.2: 8,589,934,592 B)."""
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.transients import attention_workspace
    from tests.ledger.support import run_of

    args = {**MODELS["llama3.1-70b"], "enable_primus_turbo": True, "use_turbo_attention": True}
    where: dict[str, Any] = {"framework": "primus-megatron", "version": "d3528a21"}
    found = attention_workspace(Sizes(run_of(args, 8, gpu="mi355x", **where)))
    assert found == 8_589_934_592 + S * 64 * 4 + 4 * S * 8 * 128
    # 8B has 4 query heads per group: AITER, as on MI300X
    eight = {**args, "num_attention_heads": 32, "hidden_size": 4096}
    assert attention_workspace(Sizes(run_of(eight, 8, gpu="mi355x", **where))) == attention_workspace(
        Sizes(run_of(eight, 8, gpu="mi300x", **where))
    )
    # TE on ROCm, 70B at TP 8, deterministic: dq times 64 blocks of 128 (2.1 GB)
    te = {**MODELS["llama3.1-70b"], "tensor_model_parallel_size": 8, "deterministic_mode": True}
    found = attention_workspace(Sizes(run_of(te, 8, gpu="mi300x", **where)))
    assert found == 64 * S * 8 * 128 * 4 + S * 8 * 4 + S * 8 * (128 + 128) * 2


def test_fine_grained_offloading_leaves_small_tensors_and_a_few_layers() -> None:
    """32 layers send x (8,192 x 4,096 elements) and keep the lse (8,192 x 32, fewer than a Mi elements)."""
    changes = {"fine_grained_activation_offloading": True, "offload_modules": ["attn_norm", "core_attn"]}
    base, found = account(LLAMA, 8).ranks[0], account({**LLAMA, **changes}, 8).ranks[0]
    x, q, kv = S * H * 2, S * H * 2, S * 1024 * 2
    away = 32 * (x + q + 2 * kv)
    assert found.items["host activations"].bytes == away
    kept = base.items["activations dense layers"].bytes - found.items["activations dense layers"].bytes
    assert kept == away


def test_a_forward_beside_a_backward_adds_one_layer() -> None:
    """`overlap_moe_expert_parallel_comm` warms up one more micro-batch, which is never whole beside the others."""
    args = {
        **MODELS["mixtral-8x22b"], **VPP2, "num_virtual_stages_per_pipeline_rank": 2, "global_batch_size": 64,
        "expert_model_parallel_size": 4,
    }  # fmt: skip
    plain, beside = account(args, 16), account({**args, "overlap_moe_expert_parallel_comm": True}, 16)
    for one, other in zip(plain.ranks, beside.ranks, strict=True):
        counts = [
            [item.numbers["n"] for name, item in rank.items.items() if name.startswith("activations moe layers")]
            for rank in (one, other)
        ]
        assert counts[0] == counts[1]
        assert other.peak_allocated_bytes > one.peak_allocated_bytes
