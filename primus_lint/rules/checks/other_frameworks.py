"""Keys of one framework in the section of another: who knows them, and what the same setting is called here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table
from primus_lint.rules.checks.key_facts import name_of

if TYPE_CHECKING:
    from primus_lint.subject import Subject

MEGATRON, TITAN, MAXTEXT = "Megatron", "TorchTitan", "MaxText"
# One setting by its names: Megatron (Megatron-Bridge takes them as well), TorchTitan, MaxText.
SAME = (
    ("micro_batch_size", "training.local_batch_size", "per_device_batch_size"),
    ("global_batch_size", "training.global_batch_size", None),
    ("seq_length", "training.seq_len", "max_target_length"),
    ("train_iters", "training.steps", "steps"),
    ("lr", "optimizer.lr", "learning_rate"),
    ("weight_decay", "optimizer.weight_decay", "adam_weight_decay"),
    ("lr_warmup_iters", "lr_scheduler.warmup_steps", None),
    ("clip_grad", "training.max_norm", "gradient_clipping_threshold"),
    ("tensor_model_parallel_size", "parallelism.tensor_parallel_degree", "ici_tensor_parallelism"),
    ("pipeline_model_parallel_size", "parallelism.pipeline_parallel_degree", "ici_pipeline_parallelism"),
    ("context_parallel_size", "parallelism.context_parallel_degree", "ici_context_parallelism"),
    ("expert_model_parallel_size", "parallelism.expert_parallel_degree", "ici_expert_parallelism"),
    ("recompute_granularity", "activation_checkpoint.mode", "remat_policy"),
    ("num_layers", None, "base_num_decoder_layers"),
    ("hidden_size", None, "base_emb_dim"),
    ("num_attention_heads", None, "base_num_query_heads"),
    ("num_query_groups", None, "base_num_kv_heads"),
    ("ffn_hidden_size", None, "base_mlp_dim"),
    ("log_interval", "metrics.log_freq", "log_period"),
    ("save_interval", "checkpoint.interval", "checkpoint_period"),
)
COLUMN = {"primus-megatron": 0, "megatron_bridge": 0, "torchtitan": 1, "maxtext": 2}


def owner(key: str, subject: Subject) -> tuple[str, str | None] | None:
    """(another framework that has the key, the key of the section's own framework for the same setting); None when no
    other one has it."""
    here = COLUMN[name_of(subject)]
    leaf = key.rpartition(".")[2]
    for column, label in enumerate((MEGATRON, TITAN, MAXTEXT)):
        if column == here:
            continue
        for row in SAME:
            if row[column] is not None and leaf == str(row[column]).rpartition(".")[2]:
                return label, row[here]
    for column, label, name in ((0, MEGATRON, "primus-megatron"), (2, MAXTEXT, "maxtext")):
        if column != here and leaf in table(name)["keys"]:
            return label, None
    if here != 1 and key in table("torchtitan")["keys"]:
        return TITAN, None
    return None


def homes(key: str, keys: dict[str, dict[str, Any]]) -> list[str]:
    """The dotted keys that end like a key in the wrong section; [] when they are too many to say which was meant."""
    leaf = key.rpartition(".")[2]
    found = [name for name in keys if "." in name and name.rpartition(".")[2] == leaf and "scope" not in keys[name]]
    return sorted(found) if len(found) <= 2 else []
