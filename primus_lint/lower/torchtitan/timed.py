"""A TorchTitan recipe as the recipe of Megatron that does the same products and collectives, for its time.

A step is priced by shapes, kernels and messages; those of a TorchTitan model are expressible as Megatron's: FSDP2 (HSDP,
replicas), tensor parallelism with sequence parallelism, expert and context parallelism, 1F1B stages. Memory is not: it has a
ledger of its own. Follows torchtitan v0.2.2 (distributed/activation_checkpoint.py, distributed/pipeline_parallel.py,
models/*/infra/parallelize.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div

if TYPE_CHECKING:
    from primus_lint.ir.run import Run, Target
    from primus_lint.lower.megatron.namespace import Namespace

SCHEDULES = ("1f1b", "gpipe", "interleaved1f1b")  # GPipe idles as long as 1F1B does


def reasons(v: Namespace) -> tuple[str, ...]:
    """Why a recipe is not projected; empty when it is."""
    from primus_lint.ledger.titan.sizes import FAMILIES, unmodelled

    if "model.n_layers" not in v or v["architecture"] not in FAMILIES:
        known = ", ".join(FAMILIES)
        return (f"torchtitan: no time model of {v['model.name']} {v['model.flavor']}, of {known} only",)
    converters = [name for name in v["converters"] if "quantize" in name]
    found = (
        (f"the {v['parallelism.pipeline_parallel_schedule']} schedule", v["pp"] > 1 and v["schedule"] not in SCHEDULES),
        ("stages by module names", v["parallelism.module_fqns_per_model_part"] is not None),
        ("quantized layers other than float8 with tensorwise scales", bool(converters) and not _float8(v)),
        ("experts one by one", bool(v["experts"]) and not v["model.moe_args.use_grouped_mm"]),
        *unmodelled(v),
    )
    return tuple(f"torchtitan: time with {what}" for what, present in found if present)


def notes(v: Namespace) -> tuple[str, ...]:
    """What the time takes for something else."""
    from primus_lint.ledger.titan.sizes import float8_experts

    out = ["torchtitan: time is that of the same products and collectives in Megatron"]
    if _float8(v) and _turbo(v) and v.get("primus_turbo.use_turbo_float8_linear"):
        out.append("torchtitan: Primus-Turbo's float8 layers are timed as those with tensorwise scales")
    if v["experts"]:
        if not v["debug.moe_force_load_balance"]:
            out.append("torchtitan: time is that of balanced routing")
        if float8_experts(v) and not _float8(v):
            out.append("torchtitan: the experts' float8 products are timed in bf16, as the other layers run")
    return tuple(out)


def timed_run(v: Namespace, target: Target) -> Run | None:
    """The typed recipe whose time is that of a namespace that `reasons` has nothing against; None when the sizes make
    none."""
    from primus_lint.ir.record import replace
    from primus_lint.ledger.titan.sizes import by_operation
    from primus_lint.lower.megatron import lower
    from primus_lint.lower.megatron.versions import DEFAULT
    from primus_lint.readers.document import Section, Value

    values = {key: Value(value, ()) for key, value in arguments(v).items()}
    run = lower(Section("torchtitan", "megatron", values), target, DEFAULT, "megatron").run
    # Megatron's FSDP2 reduces gradients in the format of the weights, TorchTitan's in that of its policy
    reduced = "bf16" if v["training.mixed_precision_reduce"] == "bfloat16" else "fp32"
    if run is None:
        return None
    recompute = replace(run.recompute, early_stop=bool(v["activation_checkpoint.early_stop"]))
    if by_operation(v):  # Megatron has no such argument
        recompute = replace(recompute, granularity="selective", modules=("torchtitan_op",))
    # the input of a column-parallel product is the output of a redistribution, which autograd keeps whole (`ColwiseParallel`)
    kernels = replace(run.kernels, gathers_again=False)
    return replace(run, precision=replace(run.precision, grads_dtype=reduced), recompute=recompute, kernels=kernels)


def arguments(v: Namespace) -> dict[str, Any]:
    """The Megatron arguments of the same work."""
    pp, tp = v["pp"], v["tp"]
    out = {
        **_model(v), **_sharding(v), **_recompute(v),
        "tensor_model_parallel_size": tp, "sequence_parallel": tp > 1,
        "pipeline_model_parallel_size": pp, "context_parallel_size": v["cp"],
        "micro_batch_size": v["parallelism.pipeline_parallel_microbatch_size"] if pp > 1 else v["lbs"],
        "global_batch_size": v["gbs"], "seq_length": v["seq"], "max_position_embeddings": v["seq"],
        "bf16": True, "accumulate_allreduce_grads_in_fp32": v["training.mixed_precision_reduce"] == "float32",
        "grad_reduce_in_bf16": v["training.mixed_precision_reduce"] == "bfloat16",
        "gradient_accumulation_fusion": True,  # no buffer of gradients that a second kernel adds to
        "transformer_impl": "transformer_engine",
        "tp_comm_overlap": tp > 1 and bool(v["parallelism.enable_async_tensor_parallel"]),
        # torch.compile fuses what is element by element
        "bias_swiglu_fusion": v["compiled"], "apply_rope_fusion": v["compiled"],
        "cross_entropy_loss_fusion": bool(v["compile.enable"]) and "loss" in v["compile.components"],
    }  # fmt: skip
    if v["cp"] > 1:
        out["cp_comm_type"] = "p2p" if v["parallelism.context_parallel_rotate_method"] == "alltoall" else "all_gather"
    if pp > 1:
        out["pipeline_model_parallel_layout"] = _layout(v)
    if _float8(v):
        out.update(fp8="hybrid", fp8_recipe="tensorwise")
        out["fp8_param_gather"] = bool(v.get("quantize.linear.float8.enable_fsdp_float8_all_gather"))
    if v["experts"]:
        out.update(_experts(v))
    return out


def _model(v: Namespace) -> dict[str, Any]:
    from primus_lint.ledger.titan.sizes import ffn_of

    qwen = v["architecture"] == "qwen3"
    out = {
        "num_layers": v["layers"], "hidden_size": v["model.dim"], "num_attention_heads": v["heads"],
        "group_query_attention": v["groups"] != v["heads"], "num_query_groups": v["groups"],
        "kv_channels": v["model.head_dim"] if qwen else v["model.dim"] // v["heads"],
        "ffn_hidden_size": ffn_of(v), "vocab_size": v["model.vocab_size"],
        "make_vocab_size_divisible_by": 1, "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False,
        "qk_layernorm": qwen and v["model.qk_norm"], "position_embedding_type": "rope",
        "untie_embeddings_and_output_weights": not (qwen and v["model.enable_weight_tying"]),
        "hidden_dropout": 0.0, "attention_dropout": 0.0,
    }  # fmt: skip
    if v["architecture"] == "deepseek_v3":
        out.update(
            multi_latent_attention=True, q_lora_rank=v["model.q_lora_rank"] or None, kv_lora_rank=v["model.kv_lora_rank"],
            qk_head_dim=v["model.qk_nope_head_dim"], qk_pos_emb_head_dim=v["model.qk_rope_head_dim"],
            v_head_dim=v["model.v_head_dim"], qk_layernorm=True, rope_type="rope",
        )  # fmt: skip
    return out


def _experts(v: Namespace) -> dict[str, Any]:
    """The layers of experts: one grouped product a matrix, exchanged by all-to-all or DeepEP."""
    from primus_lint.ledger.titan.sizes import expert_ffn_of, first_expert_layer, float8_experts

    width, (first, every) = expert_ffn_of(v), first_expert_layer(v)
    deepep = v["parallelism.expert_parallel_comm_backend"] == "deepep"
    return {
        "num_experts": v["experts"], "moe_router_topk": v["model.moe_args.top_k"], "moe_ffn_hidden_size": width,
        "moe_shared_expert_intermediate_size": width * v["model.moe_args.num_shared_experts"] or None,
        "moe_layer_freq": [int(layer >= first and (layer + 1) % every == 0) for layer in range(v["layers"])],
        "expert_model_parallel_size": v["ep"], "expert_tensor_parallel_size": v["tp"] if v["ep"] == 1 else v["etp"],
        "moe_token_dispatcher_type": "flex" if deepep else "alltoall", "moe_grouped_gemm": True,
        "moe_router_load_balancing_type": "none", "moe_router_dtype": "fp32",
        "moe_router_score_function": v["model.moe_args.score_func"],
        "moe_router_enable_expert_bias": v["model.moe_args.load_balance_coeff"] is not None,
        # the one of Megatron's grouped products that stays in bf16 beside float8 layers
        "moe_use_legacy_grouped_gemm": not float8_experts(v),
    }  # fmt: skip


def _sharding(v: Namespace) -> dict[str, Any]:
    """FSDP2 gathers before the forward and again before the backward, unless the policy keeps what was gathered (by
    default under pipeline parallelism): then parameters are gathered once, as for a sharded optimizer."""
    overlap = {"overlap_grad_reduce": True, "overlap_param_gather": True}
    if v["fsdp"] == 1:
        return {"overlap_grad_reduce": True, "use_distributed_optimizer": False}
    policy = v["parallelism.fsdp_reshard_after_forward"]
    if policy == "never" or (policy == "default" and v["pp"] > 1):
        return {**overlap, "use_distributed_optimizer": True, "num_distributed_optimizer_instances": v["dp_replicate"],
                "ddp_bucket_size": _block_weights(v)}  # fmt: skip
    return {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "ckpt_format": "torch_dist",
            "data_parallel_replicate_degree": v["dp_replicate"]}  # fmt: skip


def _block_weights(v: Namespace) -> int:
    """Elements of a rank's block: what FSDP2 gathers and reduces at a time."""
    from primus_lint.ledger.titan import params
    from primus_lint.ledger.titan.sizes import sizes_of

    return params.block(sizes_of(v), v["layers"] - 1).numel


