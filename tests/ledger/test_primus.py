"""What Primus's stack adds, against the figures of ../shared/reference/byte-accounting-amd.md."""

from __future__ import annotations

from typing import Any

from primus_lint.ledger import primus
from primus_lint.ledger.activations.attention import backend
from primus_lint.ledger.activations.experts import experts
from primus_lint.ledger.activations.kind import Kind
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.transients import weight_gradient_bytes
from tests.ledger.support import account, run_of
from tests.oracle.recipes import MODELS

WHERE: dict[str, Any] = {"gpu": "mi355x", "framework": "primus-megatron", "version": "d3528a21"}
DEEPSEEK = {
    **MODELS["deepseek-v3"], "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1, "seq_length": 4096,
    "enable_primus_turbo": True, "global_batch_size": 64, "gradient_accumulation_fusion": True,
    "moe_router_dtype": "fp32",
}  # fmt: skip
MOE, MOE_LOW = Kind(True, False), Kind(True, True)
LOCAL, G, H, T, K = 32, 2048, 7168, 4096, 8


def sizes(**changes: Any) -> Sizes:
    return Sizes(run_of({**DEEPSEEK, **changes}, 8, **WHERE))


def test_mega_moe_has_the_worst_case_pool() -> None:
    """Section 2.6: 270,336 rows; fc1's output of 2.2 GB a layer; a heap of 8.2 GB."""
    s = sizes(use_turbo_mega_moe=True)
    assert primus.mega_moe(s.run) and primus.pool_rows(s) == 270_336
    assert primus.mega_moe_tensors(s)["experts.fc1_out"] == 4 * G * 270_336
    heap = 4 * H * 270_336 + 2 * H * T * K + 12 * 270_336 + 20 * T * K + 32 * 1056 + 4 * 8 * 256 + 256
    assert heap <= primus.mega_moe_heap_bytes(s) < heap + 7 * 256
    assert not primus.mega_moe(sizes(use_turbo_mega_moe=True, fp8="hybrid", fp8_recipe="tensorwise").run)
    assert primus.mega_moe_heap_bytes(sizes()) == 0


def test_weight_gradients_of_experts() -> None:
    """Section 2.4: legacy experts make theirs whole, 1.88 GB for fc1 of DeepSeek-V3 on 8 ranks; others in place."""
    assert weight_gradient_bytes(sizes(), MOE) == 0
    assert weight_gradient_bytes(sizes(moe_use_legacy_grouped_gemm=True), MOE) == LOCAL * H * 2 * G * 2
    assert weight_gradient_bytes(sizes(gradient_accumulation_fusion=False), MOE) == LOCAL * H * 2 * G * 2
    turbo = {"use_turbo_grouped_gemm": True, "fp8": "e4m3"}
    assert weight_gradient_bytes(sizes(**turbo, fp8_recipe="blockwise"), MOE_LOW) == LOCAL * H * 2 * G * 2
    assert weight_gradient_bytes(sizes(**turbo, fp8_recipe="tensorwise"), MOE_LOW) == 0


def test_turbo_experts_in_fp8_keep_padded_inputs() -> None:
    """Section 2.4: (P + 128E')(1 + 1/32) a column in blocks of 128; one tensor and scale per tensor; mxfp8 rounds both."""
    rows = T * K
    each = {recipe: experts(sizes(use_turbo_grouped_gemm=True, fp8="e4m3", fp8_recipe=recipe), MOE_LOW)
            for recipe in ("tensorwise", "blockwise", "mxfp8")}  # fmt: skip
    assert each["tensorwise"]["experts.fc1_in"] == rows * H + 4
    assert each["blockwise"]["experts.fc1_in"] == (rows + 128 * LOCAL) * H * 33 // 32
    assert each["mxfp8"]["experts.fc2_in"] == (rows + 128 * LOCAL) * G * 33 // 32


def test_buffers_outside_pytorch() -> None:
    """Section 3: the SDMA gather has at least 749,887,296 B in each group of more than one rank."""
    plain = account(DEEPSEEK, 8, **WHERE).ranks[0]
    env = {"ENABLE_SDMA_ALLGATHER": "1"}
    rank = account(DEEPSEEK, 8, env=env, **WHERE).ranks[0]
    size = rank.items["SDMA gather buffers"].bytes
    assert size >= 749_887_296 and rank.device_low_bytes - plain.device_low_bytes == size


def test_the_optimizer_of_the_environment() -> None:
    """Section 4.6: PyTorch's AdamW keeps 12 B an element whatever is asked for; FusedAdam 2 + 2 + 2 with bf16 moments.
    Section 4.3: post-validation copies all three for the roll-back."""
    low = {
        **MODELS["llama3.1-8b"], "global_batch_size": 64, "use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16",
        "exp_avg_sq_dtype": "bf16", "main_grads_dtype": "bf16",
    }  # fmt: skip

    def states(env: dict[str, str] | None = None, **changes: Any) -> int:
        rank = account({**low, **changes}, 8, env=env, **WHERE).ranks[0]
        return sum(item.bytes for name, item in rank.items.items() if name.startswith("optimizer "))

    owned = states() // 6
    assert states({"PRIMUS_TORCH_OPTIM": "1"}) == 12 * owned
    back = {"patch_zero_bubble": True, "enable_zero_bubble": True, "enable_optimizer_post_validation": True}
    assert states(pipeline_model_parallel_size=2, **back) == 3 * states(pipeline_model_parallel_size=2)


def test_attention_by_environment() -> None:
    """Note 4: kernels switched off by the environment count where the backend is left open."""

    def kernel(**env: str) -> str:
        args = {**MODELS["llama3.1-8b"], "global_batch_size": 8}
        return backend(Sizes(run_of(args, 8, env=env, **{**WHERE, "gpu": "mi300x"})))

    assert kernel() == kernel(NVTE_FLASH_ATTN="0") == "fused"
    assert kernel(NVTE_FUSED_ATTN="0") == "flash"
    assert kernel(NVTE_FUSED_ATTN="0", NVTE_FLASH_ATTN="0") == "unfused"


def test_the_workspace_of_mx_products_grows() -> None:
    """Section 3: on MI355X to the largest product, here fc1 of Llama 3.1 8B with 8,192 tokens: a copy of tokens x 28,672."""
    args = {**MODELS["llama3.1-8b"], "global_batch_size": 64, "fp8": "e4m3", "fp8_recipe": "mxfp8"}
    item = account(args, 8, **WHERE).ranks[0].items["HipKittens workspace"]
    copied = 8192 * 28672 * 103 // 100
    assert copied - (64 << 20) < item.bytes < copied + (16 << 20)
    assert "HipKittens workspace" not in account(args, 8, **{**WHERE, "gpu": "mi300x"}).ranks[0].items
