"""Named uncertainties, by hand."""

from __future__ import annotations

from typing import Any

from tests.ledger.support import account
from tests.oracle.recipes import MODELS

MIB = 1 << 20
LLAMA = {**MODELS["llama3.1-8b"], "global_batch_size": 64}
MIXTRAL = {**MODELS["mixtral-8x22b"], "expert_model_parallel_size": 8}


def rank(args: dict[str, Any], **where: Any) -> Any:
    return account(args, 8, **where).ranks[0]


def test_bands_add_up_the_doubts() -> None:
    found = rank(MIXTRAL)
    low, high = found.peak_band_bytes
    assert found.peak_allocated_bytes - low == sum(doubt.peak_low for doubt in found.doubts.values())
    assert high - found.peak_allocated_bytes == sum(doubt.peak_high for doubt in found.doubts.values())
    low, high = found.steady_band_bytes
    assert low < found.steady_allocated_bytes < high


def test_hot_experts() -> None:
    """56 layers; a token-row of an expert keeps h + 2g + g bf16 elements and its probability."""
    found = rank(MIXTRAL)
    rows = 8192 * 2  # of top 2 at sequence 8,192, balanced over EP 8
    each = rows * (2 * (6144 + 2 * 16384 + 16384) + 2)
    assert found.doubts["expert load"].peak_high == 56 * each * 25 // 100
    padded = {**MIXTRAL, "moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
    assert "expert load" not in rank(padded).doubts


def test_hot_experts_of_layers_that_are_recomputed() -> None:
    """`block` keeps the rows of the layers that it does not recompute, of every micro-batch; one layer is at work."""
    each = 8192 * 2 * (2 * (6144 + 2 * 16384 + 16384) + 2)
    full = {**MIXTRAL, "recompute_granularity": "full"}
    for number in (1, 20, 55, 56):
        found = rank({**full, "recompute_method": "block", "recompute_num_layers": number})
        assert found.doubts["expert load"].peak_high == (56 - number + 1) * each * 25 // 100
    uniform = rank({**full, "recompute_method": "uniform", "recompute_num_layers": 2})
    assert uniform.doubts["expert load"].peak_high == 2 * each * 25 // 100
    piped = {**full, "recompute_method": "uniform", "recompute_num_layers": 1, "pipeline_model_parallel_size": 2}
    assert account(piped, 16).ranks[0].doubts["expert load"].peak_high == each * 25 // 100


def test_old_flash_attention_falls_back_to_scores() -> None:
    """A deterministic run on A100 whose stack names no flash-attention: bf16 softmax of s x s for all heads."""
    environment = {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}
    found = rank(LLAMA, gpu="a100", env=environment)
    scores, saved = 32 * 8192 * 8192 * 2, 2 * 8192 * 1024 * 2  # k and v of all heads against 8 groups
    more = found.doubts["unfused attention"].peak_high
    assert abs(more - 32 * scores) < 32 * 2 * (saved + 8192 * 4096 * 4)
    assert "unfused attention" not in rank(LLAMA, gpu="a100").doubts
    assert "unfused attention" not in rank(LLAMA, gpu="h100", env=environment).doubts


def test_blackwell_workspaces_of_both_builds() -> None:
    doubt = rank(LLAMA, gpu="b200").doubts["BLAS workspaces"]
    assert (doubt.peak_low, doubt.peak_high) == (0, 2 * (24 * MIB - 128 * 1024))
    doubt = rank(LLAMA, gpu="b200", env={"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}).doubts["BLAS workspaces"]
    assert (doubt.peak_low, doubt.peak_high) == (2 * (24 * MIB - 128 * 1024), 0)
    assert "BLAS workspaces" not in rank(LLAMA, gpu="b200", env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}).doubts


def test_batches_of_a_step() -> None:
    """8 micro-batches a rank: tokens, labels, positions (int64), loss mask (fp32) and the mask of s x s bytes."""
    found = rank(LLAMA, version="d98e8a64")
    assert found.doubts["batches of a step"].steady_high == 8 * 8192 * (28 + 8192)
    assert "batches of a step" not in rank(LLAMA).doubts


def test_no_blocks_with_expandable_segments() -> None:
    assert "allocator blocks" in rank(LLAMA).doubts
    expandable = rank(LLAMA, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert "allocator blocks" not in expandable.doubts


def test_compiled_loss() -> None:
    """2.5 copies of 8,192 x 128,256 fp32 logits, in a step that has no moments yet."""
    found = rank({**LLAMA, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"})
    moments = found.items["optimizer moment 1"].bytes + found.items["optimizer moment 2"].bytes
    assert found.doubts["compilation of the loss"].peak_high == max(8192 * 128256 * 10 - moments, 0)


def test_compiled_loss_of_a_named_pytorch() -> None:
    """An old PyTorch that the stack names makes the copies for sure, a new one none."""
    from primus_lint.ir.run import Target
    from primus_lint.ledger import Ledger, ledger
    from primus_lint.lower.megatron import lower
    from tests.ledger.support import section_of

    args = {**LLAMA, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}
    ranks = {}
    for torch in ("2.2", "2.9"):
        run = lower(section_of(args), Target("a100", 8), "core-0.16.1", "megatron", None, {"torch": torch}).run
        assert run is not None
        found = ledger(run)
        assert isinstance(found, Ledger)
        ranks[torch] = found.ranks[0]
        assert "compilation of the loss" not in ranks[torch].doubts
    old, new = ranks["2.2"], ranks["2.9"]
    moments = old.items["optimizer moment 1"].bytes + old.items["optimizer moment 2"].bytes
    copies = 8192 * 128256 * 10
    assert old.moments["compilation of the loss"] == new.moments["backward of the last forward"] - moments + copies
    assert "compilation of the loss" not in new.moments