def _recompute(v: Namespace) -> dict[str, Any]:
    from primus_lint.ledger.titan.sizes import by_operation

    mode, option, layers = v["activation_checkpoint.mode"], v["activation_checkpoint.selective_ac_option"], v["layers"]
    if mode == "none" or by_operation(v):
        return {}
    if mode == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    count = layers // max(int(option), 1)
    per_stage = ceil_div(count, v["num_stages"] if v["pp"] > 1 else 1)
    if per_stage == 0:
        return {}
    return {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": per_stage}


def _layout(v: Namespace) -> str:
    """Layers of every stage: embedding and head weigh some layers, what is left over goes to the first stages."""
    stages = v["num_stages"]
    each, extra = v["layers_each"], v["weighed_layers"] % stages
    counts = [each + (index < extra) for index in range(stages)]
    counts[0] -= v["parallelism.pipeline_parallel_first_stage_less_layers"]
    counts[-1] -= v["parallelism.pipeline_parallel_last_stage_less_layers"]
    parts = ["t" * max(count, 0) for count in counts]
    return "|".join(["E" + parts[0], *parts[1:-1], parts[-1] + "L"])


def _float8(v: Namespace) -> bool:
    """Linear layers in float8 with one dynamic scale a tensor (torchao's default recipe)."""
    linear = any(name.endswith("quantize.linear.float8") for name in v["converters"])
    others = [name for name in v["converters"] if "quantize" in name and not name.endswith("quantize.linear.float8")]
    return linear and not others and v.get("quantize.linear.float8.recipe_name") in (None, "tensorwise")


def _turbo(v: Namespace) -> bool:
    return bool(v.get("primus_turbo.enable_primus_turbo")) and any("primus_turbo" in name for name in v["converters"])
