"""The recipe of the live test: a small Llama in fp32, on two processes in three ways."""

from __future__ import annotations

from typing import Any

from primus_lint.ir.run import Run, Target
from primus_lint.lower.megatron import lower
from primus_lint.readers.batch import read_batch

SIZES: dict[str, Any] = {
    "num_layers": 4, "hidden_size": 512, "ffn_hidden_size": 1536, "num_attention_heads": 8, "num_query_groups": 4,
    "kv_channels": 64, "seq_length": 256, "vocab_size": 4096, "micro_batch_size": 2, "global_batch_size": 16,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "bf16": False, "use_distributed_optimizer": False, "overlap_grad_reduce": False, "overlap_param_gather": False,
    "gradient_accumulation_fusion": False, "sequence_parallel": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "one": {},
    "dp": {},
    "tp": {"tensor_model_parallel_size": 2},
    "pp": {"pipeline_model_parallel_size": 2},
}


def live_run(way: str, gpu: str | None, **changes: Any) -> Run:
    """The recipe of one way ("one": a single process) on a device."""
    args = {**SIZES, **PLAIN, **WAYS[way], **changes}
    document = read_batch({"framework": "megatron", "model": "llama3-8b", "args": args})
    world = 1 if way == "one" else 2
    lowered = lower(document.sections[0], Target(gpu, world, 2), "d3528a21", "megatron")
    assert lowered.run is not None
    return lowered.run
