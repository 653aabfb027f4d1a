"""Whether a recipe's values are of a kind that can be calculated with. The key rules say what is wrong with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.namespace import WRONG_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    "turbo_sync_free_moe_stage", "turbo_deepep_num_cu", "ffn_hidden_size", "kv_channels", "rotary_percent",
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
    "num_workers",
    "padded_vocab_size",
)
POSITIVE = ("num_distributed_optimizer_instances",)
TEXTS = (
    "moe_router_dtype", "recompute_granularity", "recompute_method", "fp8", "fp8_recipe", "fp4", "fp4_recipe",
    "normalization", "position_embedding_type", "optimizer", "transformer_impl", "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend", "cross_entropy_fusion_impl", "cuda_graph_impl", "data_parallel_sharding_strategy",
    "moe_router_score_function", "pp_algorithm", "model_type",
)  # fmt: skip
DTYPES = ("main_params_dtype", "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
LARGEST = 1 << 40  # nothing that is trained is larger; larger numbers only cost time


def calculable(v: Namespace) -> bool:
    """Whether a typed recipe can be built."""
    return not any(True for _ in _unusable(v))


def unusable(v: Namespace) -> dict[str, Any]:
    """Key -> value of what no typed recipe can be built from; None where a needed size is not given."""
    return {v.keys_of.get(name, (name,))[0]: value for name, value in _unusable(v)}


def _unusable(v: Namespace) -> Iterator[tuple[str, Any]]:
    for name in SIZES:
        try:
            value = v[name]
        except WRONG_KIND:  # derived from another that is not usable
            value = None
        if not _is_whole(value) or (isinstance(value, int) and not 0 < value < LARGEST):
            yield name, value
    for names, usable in (
        (WHOLE, _is_whole),
        (POSITIVE, _is_positive),
        (NUMBERS, _is_number),
        (TEXTS, _is_text),
        (DTYPES, _is_dtype),
    ):
        for name in names:
            value = v.get(name)
            if value is not None and not usable(value):
                yield name, value
    if v.get("num_experts") and v.get("moe_router_topk") is None:
        yield "moe_router_topk", None


def _is_whole(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or hasattr(value, "dtype")


def _is_positive(value: Any) -> bool:
    return not isinstance(value, int) or value > 0


def _is_number(value: Any) -> bool:
    return (isinstance(value, (int, float)) and abs(value) < LARGEST) or hasattr(value, "dtype")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_dtype(value: Any) -> bool:
    return value in ("fp32", "fp16", "bf16", "fp8")
