"""Run: the typed recipe that every later pass reads.

All parts are frozen. A field holds a Python value for one recipe, or a broadcast NumPy array for a grid of recipes
(see `primus_lint.formula`); what is structural (stage table, recompute kind, schedule kind, dtypes, flags) is always a
plain Python value. Sizes are global (not per rank) unless the name says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ir.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.ir.layout import Stages
    from primus_lint.readers.document import Origin, Section

Int = Any  # int, or a broadcast integer array


class Target(Record):
    """Where the recipe runs. `gpu` is a name of hardware_db, None when unknown; `world_size` in GPUs."""

    gpu: str | None
    world_size: Int | None
    gpus_per_node: int = 8


class MultiLatentAttention(Record):
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_head_dim: int
    qk_pos_emb_head_dim: int
    v_head_dim: int


class MixtureOfExperts(Record):
    num_experts: int
    router_topk: int
    ffn_hidden_size: int  # of one expert
    shared_expert_intermediate_size: int  # 0: none
    shared_expert_overlap: bool
    shared_expert_gate: bool
    layer_is_moe: tuple[bool, ...]  # one entry per decoder layer
    grouped_gemm: bool
    legacy_grouped_gemm: bool
    dispatcher: str  # "allgather", "alltoall", "flex"
    flex_backend: str  # "deepep", "hybridep", ...; "" unless the dispatcher is flex
    router_dtype: str | None  # None: params dtype; "fp32", "fp64"
    router_fusion: bool
    permute_fusion: bool
    score_function: str
    load_balancing: tuple[str, ...]
    aux_loss: bool  # some auxiliary loss has a coefficient other than 0
    z_loss: bool
    expert_bias: bool
    capacity_factor: float | None
    pad_to_capacity: bool
    apply_probs_on_input: bool
    latent_size: int | None


class Model(Record):
    kind: str  # "gpt", "hybrid" (Mamba, GDN, KDA, ...), "diffusion": only "gpt" has a ledger today
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    kv_channels: int
    vocab_size: int | None  # None: it comes from a tokenizer file that is not at hand
    vocab_divisor: int  # the padded vocabulary is a multiple of this times tp
    gated: bool  # SwiGLU and kin: fc1 is twice as wide
    activation: str
    normalization: str  # "LayerNorm" or "RMSNorm"
    linear_bias: bool
    qkv_bias: bool
    qk_layernorm: bool
    tied_embeddings: bool
    position_embedding: str
    max_position_embeddings: int
    hidden_dropout: float
    attention_dropout: float
    mla: MultiLatentAttention | None
    moe: MixtureOfExperts | None
    mtp_num_layers: int
    attention_output_gate: bool
    window_size: tuple[int, int] | None

    def is_moe_layer(self, layer: int) -> bool:
        return self.moe is not None and self.moe.layer_is_moe[layer]


class Parallel(Record):
    """Degrees. `dp` = world/(tp*pp*cp) and `edp` = world/(etp*ep*pp); both None without a world size."""

    tp: Int
    pp: int
    vpp: int  # virtual stages per pipeline rank; 1 = none
    cp: Int
    ep: Int
    etp: Int
    dp: Int | None
    edp: Int | None
    sequence_parallel: Any
    cp_comm_type: str
    microbatch_group_size: Int  # of the interleaved schedule
    stages: Stages | None  # None when the split is illegal


class Batch(Record):
    micro_batch_size: Int
    global_batch_size: Int | None
    seq_length: Int
    num_microbatches: Int | None  # per data-parallel rank and step


class Schedule(Record):
    kind: str  # "1f1b", "interleaved", "zb-h1", "zb-heuristic", "zbv", "v-half", "v-min", "none" (pp = 1)
    overlap_p2p: bool
    overlap_moe_ep: bool
    runtime: str  # "megatron", "primus-pipeline", "zero-bubble"


class Recompute(Record):
    granularity: str | None  # None, "full", "selective"
    method: str | None  # "uniform", "block"
    num_layers: Int | None
    modules: tuple[str, ...]  # of selective recomputation; "torchtitan_op": by operation, as TorchTitan does
    layer_ids: tuple[int, ...] | None  # Primus's own list, MTP depths after the decoder layers
    distribute_saved_activations: bool
    fine_grained_offload: tuple[str, ...]
    cpu_offload_layers: int
    choices: tuple[tuple[str, ...], ...] = ()  # of a grid: lists of modules along its last axis, in place of `modules`
    early_stop: bool = False  # ends at the last tensor that the backward needs (torch's checkpoints without re-entry)

    @property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """The lists of modules of selective recomputation: one of a recipe, those of the last axis of a grid."""
        return self.choices or (self.modules,)


class Precision(Record):
    params_dtype: str  # "bf16", "fp16", "fp32"
    fp8: str | None  # "e4m3", "hybrid"
    fp8_recipe: str
    fp8_param: bool
    fp4: str | None
    fp4_recipe: str
    first_last_layers_bf16: bool
    bf16_layers_at_start: int
    bf16_layers_at_end: int
    fp32_residual: bool
    grads_dtype: str  # of the gradient buffer: "fp32" or "bf16"


class Optimizer(Record):
    name: str  # "adam", "sgd", "muon", "dist_muon", ...
    sharding: str  # "none", "distributed", "fsdp1" (flat parameters; no recipe of Megatron's), "fsdp2", "megatron-fsdp"
    fsdp_strategy: str  # of Megatron-FSDP: "no_shard", "optim", "optim_grads", "optim_grads_params"
    instances: Int
    replicate_degree: Int
    precision_aware: bool
    main_params_dtype: str
    main_grads_dtype: str
    exp_avg_dtype: str
    exp_avg_sq_dtype: str
    cpu_offload: bool
    offload_fraction: float
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    bucket_size: Int | None  # elements; None: the default rule
    num_buckets: int | None
    pad_buckets_for_nccl: bool
    gradient_accumulation_fusion: bool
    average_in_collective: bool


class Kernels(Record):
    """Which implementation of a module runs."""

    vendor: str  # "cuda", "rocm", "unknown"
    implementation: str  # "transformer_engine", "local", "inference_optimized"
    attention_backend: str  # "auto", "flash", "fused", "unfused", "local"
    flash_attn: int | None  # generation of the flash-attention library where the stack names it; None: today's
    turbo_attention: bool
    turbo_gemm: bool
    turbo_grouped_gemm: bool
    turbo_deepep: bool
    turbo_rms_norm: bool
    sync_free_moe_stage: int
    rope_fusion: bool
    bias_activation_fusion: bool
    bias_dropout_fusion: bool
    masked_softmax_fusion: bool
    cross_entropy_fusion: str | None  # None, "native", "te", "linear" (Primus's chunked head)
    tp_comm_overlap: bool
    delay_wgrad: bool
    cuda_graphs: str  # "none", "local", "transformer_engine", "full_iteration"
    fp8_input_store: bool
    torch_compile: bool
    # What no recipe of Megatron's says otherwise: an RMSNorm is one kernel; sharded inputs of column-parallel products are
    # kept as shards and gathered again for the weight gradient (TorchTitan keeps what it gathered)
    norm_fusion: bool = True
    gathers_again: bool = True


class Run(Record):
    """One recipe on one target. `section` keeps the resolved values with their origins; `args` the effective ones."""

    framework: str  # "megatron" or "primus-megatron"
    version: str
    target: Target
    model: Model
    parallel: Parallel
    batch: Batch
    schedule: Schedule
    recompute: Recompute
    precision: Precision
    optimizer: Optimizer
    kernels: Kernels
    args: Mapping[str, Any]
    section: Section
    not_modelled: tuple[str, ...]  # what the ledger cannot account for yet, in words

    @property
    def experts_in_16_bits(self) -> bool:
        """Whether the products of the experts stay in 16 bits where other layers run in FP8: the legacy grouped product, and
        Primus-Turbo's under delayed scaling, which its quantizer does not have."""
        moe, precision = self.model.moe, self.precision
        delayed = precision.fp4 is None and precision.fp8_recipe == "delayed"
        return moe is not None and (moe.legacy_grouped_gemm or (self.kernels.turbo_grouped_gemm and delayed))

    def origin(self, key: str) -> Origin | None:
        """Where a configuration key got its value; None when it is the framework's default."""
        return self.section.origin(key)


