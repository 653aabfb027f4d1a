"""Names of the keys that the search changes, in the groups that change together."""

from __future__ import annotations

TP = "tensor_model_parallel_size"
PP = "pipeline_model_parallel_size"
CP = "context_parallel_size"
EP = "expert_model_parallel_size"
ETP = "expert_tensor_parallel_size"
MBS = "micro_batch_size"
SP = "sequence_parallel"
TP_OVERLAP = "tp_comm_overlap"
GRAD_OVERLAP = "overlap_grad_reduce"
PARAM_OVERLAP = "overlap_param_gather"
SHARDED = "use_distributed_optimizer"
FSDP2 = "use_torch_fsdp2"
MEGATRON_FSDP = "use_megatron_fsdp"
STRATEGY = "data_parallel_sharding_strategy"
FUSION = "gradient_accumulation_fusion"
FORMAT = "ckpt_format"
BF16_REDUCE = "grad_reduce_in_bf16"
CP_TYPE = "cp_comm_type"
EP_OVERLAP = "overlap_moe_expert_parallel_comm"
SHARED_OVERLAP = "moe_shared_expert_overlap"
DISPATCHER = "moe_token_dispatcher_type"
VPP = "num_virtual_stages_per_pipeline_rank"
PIPELINE_KEYS = ("patch_primus_pipeline", "pp_algorithm")  # whether Primus's own pipeline runs, and which
LAYOUT = "pipeline_model_parallel_layout"
FIRST = "decoder_first_pipeline_num_layers"
LAST = "decoder_last_pipeline_num_layers"

COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
SPLIT_KEYS = (VPP, "num_layers_per_virtual_pipeline_stage", LAYOUT, FIRST, LAST, *COUNTED)
NUMBER = "recompute_num_layers"
RECOMPUTE_KEYS = ("recompute_granularity", "recompute_method", NUMBER, "recompute_modules", "recompute_layer_ids")
EXPERT_KEYS = (DISPATCHER, EP_OVERLAP, SHARED_OVERLAP)
GEMM_KEYS = ("moe_grouped_gemm", "moe_use_legacy_grouped_gemm", "use_turbo_grouped_gemm")
DEEPEP_KEYS = (DISPATCHER, "moe_enable_deepep", "moe_flex_dispatcher_backend", "use_turbo_deepep", "moe_router_dtype")
FP8_KEYS = ("fp8", "fp8_recipe")
LOSS_KEYS = ("cross_entropy_loss_fusion", "cross_entropy_fusion_impl")
STATE_KEYS = (
    "use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype",
    BF16_REDUCE,
)  # fmt: skip
SHARDING_KEYS = (SHARDED, FSDP2, MEGATRON_FSDP, STRATEGY)
FOLLOWING = (FUSION, FORMAT)  # change only together with the sharding that wants them so

DEGREES = (TP, PP, CP, EP, ETP)
# Every key that the search may change, each once.
TUNED = tuple(
    dict.fromkeys(
        (
            *DEGREES, MBS, *SPLIT_KEYS, *RECOMPUTE_KEYS, SP, TP_OVERLAP, GRAD_OVERLAP, PARAM_OVERLAP, *SHARDING_KEYS, CP_TYPE, *PIPELINE_KEYS,
            *EXPERT_KEYS, "moe_permute_fusion", *GEMM_KEYS, *DEEPEP_KEYS, *FP8_KEYS, *LOSS_KEYS, *STATE_KEYS,
        )
    )
)  # fmt: skip
