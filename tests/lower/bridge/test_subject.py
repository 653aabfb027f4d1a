"""Megatron-Bridge recipes as subjects: memory and time of what the recipe function makes, and Megatron-Core's conditions on it."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.evaluate import subject_of
from primus_lint.subject import Subject
from tests.tune.recipes import subject as megatron

QWEN = {"recipe": "qwen.qwen3", "flavor": "qwen3_8b_pretrain_config"}
GIVEN = {
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "sequence_parallel": True,
    "micro_batch_size": 1, "global_batch_size": 64, "seq_length": 2048, "train_iters": 10, "lr_warmup_iters": 2,
}  # fmt: skip


def bridge(world_size: int | None = 8, gpu: str = "h100", **args: Any) -> Subject:
    request = {
        "framework": "megatron_bridge", "args": args, "env": None,
        "target": {"gpu": gpu, "world_size": world_size, "gpus_per_node": 8},
    }  # fmt: skip
    return subject_of(request)


def codes(subject: Subject) -> set[str]:
    return {finding.code for finding in subject.conditions if finding.severity == "error"}


def test_same_training_same_bytes_and_time() -> None:
    """Arguments written by hand for Megatron-LM, from the source of qwen3_8b_pretrain_config in megatron-bridge 0.3.0 (its
    provider leaves the activation and the rotary embedding unfused)."""
    made = bridge(**QWEN, **GIVEN)
    by_hand = megatron(
        "qwen3-8b", tensor_model_parallel_size=2, sequence_parallel=True, micro_batch_size=1, global_batch_size=64,
        seq_length=2048, max_position_embeddings=2048, make_vocab_size_divisible_by=1, cross_entropy_loss_fusion=True,
        cross_entropy_fusion_impl="te", overlap_grad_reduce=True, overlap_param_gather=True, ddp_average_in_collective=True,
        accumulate_allreduce_grads_in_fp32=True, bias_swiglu_fusion=False, apply_rope_fusion=False, hidden_dropout=0.0, attention_dropout=0.0, eval_iters=32, eval_interval=500,
        ckpt_format="torch_dist", transformer_impl="transformer_engine", manual_gc=True,
    )  # fmt: skip
    assert made.ledger is not None and by_hand.ledger is not None
    ours, theirs = made.ledger.ranks[0], by_hand.ledger.ranks[0]
    assert {name: item.bytes for name, item in ours.items.items()} == {
        name: item.bytes for name, item in theirs.items.items()
    }
    assert made.projection is not None and by_hand.projection is not None
    assert made.projection.iteration_s == pytest.approx(by_hand.projection.iteration_s, rel=1e-9)


def test_recipe_sets_degrees_itself() -> None:
    """Full fine-tuning of Llama 3.1 70B runs on TP 8 x PP 4, whatever the section asks for."""
    sft = {
        "recipe": "llama.llama3",
        "flavor": "llama31_70b_finetune_config",
        "peft": "none",
        "pipeline_model_parallel_size": 1,
    }
    assert "P901" in codes(bridge(8, **sft))
    assert "P901" not in codes(bridge(32, **sft))
    lora = {**sft, "peft": "lora"}
    assert "P901" not in codes(bridge(8, **lora))


def test_core_conditions_in_the_sections_keys() -> None:
    found = bridge(**{**QWEN, **GIVEN, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 8})
    layers = next(finding for finding in found.conditions if finding.code == "L101")
    assert layers.keys[0] == "pipeline_model_parallel_size"
    assert layers.section is found.section
    assert found.ledger is None


def test_a_condition_is_said_once() -> None:
    """Where Megatron-Bridge has a rule of its own, Megatron's of the same condition is silent."""
    assert codes(bridge(**{**QWEN, **GIVEN, "global_batch_size": 62})) == {"B906"}
    assert codes(bridge(**{**QWEN, **GIVEN, "tensor_model_parallel_size": 3})) == {"P901", "P902", "P104", "C102"}


def test_lora_trains_adapters_alone() -> None:
    recipe = {"recipe": "llama.llama3", "flavor": "llama31_8b_finetune_config"}
    lora, whole = bridge(gpu="mi300x", **recipe, peft="lora"), bridge(gpu="mi300x", **recipe, peft="none")
    assert lora.ledger is not None and whole.ledger is not None
    assert (
        lora.ledger.ranks[0].items["optimizer moment 1"].bytes * 20
        < whole.ledger.ranks[0].items["optimizer moment 1"].bytes
    )


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"recipe": "mamba.mamba2", "flavor": "mamba2_130m_pretrain_config"}, "memory and time of this recipe"),
        ({"recipe": "llama.llama3", "flavor": "llama31_8b_finetune_config", "peft": "dora"}, "DoRA"),
        ({**QWEN, "use_turbo_attention": True}, "Primus-Turbo's kernels"),
        ({**QWEN, "hf_path": "Qwen/Qwen3-14B"}, "another model than the recipe's"),
        ({**QWEN, "precision_config": "bf17_mixed"}, "a precision of an unknown name"),
    ],
)
def test_what_has_no_account_says_why(args: dict[str, Any], reason: str) -> None:
    found = bridge(**args)
    assert found.ledger is None
    assert any(reason in text for text in found.not_modelled), found.not_modelled
