"""Recipes for the projection tests, lowered from batch requests like any other."""

from __future__ import annotations

from typing import Any

from primus_lint.ir.run import Run, Target
from primus_lint.lower.megatron import lower
from primus_lint.readers.batch import read_batch


def run(
    model: str | None, gpu: str | None = "h100", world_size: int | None = 8, gpus_per_node: int = 8, **args: Any
) -> Run:
    """A Megatron recipe of a public model (bf16, distributed optimizer, sequence 4096, micro-batch 1) plus `args`."""
    given: dict[str, Any] = {
        "bf16": True, "seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 64,
        "use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True, **args,
    }  # fmt: skip
    document = read_batch({"framework": "megatron", "model": model, "args": given})
    lowered = lower(document.sections[0], Target(gpu, world_size, gpus_per_node), "d3528a21", "megatron")
    assert lowered.run is not None
    return lowered.run
