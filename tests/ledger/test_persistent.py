"""Workspaces, tables and retained tensors, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.support import account
from tests.oracle.recipes import MODELS

MIB = 1 << 20
LLAMA = MODELS["llama3.1-8b"]
MIXTRAL = MODELS["mixtral-8x22b"]
PP = "pipeline_model_parallel_size"
TP = "tensor_model_parallel_size"


def items(args: dict[str, Any], world: int, rank: int = -1, **where: Any) -> dict[str, int]:
    found = account(args, world, **where).ranks[rank]
    return {name: item.bytes for name, item in found.items.items() if item.group == "persistent"}


@pytest.mark.parametrize(
    ("gpu", "te", "torch"),
    [
        ("a100-80gb", 4 * MIB, 8 * MIB + 128 * 1024),
        ("h100", 32 * MIB + 1024, 32 * MIB),
        ("b200", 32 * MIB + 1024, 8 * MIB + 128 * 1024),  # PyTorch up to 2.11: its pull request 175344
        ("mi300x", 32 * MIB, 128 * MIB),
        ("mi355x", 64 * MIB, 128 * MIB),
    ],
)
def test_workspaces_by_architecture(gpu: str, te: int, torch: int) -> None:
    found = items(LLAMA, 8, gpu=gpu)
    assert found["TE workspaces"] == te
    assert found["torch workspaces"] == 2 * torch  # forward and autograd thread


def test_workspace_from_the_environment() -> None:
    found = items(LLAMA, 8, env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert found["torch workspaces"] == 2 * 8 * 4096 * 1024


def test_grouped_experts_have_a_workspace_per_stream() -> None:
    assert items(MIXTRAL, 8)["TE workspaces"] == 5 * (32 * MIB + 1024)


def test_middle_stages_run_no_plain_matrix_product() -> None:
    args = {**LLAMA, PP: 4}
    assert "torch workspaces" not in items(args, 8, 1)
    assert "torch workspaces" in items(args, 8, 3)


def test_pipeline_inputs_are_retained() -> None:
    args = {**LLAMA, PP: 4}
    assert "retained pipeline inputs" not in items(args, 8, 0)
    assert items(args, 8, 1)["retained pipeline inputs"] == 2 * 8192 * 4096 * 2
    chunks = {**args, "num_virtual_stages_per_pipeline_rank": 2}
    assert items(chunks, 8, 0)["retained pipeline inputs"] == 2 * 8192 * 4096 * 2  # of its second chunk
    assert items(chunks, 8, 1)["retained pipeline inputs"] == 2 * 2 * 8192 * 4096 * 2


def test_output_layer_gathers_into_the_global_buffer() -> None:
    assert "global buffer" not in items(LLAMA, 8)
    assert items({**LLAMA, TP: 2}, 8)["global buffer"] == 8192 * 4096 * 2
    assert "global buffer" not in items({**LLAMA, TP: 2, "sequence_parallel": False}, 8)


def test_all_gather_dispatcher_gathers_into_it_too() -> None:
    """512 hidden, mbs 4 x 1,024 tokens, TP 2 with sequence parallelism: 2,048 tokens a rank, gathered over EP 2 x ETP 2."""
    args = {
        **MODELS["toy-moe"], "hidden_size": 512, "seq_length": 1024, "micro_batch_size": 4, TP: 2,
        "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2, "moe_token_dispatcher_type": "allgather",
        "moe_router_topk": 1,
    }  # fmt: skip
    found = items(args, 8)
    assert found["global buffer"] == 2048 * 4 * 512 * 2
    # per layer: map of 8,192 tokens x 4 local experts, bf16 probabilities and int64 positions of the balanced 4,096
    # rows, and one small tensor: 32,768 + 8,192 + 32,768 + 512
    assert found["retained dispatch"] == 4 * (32_768 + 8_192 + 32_768 + 512)


def test_all_to_all_dispatcher_retains_map_probabilities_and_order() -> None:
    """moe/gpt3_moe_mcore_te_tp4_ep2_etp2_pp2 of the goldens: 1,024 tokens a rank, 8 experts, top 2, fp32 router:
    8,192 + 32,768 + 16,384 B in each of the last stage's 6 layers (part of the 628,064,768 B measured)."""
    args = {
        **MODELS["toy-moe"], "num_layers": 12, "hidden_size": 512, "num_attention_heads": 8, "num_query_groups": 8,
        "seq_length": 1024, "micro_batch_size": 4, TP: 4, PP: 2, "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2, "moe_router_topk": 2, "moe_router_dtype": "fp32",
    }  # fmt: skip
    assert items(args, 8)["retained dispatch"] == 6 * (8_192 + 32_768 + 16_384)


