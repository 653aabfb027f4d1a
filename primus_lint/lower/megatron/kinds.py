"""Whether a recipe's values are of a kind that can be calculated with. The key rules say what is wrong with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.lower.megatron.namespace import Namespace

# Sizes without which there is no recipe: positive whole numbers (or arrays of them).
SIZES = (
    "num_layers", "hidden_size", "num_attention_heads", "groups", "head_dim", "ffn", "tp", "pp", "cp", "ep", "etp", "vpp",
    "mbs", "seq", "vpp_group", "make_vocab_size_divisible_by",
)  # fmt: skip
# Numbers that may be unset. As text (`1e3`, "2"), lists or dates they leave no recipe.
NUMBERS = (
    "cpu_offloading_num_layers", "hidden_dropout", "attention_dropout", "optimizer_offload_fraction", "moe_latent_size",
    "max_position_embeddings", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_expert_capacity_factor",
    "num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage",
    "microbatch_group_size_per_vp_stage",
    "data_parallel_replicate_degree", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim",
    "turbo_sync_free_moe_stage", "turbo_deepep_num_cu", "ffn_hidden_size", "kv_channels",
)  # fmt: skip
WHOLE = (
    "ddp_bucket_size",
    "ddp_num_buckets",
    "mtp_num_layers",
    "num_distributed_optimizer_instances",
    "vocab_size",
    "num_experts",
    "global_batch_size",
    "recompute_num_layers",
    "moe_router_topk",
)
TEXTS = (
    "moe_router_dtype", "recompute_granularity", "recompute_method", "fp8", "fp8_recipe", "fp4", "fp4_recipe",
    "normalization", "position_embedding_type", "optimizer", "transformer_impl", "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend", "cross_entropy_fusion_impl", "cuda_graph_impl", "data_parallel_sharding_strategy",
    "moe_router_score_function", "pp_algorithm", "model_type",
)  # fmt: skip
DTYPES = ("main_params_dtype", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
LARGEST = 1 << 40  # nothing that is trained is larger; larger numbers only cost time


def calculable(v: Namespace) -> bool:
    """Whether a typed recipe can be built. Raises KeyError or TypeError when a size is missing altogether."""
    if any(not _is_whole(v[name]) or (isinstance(v[name], int) and not 0 < v[name] < LARGEST) for name in SIZES):
        return False
    if any(v.get(name) is not None and not _is_whole(v[name]) for name in WHOLE):
        return False
    if any(v.get(name) is not None and not _is_number(v[name]) for name in NUMBERS):
        return False
    if any(v.get(name) is not None and not isinstance(v[name], str) for name in TEXTS):
        return False
    return all(v.get(name) in (None, "fp32", "fp16", "bf16", "fp8") for name in DTYPES)


def _is_whole(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or hasattr(value, "dtype")


def _is_number(value: Any) -> bool:
    return (isinstance(value, (int, float)) and abs(value) < LARGEST) or hasattr(value, "dtype")
