"""Tuning of Megatron-Bridge recipes: over the keys that the recipe function takes, written in its names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText
from primus_lint.tune.fix import FixResult, fix_source
from primus_lint.tune.propose import Rules

HEAD = """\
work_group: g
user_name: u
exp_name: e
workspace: ./output
modules:
  {module}:
    framework: megatron_bridge
    config: {config}
    model: {model}
    overrides:
"""
PRETRAIN = {"module": "pre_trainer", "config": "pretrain_trainer.yaml"}
FINETUNE = {"module": "post_trainer", "config": "sft_trainer.yaml"}


def fixed(folder: Path, head: dict[str, str], overrides: dict[str, Any], gpu: str, world_size: int) -> FixResult:
    text = HEAD.format(**head) + "".join(f"      {key}: {value}\n" for key, value in overrides.items())
    source = SourceText.from_bytes(str(folder / "recipe.yaml"), text.encode())
    return fix_source(source, _options(gpu, world_size), None, Rules())


QWEN = {
    "flavor": "qwen3_8b_pretrain_config", "dataset": "null", "mock": "true", "train_iters": 50, "lr_warmup_iters": 2,
    "global_batch_size": 128, "micro_batch_size": 16, "seq_length": 2048, "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "sequence_parallel": "false",
}  # fmt: skip


def test_a_recipe_that_does_not_fit_is_rewritten(tmp_path: Path) -> None:
    result = fixed(tmp_path, {**PRETRAIN, "model": "qwen3_8b.yaml"}, QWEN, "mi300x", 8)
    assert result.changed and result.certificate is not None and result.certificate.complete
    assert result.before.subjects[0].fits is False and result.after.subjects[0].fits is True
    assert not [finding for finding in result.after.findings if finding.severity == "error"]


@pytest.mark.parametrize("world_size", [16, 64])
def test_what_is_written_stands_in_the_sections_names(tmp_path: Path, world_size: int) -> None:
    """Every changed key is an argument of the function: none is dropped, and none is Megatron's."""
    asked = {**QWEN, "flavor": "qwen3_32b_pretrain_config", "micro_batch_size": 1, "tensor_model_parallel_size": 8}
    result = fixed(tmp_path, {**PRETRAIN, "model": "qwen3_32b.yaml"}, asked, "mi300x", world_size)
    assert result.changed
    assert not [finding for finding in result.after.findings if finding.code in ("K101", "K161", "K164")]
    proposal = result.proposals[0]
    assert result.candidate is not None and set(result.candidate.changes) <= set(proposal.names)
    again = check_source(result.source, _options("mi300x", world_size), None).subjects[0]
    assert again.projection is not None and float(again.projection.iteration_s) == result.candidate.iteration_s


def test_what_the_function_fixes_stays(tmp_path: Path) -> None:
    """Full fine-tuning of Llama 3.1 70B runs on TP 8 x PP 4: of its degrees nothing can be written."""
    asked = {"peft": "none", "train_iters": 10, "global_batch_size": 128, "micro_batch_size": 1, "seq_length": 2048}
    result = fixed(tmp_path, {**FINETUNE, "model": "llama31_70b.yaml"}, asked, "mi355x", 32)
    assert result.candidate is not None and set(result.candidate.changes) == {"micro_batch_size"}


def test_packed_sequences_go_one_at_a_time(tmp_path: Path) -> None:
    asked = {
        "peft": "lora",
        "packed_sequence": "true",
        "train_iters": 10,
        "global_batch_size": 128,
        "micro_batch_size": 1,
    }
    result = fixed(tmp_path, {**FINETUNE, "model": "llama3_8b.yaml"}, asked, "mi355x", 8)
    assert not result.changed


def _options(gpu: str, world_size: int) -> Options:
    options = Options()
    options.gpu, options.world_size, options.gpus_per_node = gpu, world_size, 8
    return options


def test_sequence_parallelism_goes_with_the_tensor_degree(tmp_path: Path) -> None:
    """Megatron-LM's check switches it off at TP 1; in Megatron-Bridge the model's configuration raises."""
    asked = {**QWEN, "micro_batch_size": 4, "tensor_model_parallel_size": 8, "sequence_parallel": "true"}
    result = fixed(tmp_path, {**PRETRAIN, "model": "qwen3_8b.yaml"}, asked, "mi300x", 8)
    written = result.after.subjects[0].section
    assert written.get("tensor_model_parallel_size") == 1 and written.get("sequence_parallel") is False
    assert not [finding for finding in result.after.findings if finding.severity == "error"]