def test_rotary_table_and_learned_positions() -> None:
    assert items(LLAMA, 8)["rope table"] == 8192 * 128 * 4
    assert items({**LLAMA, "rotary_percent": 0.5}, 8)["rope table"] == 8192 * 64 * 4
    chunks = {**LLAMA, PP: 2, "num_layers_per_virtual_pipeline_stage": 4}  # each model chunk has its own
    assert items(chunks, 8, 1)["rope table"] == 4 * 8192 * 128 * 4
    learned = {**LLAMA, "position_embedding_type": "learned_absolute", "apply_rope_fusion": False}
    assert "rope table" not in items(learned, 8)


def test_fused_accumulation_leaves_a_dummy_gradient_per_shape() -> None:
    """Llama-3.1-8B: proj 4096 x 4096, qkv 6144 x 4096, fc1 28672 x 4096, fc2 4096 x 14336, output 128256 x 4096."""
    found = items({**LLAMA, "gradient_accumulation_fusion": True}, 8)
    rows = 4096 + 6144 + 28672 + 14336 + 128256
    assert found["dummy weight gradients"] == rows * 4096 * 2
    assert "dummy weight gradients" not in items(LLAMA, 8)
    # without a gate fc1 is 14336 x 4096: as many as fc2, in another shape
    plain = {**LLAMA, "gradient_accumulation_fusion": True, "swiglu": False}
    assert items(plain, 8)["dummy weight gradients"] == (rows - 14336) * 4096 * 2


def test_local_attention_keeps_its_scores_in_the_global_buffer() -> None:
    args = {**MODELS["toy"], "transformer_impl": "local", "apply_rope_fusion": False, "seq_length": 2048}
    assert items(args, 1)["global buffer"] == 8 * 2048 * 2048 * 2


