"""Defaults of TorchTitan's configuration by version, as dotted keys."""

from __future__ import annotations

from functools import cache
from typing import Any

from primus_lint.readers import tables

# Keys that b5bcd76c has and v0.2.2 has not, with their defaults (torchtitan/config/configs.py). The batch is counted in
# tokens there; a key of the other version is None.
HEAD: dict[str, Any] = {
    "training.num_tokens_per_microbatch_per_dp_rank": 16384,
    "training.num_tokens_per_train_step": -1,
    "training.max_context_length": 2048,
    "training.disable_cuda_graphs": False,
    "parallelism.num_pp_microbatches": 1,
    "parallelism.enable_sequence_parallel": True,
    "parallelism.enable_fsdp_symm_mem": False,
    "parallelism.spmd_backend": "spmd_types",
    "parallelism.context_parallel_ptrr_mask_key": None,
    "model.attn_backend": None,  # of the flavor
}
# Keys of v0.2.2 that b5bcd76c no longer has.
GONE = (
    "training.local_batch_size", "training.global_batch_size", "training.seq_len",
    "parallelism.pipeline_parallel_microbatch_size", "parallelism.expert_tensor_parallel_degree",
    "parallelism.context_parallel_rotate_method", "activation_checkpoint.selective_ac_option",
)  # fmt: skip


@cache
def defaults(version: str) -> dict[str, Any]:
    """Dotted key -> default; None for a key of the other version."""
    table = {key: value for key, value in tables.defaults("torchtitan").items() if "." in key}
    if version == "b5bcd76c":
        return {**table, **HEAD, **dict.fromkeys(GONE)}
    return {**table, **dict.fromkeys(HEAD)}