# IR field -> the configuration keys (Megatron names) it comes from. The first is the one to point at.
KEYS: dict[str, tuple[str, ...]] = {
    "model.num_layers": ("num_layers",),
    "model.hidden_size": ("hidden_size",),
    "model.ffn_hidden_size": ("ffn_hidden_size", "hidden_size", "swiglu"),
    "model.num_attention_heads": ("num_attention_heads",),
    "model.num_query_groups": ("num_query_groups", "group_query_attention", "num_attention_heads"),
    "model.kv_channels": ("kv_channels", "hidden_size", "num_attention_heads"),
    "model.vocab_size": ("vocab_size", "padded_vocab_size", "tokenizer_type", "mock_data"),
    "model.vocab_divisor": ("make_vocab_size_divisible_by",),
    "model.gated": ("swiglu",),
    "model.tied_embeddings": ("untie_embeddings_and_output_weights",),
    "model.mla": ("multi_latent_attention", "q_lora_rank", "kv_lora_rank"),
    "model.moe": ("num_experts", "moe_layer_freq", "moe_router_topk", "moe_ffn_hidden_size"),
    "model.mtp_num_layers": ("mtp_num_layers",),
    "parallel.tp": ("tensor_model_parallel_size",),
    "parallel.pp": ("pipeline_model_parallel_size",),
    "parallel.vpp": (
        "num_virtual_stages_per_pipeline_rank",
        "num_layers_per_virtual_pipeline_stage",
        "pipeline_model_parallel_layout",
    ),
    "parallel.cp": ("context_parallel_size",),
    "parallel.ep": ("expert_model_parallel_size",),
    "parallel.etp": ("expert_tensor_parallel_size", "tensor_model_parallel_size"),
    "parallel.sequence_parallel": ("sequence_parallel",),
    "parallel.stages": (
        "pipeline_model_parallel_layout",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "pipeline_model_parallel_size",
        "num_layers",
    ),
    "batch.micro_batch_size": ("micro_batch_size",),
    "batch.global_batch_size": ("global_batch_size",),
    "batch.seq_length": ("seq_length",),
    "recompute": ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"),
    "recompute.layer_ids": ("recompute_layer_ids",),
    "precision.fp8": ("fp8", "fp8_recipe"),
    "precision.grads_dtype": ("grad_reduce_in_bf16", "main_grads_dtype", "accumulate_allreduce_grads_in_fp32"),
    "optimizer.sharding": ("use_distributed_optimizer", "use_torch_fsdp2", "use_megatron_fsdp"),
    "kernels.cross_entropy_fusion": ("cross_entropy_loss_fusion", "cross_entropy_fusion_impl"),
}