def test_deferred_weight_gradients_of_the_output_layer() -> None:
    """Two micro-batches wait: logit gradients and output-layer inputs, whose graphs hold the received inputs and their
    gradients. Under sequence parallelism the flush gathers the inputs into two buffers more, one after the other."""
    args = {
        **LLAMA, "pipeline_model_parallel_size": 2, "tensor_model_parallel_size": 4, "sequence_parallel": True,
        "gradient_accumulation_fusion": True, "micro_batch_size": 1, "global_batch_size": 8,
    }  # fmt: skip
    deferring = {**args, "defer_embedding_wgrad_compute": True, "wgrad_deferral_limit": 2}
    plain, waits = (account(each, 8).ranks[-1].items for each in (args, deferring))
    name = "activations output and loss"
    tokens, vocabulary = 8192, 128512 // 4  # padded to 128 x TP
    assert waits[name].bytes - plain[name].bytes == 2 * (tokens * vocabulary * 2 + 3 * tokens // 4 * 4096 * 2)
    assert plain["global buffer"].bytes == tokens * 4096 * 2
    assert waits["global buffer"].bytes == 3 * tokens * 4096 * 2


def test_a_causal_mask_stays_where_attention_has_no_kernel_for_it() -> None:
    """In fp32 nothing but plain attention runs; in 16 bits its kernel takes up to 16,383 positions."""
    assert items({**LLAMA, "bf16": False, "seq_length": 1024}, 8)["causal mask"] == 1024**2
    for length, mask in ((1024, None), (32768, 32768**2)):
        assert items({**LLAMA, "attention_backend": "unfused", "seq_length": length}, 8).get("causal mask") == mask


def test_blackwell_has_the_workspace_of_hopper_from_pytorch_2_12_on() -> None:
    """PyTorch's pull request 175344; with the version named there is no doubt about it."""
    from primus_lint.ir.run import Target
    from primus_lint.ledger import Ledger, ledger
    from primus_lint.lower.megatron import lower
    from tests.ledger.support import section_of

    for torch, size in ((None, 8 * MIB + 128 * 1024), ("2.11.0", 8 * MIB + 128 * 1024), ("2.12.0", 32 * MIB)):
        stack = {"torch": torch} if torch else None
        run = lower(section_of(LLAMA), Target("b200", 8), "core-0.16.1", "megatron", None, stack).run
        assert run is not None
        account = ledger(run)
        assert isinstance(account, Ledger)
        assert account.ranks[0].items["torch workspaces"].bytes == 2 * size
        assert ("BLAS workspaces" in account.ranks[0].doubts) is (torch is None)


def test_an_older_software_stack() -> None:
    """TransformerEngine before 1.9 has no grouped GEMM and its streams, before 2.0 none of the router, before 2.3 no dummy
    gradients."""
    from primus_lint.ir.run import Target
    from primus_lint.ledger import Ledger, ledger
    from primus_lint.lower.megatron import lower
    from tests.ledger.support import section_of

    def found(args: dict[str, Any], te: str | None) -> dict[str, int]:
        stack = None if te is None else {"te": te}
        run = lower(section_of(args), Target("a100", 8), "core-0.16.1", "megatron", None, stack).run
        assert run is not None
        account = ledger(run)
        assert isinstance(account, Ledger)
        return {name: item.bytes for name, item in account.ranks[0].items.items()}

    assert found(MIXTRAL, "1.8")["TE workspaces"] == 4 * MIB
    assert found(MIXTRAL, "1.9")["TE workspaces"] == found(MIXTRAL, None)["TE workspaces"] == 5 * 4 * MIB
    local = {**MODELS["toy-moe"], "transformer_impl": "local", "apply_rope_fusion": False}
    assert "TE workspaces" not in found(local, "1.13")
    assert found(local, "2.0")["TE workspaces"] == 4 * MIB
    fused = {**LLAMA, "gradient_accumulation_fusion": True}
    assert "dummy weight gradients" in found(fused, "2.3")
    assert "dummy weight gradients" not in found(fused, "2.2")


def test_a_stream_of_its_own_has_a_workspace_of_its_own() -> None:
    overlap = {**MIXTRAL, "expert_model_parallel_size": 8, "overlap_moe_expert_parallel_comm": True}
    assert items(overlap, 8)["torch workspaces"] == 3 * 32 * MIB
    graphs = {**LLAMA, "cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["attn"]}
    assert items(graphs, 8)["torch workspaces"] == 2 * 32 * MIB  # fused attention runs no plain product
    assert items({**graphs, "attention_backend": "unfused"}, 8)["torch workspaces"] == 3 * 32 * MIB


def test_user_buffers_have_three_workspaces_more() -> None:
    args = {**LLAMA, TP: 2, "tp_comm_overlap": True}
    assert items(args, 8)["TE workspaces"] == 4 * (32 * MIB + 1024)


def test_latent_attention_has_a_rotary_table_in_every_layer() -> None:
    """2 of 4 layers: fp32 table of 4,096 x 64, and YaRN's cosine and sine of 4,096 positions in bf16. Part of the bytes of
    moe/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_no_mtp_no_a2a_ovlp_fine_grained_offloading of the goldens (6 layers)."""
    args = {
        **MODELS["deepseek-v3"],
        "num_layers": 4,
        PP: 2,
        "mtp_num_layers": None,
        "moe_layer_freq": 1,
        "seq_length": 4096,
    }
    assert items(args, 8, 1)["rope table"] == 2 * (4096 * 64 * 4 + 2 * 4096 * 64 * 2)
    assert items({**args, "rope_type": "rope"}, 8, 1)["rope table"] == 2 * 4096 * 64 * 4


def test_fp16_has_a_loss_scaler() -> None:
    """Scale, smallest scale, growth and back-off factor and the overflow flag; bf16 has a scale of one in their place."""
    args = {**LLAMA, "bf16": False, "fp16": True}
    assert items(args, 8)["small tensors"] - items(LLAMA, 8)["small tensors"] == 4 * 512
