"""The cheapest edits: each really clears the limit at the price it names, and no cheaper single step does."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.evaluate import evaluate, subject_of
from primus_lint.tune.cheapest import _moves, cheapest
from primus_lint.tune.safety import SAFE
from primus_lint.tune.what_if import what_if

TRAIN = {
    "train_iters": 500, "lr": 1.0e-4, "min_lr": 1.0e-5, "bf16": True, "mock_data": True, "use_distributed_optimizer": True,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "micro_batch_size": 2, "seq_length": 8192, "global_batch_size": 256,
    "max_position_embeddings": 131072, "tokenizer_type": "NullTokenizer",
}  # fmt: skip


def request(model: str, args: dict[str, Any], gpu: str, world: int) -> dict[str, Any]:
    return {
        "id": "x", "framework": "megatron", "model": model, "args": {**TRAIN, **args}, "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        "target": {"gpu": gpu, "world_size": world, "gpus_per_node": 8},
    }  # fmt: skip


CASES = [
    request("llama3.1-70b", {"tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 4, "sequence_parallel": True,
                             "num_virtual_stages_per_pipeline_rank": 4}, "h100", 64),
    request("llama3.1-8b", {"micro_batch_size": 4}, "h100", 16),
    request("qwen3-30b-a3b", {"expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1, "moe_grouped_gemm": True,
                              "moe_token_dispatcher_type": "alltoall"}, "h100", 32),
]  # fmt: skip


@pytest.mark.parametrize("asked", CASES, ids=lambda asked: str(asked["model"]))
def test_edits_clear_the_limit_at_their_price(asked: dict[str, Any]) -> None:
    subject = subject_of(asked)
    capacity = subject.accelerator.visible_hbm_bytes  # type: ignore[union-attr]
    assert subject.ledger is not None and subject.ledger.fits(capacity) is not True
    edits = cheapest(subject)
    assert len(edits) == 3
    now = evaluate(asked)["time"]["tokens_per_s_per_gpu"]
    for edit in edits:
        then = evaluate({**asked, "args": {**asked["args"], **edit.changes}})
        assert then["legal"] and then["memory"]["fits"] is True
        assert max(rank["device_high_bytes"] for rank in then["memory"]["ranks"]) == edit.high_bytes
        assert then["time"]["tokens_per_s_per_gpu"] / now - 1 == pytest.approx(edit.gain, abs=1e-9)
    safe = [edit for edit in edits if edit.safety == SAFE]
    gains = [edit.gain for edit in safe if edit.gain is not None]
    assert len(gains) == len(safe) and gains == sorted(gains, reverse=True)
    best = gains[0]
    for _, changes in _moves(subject):  # nothing cheaper among the single steps
        other = what_if(subject, changes)
        if other is not None and other.fits and other.gain > best + 1e-9:
            from primus_lint.tune.safety import class_of_all

            given = dict(subject.lowered.namespace.given)
            assert subject.run is not None
            assert class_of_all(changes.items(), given, subject.run.model) != SAFE or len(safe[0].changes) > 1


def test_nothing_is_offered_where_nothing_clears_it() -> None:
    subject = subject_of(request("llama3.1-405b", {"micro_batch_size": 1, "global_batch_size": 8}, "h100", 8))
    assert cheapest(subject) == []
