"""Namespace -> Run for Megatron-LM and Primus's Megatron backend.

`build_run` is pure and works on arrays as well: the tuner calls it with the same names and broadcast axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ir.layout import folded
from primus_lint.ir.run import (
    Batch,
    Kernels,
    MixtureOfExperts,
    Model,
    MultiLatentAttention,
    Optimizer,
    Parallel,
    Precision,
    Recompute,
    Run,
    Schedule,
    Target,
)
from primus_lint.lower.megatron.kinds import calculable
from primus_lint.lower.megatron.versions import order
from primus_lint.schedules.names import PRIMUS_ALGORITHMS

if TYPE_CHECKING:
    from primus_lint.lower.megatron.namespace import Namespace
    from primus_lint.readers.document import Section


def build_run(v: Namespace, section: Section, target: Target, version: str, framework: str) -> Run | None:
    """The typed recipe, or None when a needed size is missing or of a wrong kind (the rules say which)."""
    try:
        if not calculable(v):
            return None
        return _build(v, section, target, version, framework)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError, IndexError, OverflowError):
        return None


def _build(v: Namespace, section: Section, target: Target, version: str, framework: str) -> Run | None:
    moe = _moe(v)
    if moe is not None and len(moe.layer_is_moe) != v["num_layers"]:
        return None
    implementation = v.get("transformer_impl") or "transformer_engine"
    act, gated = _activation(v)
    window = v.get("window_size")
    model = Model(
        kind=_kind(v),
        num_layers=v["num_layers"],
        hidden_size=v["hidden_size"],
        ffn_hidden_size=v["ffn"],
        num_attention_heads=v["heads"],
        num_query_groups=v["groups"],
        kv_channels=v["head_dim"],
        vocab_size=v["vocabulary"] if v.get("padded_vocab_size") is None else v["padded_vocab_size"],
        vocab_divisor=1 if v.get("padded_vocab_size") is not None else v["make_vocab_size_divisible_by"],
        gated=gated,
        activation=act,
        normalization=v["normalization"],
        linear_bias=bool(v["add_bias_linear"]),
        qkv_bias=bool(v["add_bias_linear"] or v.get("add_qkv_bias")),
        qk_layernorm=bool(v.get("qk_layernorm")),
        tied_embeddings=not v["untie_embeddings_and_output_weights"],
        position_embedding=v["position_embedding_type"],
        max_position_embeddings=v["max_position_embeddings"] or v["seq"],
        hidden_dropout=float(v["hidden_dropout"]),
        attention_dropout=float(v["attention_dropout"]),
        mla=MultiLatentAttention(
            v.get("q_lora_rank"), v["kv_lora_rank"], v["qk_head_dim"], v["qk_pos_emb_head_dim"], v["v_head_dim"]
        )
        if v["is_mla"]
        else None,
        moe=moe,
        mtp_num_layers=v["mtp"],
        attention_output_gate=bool(v.get("attention_output_gate")),
        window_size=tuple(window) if isinstance(window, (list, tuple)) and len(window) == 2 else None,
    )
    schedule = _schedule(v)
    comm = v.get("cp_comm_type")
    if isinstance(comm, list):
        comm = comm[0] if comm else None
    parallel = Parallel(
        tp=v["tp"],
        pp=v["pp"],
        vpp=v["vpp"],
        cp=v["cp"],
        ep=v["ep"],
        etp=v["etp"],
        dp=v["dp"],
        edp=v["edp"],
        sequence_parallel=_flag(v["sequence_parallel"]),
        cp_comm_type=str(comm or "p2p"),
        microbatch_group_size=v["vpp_group"],
        stages=None if v["stages"] is None else folded(v["stages"], schedule.kind),
    )
    batch = Batch(v["mbs"], v["gbs"], v["seq"], v["num_microbatches"])
    return Run(
        framework=framework,
        version=version,
        target=target,
        model=model,
        parallel=parallel,
        batch=batch,
        schedule=schedule,
        recompute=_recompute(v),
        precision=_precision(v, version),
        optimizer=_optimizer(v),
        kernels=_kernels(v, target, framework, implementation, moe),
        args=v,
        section=section,
        not_modelled=_not_modelled(v),
    )


def _kind(v: Namespace) -> str:
    if v.get("hybrid_layer_pattern") or v.get("hybrid_override_pattern") or v.get("is_hybrid_model"):
        return "hybrid"
    model_type = v.get("model_type") or "gpt"
    if model_type in ("mamba", "hybrid") or v.get("experimental_attention_variant"):
        return "hybrid"
    if isinstance(v.get("spec"), (str, list)) and v["spec"] not in ("local", ["local"]):
        return "hybrid"
    return "gpt" if model_type == "gpt" else str(model_type)


def _activation(v: Namespace) -> tuple[str, bool]:
    if v["swiglu"]:
        return "silu", True
    if v.get("quick_geglu"):
        return "quick_gelu", True
    if v.get("squared_relu"):
        return "squared_relu", False
    return "gelu", False


def _moe(v: Namespace) -> MixtureOfExperts | None:
    if v["num_experts"] is None:
        return None
    pattern = v["moe_layers"]
    if pattern is None:
        raise ValueError("illegal moe_layer_freq")
    balancing = v.get("moe_router_load_balancing_type") or "aux_loss"
    coefficient = v.get("moe_aux_loss_coeff") or 0.0
    coefficients = coefficient if isinstance(coefficient, list) else [coefficient]
    dispatcher = v.get("moe_token_dispatcher_type") or "allgather"
    backend = ""
    if dispatcher == "flex":
        backend = v.get("moe_flex_dispatcher_backend") or "deepep"
    return MixtureOfExperts(
        num_experts=v["num_experts"],
        router_topk=v["moe_router_topk"],
        ffn_hidden_size=v["moe_ffn"],
        shared_expert_intermediate_size=v.get("moe_shared_expert_intermediate_size") or 0,
        shared_expert_overlap=bool(v.get("moe_shared_expert_overlap")),
        shared_expert_gate=bool(v.get("moe_shared_expert_gate")),
        layer_is_moe=pattern,
        grouped_gemm=bool(v.get("moe_grouped_gemm")),
        legacy_grouped_gemm=bool(v.get("moe_use_legacy_grouped_gemm")),
        dispatcher=dispatcher,
        flex_backend=backend,
        router_dtype=v.get("moe_router_dtype"),
        router_fusion=bool(v.get("moe_router_fusion") or v.get("moe_use_fused_router_with_aux_score")),
        permute_fusion=bool(v.get("moe_permute_fusion")),
        score_function=v.get("moe_router_score_function") or "softmax",
        load_balancing=tuple(balancing) if isinstance(balancing, list) else (balancing,),
        aux_loss=any(bool(item) for item in coefficients),
        z_loss=bool(v.get("moe_z_loss_coeff")),
        expert_bias=bool(v.get("moe_router_enable_expert_bias")),
        capacity_factor=v.get("moe_expert_capacity_factor"),
        pad_to_capacity=bool(v.get("moe_pad_expert_input_to_capacity")),
        apply_probs_on_input=bool(v.get("moe_apply_probs_on_input")),
        latent_size=v.get("moe_latent_size"),
    )


def _schedule(v: Namespace) -> Schedule:
    pp, vpp = v["pp"], v["vpp"]
    runtime = "megatron"
    kind = "none" if pp == 1 else ("interleaved" if vpp > 1 else "1f1b")
    if v.get("patch_primus_pipeline"):
        runtime = "primus-pipeline"
        kind = "none" if pp == 1 else PRIMUS_ALGORITHMS.get(v.get("pp_algorithm") or "", kind)
    elif v.get("patch_zero_bubble"):
        runtime = "zero-bubble"
        if pp > 1:
            if v.get("zero_bubble_v_schedule") or v.get("enable_zero_bubble_v"):
                kind = "zbv"
            elif v.get("enable_zero_bubble"):
                kind = "zb-h1"
    # of the schedules that replace Megatron's, only Primus's zbv-formatted runs a forward beside a backward
    combined = runtime == "megatron" or kind == "none" or (runtime, kind) == ("primus-pipeline", "zbv")
    overlap = combined and bool(v.get("overlap_moe_expert_parallel_comm"))
    return Schedule(kind, bool(v["overlap_p2p_comm"]), overlap, runtime)


def _recompute(v: Namespace) -> Recompute:
    granularity = v["recompute_granularity"]
    modules: tuple[str, ...] = ()
    if granularity == "selective":
        listed = v.get("recompute_modules")
        modules = tuple(listed) if isinstance(listed, (list, tuple)) else ("core_attn",)
        if v.get("moe_layer_recompute") and "moe" not in modules:
            modules += ("moe",)
    elif v.get("moe_layer_recompute"):
        granularity, modules = "selective", ("moe",)
    ids = v.get("recompute_layer_ids")
    if isinstance(ids, str):
        ids = [int(item) for item in ids.split(",") if item.strip()]
    offload = v.get("offload_modules") if v.get("fine_grained_activation_offloading") else None
    return Recompute(
        granularity=granularity,
        method=v["recompute_method"] if granularity == "full" else None,
        num_layers=v["recompute_num_layers"] if granularity == "full" else None,
        modules=modules,
        layer_ids=tuple(ids) if isinstance(ids, (list, tuple)) and granularity == "full" else None,
        distribute_saved_activations=bool(v.get("distribute_saved_activations")),
        fine_grained_offload=tuple(offload) if isinstance(offload, (list, tuple)) else (),
        cpu_offload_layers=v.get("cpu_offloading_num_layers") or 0,
    )


def _fsdp_gradients(v: Namespace, params: str, version: str) -> str:
    """Dtype of Megatron-FSDP's gradient buffers: up to Megatron-Core 0.18 accumulation in fp32, which bf16 switches on, goes
    before what is asked for, and 0.16 asks nothing else (`FullyShardedDataParallel` of `mcore_fsdp_adapter`)."""
    if order(version) < order("d98e8a64") and v.get("accumulate_allreduce_grads_in_fp32"):
        return "fp32"
    asked: str = v.get("megatron_fsdp_main_grads_dtype") or "auto"
    return params if asked == "auto" or version == "core-0.16.1" else asked


def _precision(v: Namespace, version: str) -> Precision:
    params = "bf16" if v["bf16"] else ("fp16" if v["fp16"] else "fp32")
    main_grads = v.get("main_grads_dtype") or "fp32"
    reduced = params == "bf16" and (v.get("grad_reduce_in_bf16") or main_grads == "bf16")
    if v.get("use_torch_fsdp2"):
        grads = params  # wrapped without a precision policy (`TorchFullyShardedDataParallel`)
    elif v.get("use_megatron_fsdp"):
        grads = _fsdp_gradients(v, params, version)
    elif v.get("accumulate_allreduce_grads_in_fp32") or params == "fp32":
        grads = "fp32"
    elif reduced or params == "fp16":
        grads = params
    else:
        grads = "fp32"
    return Precision(
        params_dtype=params,
        fp8=v.get("fp8") or None,
        fp8_recipe=v.get("fp8_recipe") or "delayed",
        fp8_param=bool(v.get("fp8_param_gather")),
        fp4=v.get("fp4") or None,
        fp4_recipe=v.get("fp4_recipe") or "nvfp4",
        first_last_layers_bf16=bool(v.get("first_last_layers_bf16")),
        bf16_layers_at_start=v.get("num_layers_at_start_in_bf16") or 0,
        bf16_layers_at_end=v.get("num_layers_at_end_in_bf16") or 0,
        fp32_residual=bool(v.get("fp32_residual_connection")),
        grads_dtype=grads,
    )


def _optimizer(v: Namespace) -> Optimizer:
    if v.get("use_torch_fsdp2"):
        sharding = "fsdp2"
    elif v.get("use_megatron_fsdp"):
        sharding = "megatron-fsdp"
    elif v.get("use_distributed_optimizer"):
        sharding = "distributed"
    else:
        sharding = "none"
    return Optimizer(
        name=v.get("optimizer") or "adam",
        sharding=sharding,
        fsdp_strategy=v.get("data_parallel_sharding_strategy") or "no_shard",
        instances=v.get("num_distributed_optimizer_instances") or 1,
        replicate_degree=v.get("data_parallel_replicate_degree") or 1,
        precision_aware=bool(v.get("use_precision_aware_optimizer")),
        main_params_dtype=v.get("main_params_dtype") or "fp32",
        main_grads_dtype=v.get("main_grads_dtype") or "fp32",
        exp_avg_dtype=v.get("exp_avg_dtype") or "fp32",
        exp_avg_sq_dtype=v.get("exp_avg_sq_dtype") or "fp32",
        cpu_offload=bool(v.get("optimizer_cpu_offload")),
        offload_fraction=float(v.get("optimizer_offload_fraction") or 0.0),
        overlap_grad_reduce=_flag(v["overlap_grad_reduce"]),
        overlap_param_gather=_flag(v["overlap_param_gather"]),
        bucket_size=v.get("ddp_bucket_size"),
        num_buckets=v.get("ddp_num_buckets"),
        pad_buckets_for_nccl=bool(v.get("ddp_pad_buckets_for_high_nccl_busbw")),
        gradient_accumulation_fusion=bool(v["gradient_accumulation_fusion"]),
        average_in_collective=bool(v.get("ddp_average_in_collective")),
    )


def _flag(value: Any) -> Any:
    """A switch as a bool, or an array of switches (on a grid) as it is."""
    return value if hasattr(value, "dtype") else bool(value)


def vendor_of(gpu: str | None, framework: str) -> str:
    """ "rocm" for AMD devices (and for Primus when no device is named), else "cuda"."""
    if gpu is None:
        return "rocm" if framework == "primus-megatron" else "cuda"
    return "rocm" if gpu.lower().startswith("mi") else "cuda"


def _kernels(
    v: Namespace, target: Target, framework: str, implementation: str, moe: MixtureOfExperts | None
) -> Kernels:
    turbo = bool(v.get("enable_primus_turbo")) and framework == "primus-megatron"
    fusion: str | None = None
    if v.get("enable_fused_linear_ce") and framework == "primus-megatron":
        fusion = "linear"
    elif v.get("cross_entropy_loss_fusion"):
        fusion = v.get("cross_entropy_fusion_impl") or "native"
    gated = v["swiglu"] or v.get("quick_geglu")
    fused_activation = v.get("bias_swiglu_fusion") if gated else v.get("bias_gelu_fusion")
    return Kernels(
        vendor=vendor_of(target.gpu, framework),
        implementation=implementation,
        attention_backend=str(v.get("attention_backend") or "auto"),
        flash_attn=None if v.get("flash_attn") is None else v["flash_attn"] // 1000,
        turbo_attention=turbo and bool(v.get("use_turbo_attention")),
        turbo_gemm=turbo and bool(v.get("use_turbo_gemm")),
        turbo_grouped_gemm=turbo and bool(v.get("use_turbo_grouped_gemm")) and moe is not None and moe.grouped_gemm,
        turbo_deepep=turbo and bool(v.get("use_turbo_deepep")),
        turbo_rms_norm=turbo and bool(v.get("use_turbo_rms_norm")),
        sync_free_moe_stage=(v.get("turbo_sync_free_moe_stage") or 0) if turbo else 0,
        rope_fusion=bool(v.get("apply_rope_fusion")),
        bias_activation_fusion=bool(fused_activation),
        bias_dropout_fusion=bool(v.get("bias_dropout_fusion")),
        masked_softmax_fusion=bool(v.get("masked_softmax_fusion")),
        cross_entropy_fusion=fusion,
        tp_comm_overlap=_flag(v.get("tp_comm_overlap")),
        delay_wgrad=bool(v.get("delay_wgrad_compute")),
        cuda_graphs=str(v.get("cuda_graph_impl") or "none"),
        fp8_input_store=bool(v.get("activation_func_fp8_input_store")),
        torch_compile=not v.get("disable_jit_fuser"),
    )


def _not_modelled(v: Namespace) -> tuple[str, ...]:
    """Settings that the ledger or the projection cannot account for yet, each in a few words."""
    out = []
    if _kind(v) not in ("gpt", "hybrid"):
        out.append(f"a {_kind(v)} model: no memory or time")
    elif _kind(v) != "gpt":
        out.append(f"{_kind(v)} layers (Mamba, GDN, KDA, DSA, diffusion, custom spec): no memory or time")
    if v.get("heterogeneous_layers_config_path") or v.get("heterogeneous_layers_config_encoded_json"):
        out.append("heterogeneous layers: every layer is taken as the first")
    if v["vocab_size"] is None and v.get("padded_vocab_size") is None:
        known = v["tokenizer_vocabulary"]
        if known is None:
            out.append("the vocabulary size is not known: give it with --set vocab_size=N")
        elif not known.exact:
            out.append(f"vocabulary size: at most {known.size:,}, the rows of the published {known.source}")
    if v.get("rampup_batch_size"):
        out.append("batch ramp-up: timed at the final batch size")
    if v.get("cpu_offloading_num_layers") or v.get("fine_grained_activation_offloading"):
        out.append("offloaded activations: their transfers are not timed")
    if v.get("cpu_offloading_num_layers") and v.get("cpu_offloading_weights"):
        out.append("weights of offloaded layers (cpu_offloading_weights): accounted as on the device")
    if (v.get("cuda_graph_impl") or "none") not in ("none", "transformer_engine"):
        out.append("CUDA graphs of Megatron's own making: their buffers are read from its source, not measured")
    if v.get("tensor_parallel_num_weight_shards"):
        out.append("weight sharding over tensor ranks (GTP): not accounted")
    if v.get("offload") and v.get("offload_ops"):
        out.append("Primus's own activation offloading (offload_ops): the account is without it")
    if v.get("enable_mhc_connections"):
        out.append("hyper-connections: not accounted")
    return tuple(out)
