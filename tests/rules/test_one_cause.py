"""One wrong value is one finding, at its key; and no recipe that nothing can be computed from looks clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText

CLEAN = Path(__file__).resolve().parents[2] / "examples" / "configs" / "clean-llama3.1_8B.yaml"


def found(key: str, value: str) -> list[tuple[str, str]]:
    """Code and key of the findings of the clean recipe with one key changed."""
    lines = [line for line in CLEAN.read_text().splitlines() if not line.strip().startswith(f"{key}:")]
    place = next(number for number, line in enumerate(lines) if line.strip() == "overrides:")
    lines.insert(place + 1, f"      {key}: {value}")
    source = SourceText.from_text(str(CLEAN), "\n".join(lines) + "\n")
    checked = check_source(source, Options(gpu="mi300x", nodes=1))
    return [(finding.code, finding.keys[0]) for finding in checked.findings]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("tensor_model_parallel_size", "0", "P125"),
        ("tensor_model_parallel_size", "-1", "P125"),
        ("global_batch_size", "0", "B102"),
        ("global_batch_size", "-8", "B102"),
        ("micro_batch_size", "2.5", "K142"),
        ("seq_length", ".inf", "K142"),
        ("lr", ".nan", "K142"),
        ("lr", ".inf", "B313"),
        ("num_layers", "0", "L130"),
        ("hidden_size", "0", "P127"),
        ("hidden_size", "-4096", "P129"),
        ("num_attention_heads", "-8", "P130"),
        ("make_vocab_size_divisible_by", "-3", "K145"),
        ("sequence_parallel", "t", "K142"),
        ("seq_length", "8192.0", "K142"),
    ],
)
def test_one_cause_is_said_once(key: str, value: str, code: str) -> None:
    assert found(key, value) == [(code, key)]


def test_a_forgotten_dollar_is_said_once() -> None:
    assert found("tensor_model_parallel_size", "{TP:8}") == [("K142", "tensor_model_parallel_size.TP:8")]


@pytest.mark.parametrize("text", ["$TP", "${TP:8"])
def test_a_misspelt_variable_says_how_one_is_written(text: str) -> None:
    source = CLEAN.read_text().replace("tensor_model_parallel_size: ", f"tensor_model_parallel_size: {text} # ")
    checked = check_source(SourceText.from_text(str(CLEAN), source), Options(gpu="mi300x", nodes=1))
    (finding,) = checked.findings
    assert (finding.code, "a variable is written ${NAME}" in finding.message) == ("K142", True)


def test_no_batch_is_divided_over_a_grid_that_is_not_full() -> None:
    codes = [code for code, _ in found("tensor_model_parallel_size", "3")]
    assert codes[0] == "P101"
    assert "B103" not in codes  # 8 GPUs are no 2 replicas of 3


def test_what_a_missing_layer_would_say_is_not_guessed() -> None:
    text = CLEAN.read_text().replace("config: pre_trainer.yaml", "config: pretrain.yaml")
    checked = check_source(SourceText.from_text(str(CLEAN), text), Options(gpu="mi300x", nodes=1))
    (subject,) = checked.subjects
    assert [finding.name for finding in checked.findings] == ["preset-missing"]
    assert subject.ledger is None
    assert subject.projection is None
    assert "preset-missing" in subject.no_memory[0]


def test_a_step_that_leaves_the_bubble_large_is_told_and_is_no_fix() -> None:
    path = CLEAN.with_name("illegal-qwen2.5_7B.yaml")
    text = path.read_text().replace("pipeline_model_parallel_size: 8", "pipeline_model_parallel_size: 4")
    checked = check_source(SourceText.from_text(str(path), text), Options(gpu="mi300x", nodes=1))
    (finding,) = [finding for finding in checked.findings if finding.code == "T103"]
    assert "virtual stages a rank gain" in finding.message
    assert "and leave" in finding.message
    assert finding.fixes == ()


def test_an_unknown_position_embedding_is_said_once() -> None:
    assert [code for code, _ in found("position_embedding_type", "ropee")] == [
        "K144"
    ]  # which offers rope; P236 is told by it


@pytest.mark.parametrize("value", ["-1", "0", "99999999999999999999", "1.5"])
@pytest.mark.parametrize(
    "key",
    [
        "num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels", "ffn_hidden_size",
        "seq_length", "micro_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
        "context_parallel_size", "make_vocab_size_divisible_by",
    ],
)  # fmt: skip
def test_no_unusable_size_looks_clean(key: str, value: str) -> None:
    assert found(key, value)
