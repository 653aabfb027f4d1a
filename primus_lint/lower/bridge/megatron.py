"""A Megatron-Bridge recipe as the Megatron arguments of the same training, for its memory and its time.

The finished configuration is read from the namespace; what follows the recipe function in a run (`runtime_config_update`:
precision, overlap of communication, `ConfigContainer.validate`) is done here. Source: megatron-bridge 0.3.0,
training/config.py, training/mixed_precision.py, training/comm_overlap.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.bridge.made import precision

if TYPE_CHECKING:
    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron import Lowered
    from primus_lint.lower.megatron.namespace import Namespace
    from primus_lint.readers.document import Section
    from primus_lint.rules.finding import Finding

BUCKET = 128 * 1024 * 1024  # elements (CommOverlapConfig._get_optimizer_overlap_cfgs)
_SAME_MODEL = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "sequence_parallel", "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "seq_length",
    "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
    "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "apply_rope_fusion", "bias_dropout_fusion",
    "masked_softmax_fusion", "hidden_dropout", "attention_dropout", "attention_backend", "transformer_impl",
    "fp32_residual_connection", "calculate_per_token_loss", "cp_comm_type", "cuda_graph_impl", "cuda_graph_scope",
    "moe_grouped_gemm", "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_permute_fusion",
    "moe_router_load_balancing_type", "moe_router_dtype", "moe_router_score_function", "moe_router_pre_softmax",
    "moe_router_enable_expert_bias", "moe_router_force_load_balancing", "moe_router_fusion", "moe_shared_expert_overlap",
    "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_aux_loss_coeff", "moe_layer_recompute",
    "overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "defer_embedding_wgrad_compute", "wgrad_deferral_limit",
    "tp_comm_overlap", "fine_grained_activation_offloading",
    "mtp_num_layers", "deterministic_mode", "microbatch_group_size_per_vp_stage",
)  # fmt: skip
# Field of a part of the configuration -> Megatron's argument of the same meaning.
MODEL = {
    **{name: name for name in _SAME_MODEL},
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "bias_activation_fusion": "bias_swiglu_fusion",
}
DDP = {
    "overlap_grad_reduce": "overlap_grad_reduce", "overlap_param_gather": "overlap_param_gather",
    "use_distributed_optimizer": "use_distributed_optimizer", "bucket_size": "ddp_bucket_size",
    "average_in_collective": "ddp_average_in_collective", "use_megatron_fsdp": "use_megatron_fsdp",
    "data_parallel_sharding_strategy": "data_parallel_sharding_strategy",
    "num_distributed_optimizer_instances": "num_distributed_optimizer_instances",
    "check_for_nan_in_grad": "check_for_nan_in_loss_and_grad", "grad_reduce_in_fp32": "accumulate_allreduce_grads_in_fp32",
}  # fmt: skip
OPTIMIZER = {
    name: name
    for name in (
        "optimizer", "use_distributed_optimizer", "use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype",
        "exp_avg_dtype", "exp_avg_sq_dtype", "optimizer_cpu_offload", "optimizer_offload_fraction", "clip_grad", "lr",
        "min_lr",
    )
}  # fmt: skip
TRAIN = {
    name: name
    for name in (
        "micro_batch_size", "global_batch_size", "rampup_batch_size", "train_iters", "eval_iters", "eval_interval",
        "empty_unused_memory_level", "manual_gc",
    )
}  # fmt: skip
COMM_OVERLAP = (
    "tp_comm_overlap", "overlap_p2p_comm", "batch_p2p_comm", "overlap_moe_expert_parallel_comm", "delay_wgrad_compute",
    "defer_embedding_wgrad_compute", "wgrad_deferral_limit", "overlap_grad_reduce", "overlap_param_gather", "bucket_size",
)  # fmt: skip
PEFT = ("target_modules", "dim", "alpha", "dropout", "dropout_position")
PARTS = {"model": MODEL, "ddp": DDP, "optimizer": OPTIMIZER, "train": TRAIN}
LAYOUT = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
CORE_STAGES = ("batch", "grid", "config", "build", "optim", "first-step")  # what runs without Megatron-LM's training/
AT_BUILD_TOO = ("L101",)  # of Megatron-LM's arguments, and asserted again by get_num_layers_to_build
SAID = ("P101", "P102", "E102", "B103", "B104")  # as P901, P902, E901 and B906
TURBO = (
    "use_turbo_attention", "use_turbo_gemm", "use_turbo_grouped_gemm", "use_turbo_deepep", "use_turbo_rms_norm",
    "use_turbo_fused_act_with_probs", "moe_use_fused_router_with_aux_score", "enable_turbo_attention_float8",
)  # fmt: skip


def reasons(v: Namespace) -> tuple[str, ...]:
    """Why a recipe has neither memory nor time; empty when it has."""
    if v.get("made.family") is None:
        return ("megatron_bridge: memory and time of this recipe",)
    if v.get("of_model.num_layers") is None:
        return (f"megatron_bridge: a model without known sizes ({v.get('made.hf_path')})",)
    found = (
        ("DoRA", v.get("made.peft") == "DoRA"),
        ("a precision of an unknown name", _precision(v) is None),
        ("Primus-Turbo's kernels", any(v.get(key) for key in TURBO) or bool(v.get("turbo_sync_free_moe_stage"))),
        ("a layout of stages that follows the degrees", v.get("made.moved_layout")),
        ("another model than the recipe's", not v["made.own_model"]),
    )
    return tuple(f"megatron_bridge: {what}" for what, present in found if present)


def notes(v: Namespace) -> tuple[str, ...]:
    """What the figures take for something else."""
    if v.get("made.packed_sequence") or v["made.dataset"] == "GPTDatasetConfig":
        return ()
    return ("megatron_bridge: every sequence has the full length; the data's may be shorter",)


def arguments(v: Namespace) -> dict[str, Any]:
    """The Megatron arguments of the same work."""
    out: dict[str, Any] = {
        argument: v[f"{part}.{field}"]
        for part, fields in PARTS.items()
        for field, argument in fields.items()
        if v[f"{part}.{field}"] is not None
    }
    out.update({key.removeprefix("of_model."): value for key, value in v.items() if key.startswith("of_model.")})
    out.update(
        max_position_embeddings=v["seq"], make_vocab_size_divisible_by=1, use_distributed_optimizer=_sharded(v),
        gradient_accumulation_fusion=not v["fsdp"], ckpt_format="fsdp_dtensor" if v["fsdp"] else "torch_dist",
    )  # fmt: skip
    for name in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        if name in out:
            out[name] = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(
                out[name], out[name]
            )
    if isinstance(out.get("pipeline_model_parallel_layout"), list):
        stages = out["pipeline_model_parallel_layout"]
        out["pipeline_model_parallel_layout"] = "|".join("".join(LAYOUT[unit] for unit in stage) for stage in stages)
    if out.get("cuda_graph_impl") == "none":
        out.pop("cuda_graph_scope", None)
    out.update(_precise(v), **_overlapped(v))
    if v["fsdp"]:
        out.update(use_megatron_fsdp=True, ddp_average_in_collective=False)
    if v["made.peft"] is not None:
        out.update({f"lora.{name}": v[f"peft.{name}"] for name in PEFT}, **{"lora.enabled": True})
    return out


def _sharded(v: Namespace) -> bool:
    """Set in one of the two places, the distributed optimizer holds in both (`validate`)."""
    return bool(v["ddp.use_distributed_optimizer"] or v["optimizer.use_distributed_optimizer"])


def _precision(v: Namespace) -> dict[str, Any] | None:
    """The fields of the mixed precision beyond its defaults; None for an unknown name."""
    given = v.get("made.mixed_precision")
    fields = precision(given) if isinstance(given, str) else dict(given or {})
    if fields is None:
        return None
    prefix = "mixed_precision."
    own = {
        key.removeprefix(prefix): value
        for key, value in v.items()
        if key.startswith(prefix) and key in v["made.nested"]
    }
    return {**fields, **own}


def _precise(v: Namespace) -> dict[str, Any]:
    """`MixedPrecisionConfig.setup` writes its fields over those of the model, the optimizer and the gradients."""
    fields = _precision(v) or {}
    full = (
        bool(fields.get("grad_reduce_in_fp32", True))
        if v["made.mixed_precision"] is not None
        else bool(v["ddp.grad_reduce_in_fp32"])
    )
    bf16 = bool(fields.get("bf16"))
    out = {
        "bf16": bf16, "fp16": bool(fields.get("fp16")),
        "accumulate_allreduce_grads_in_fp32": full, "grad_reduce_in_bf16": bf16 and not full,
    }  # fmt: skip
    if fields.get("fp8"):
        out.update(fp8=fields["fp8"], fp8_recipe=fields.get("fp8_recipe", "tensorwise"))
        out["fp8_param_gather"] = bool(fields.get("fp8_param_gather") or fields.get("fp8_param"))
        for name in ("first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16",
                     "reuse_grad_buf_for_mxfp8_param_ag"):  # fmt: skip
            if fields.get(name):
                out[name] = fields[name]
    if fields.get("fp4"):
        out.update(fp4=fields["fp4"], fp4_recipe=fields.get("fp4_recipe", "nvfp4"))
    return out


def _overlapped(v: Namespace) -> dict[str, Any]:
    """What `CommOverlapConfig.setup` changes; nothing when the recipe has none."""
    if v["made.comm_overlap"] is None:
        return {}
    given = {name: v[f"comm_overlap.{name}"] for name in COMM_OVERLAP if v[f"comm_overlap.{name}"] is not None}
    interleaved = v["pp"] > 1 and (v["model.virtual_pipeline_model_parallel_size"] or 1) > 1
    out = {"overlap_p2p_comm": interleaved, "defer_embedding_wgrad_compute": False, "overlap_moe_expert_parallel_comm": False,
           "delay_wgrad_compute": False}  # fmt: skip
    if _sharded(v) and (v["dp"] or 2) > 1:
        out.update(ddp_bucket_size=BUCKET, overlap_grad_reduce=True, overlap_param_gather=True)
    if "bucket_size" in given:
        given["ddp_bucket_size"] = given.pop("bucket_size")
    out.update(given)
    out["tp_comm_overlap"] = bool(given.get("tp_comm_overlap")) and v["tp"] > 1 and bool(v["model.sequence_parallel"])
    return out


def lowered(v: Namespace, section: Section, target: Target, version: str) -> Lowered:
    """The recipe as Megatron has it, of a namespace that `reasons` has nothing against; arguments that the section gives
    keep their origins."""
    from primus_lint.lower.megatron import lower
    from primus_lint.readers.document import Section as Made
    from primus_lint.readers.document import Value

    values = {}
    for argument, value in arguments(v).items():
        given = section.values.get(key_of(argument, section))
        values[argument] = Value(value, given.origins if given is not None and given.value == value else ())
    return lower(Made(section.name, "megatron", values), target, version, "megatron")


def key_of(argument: str, section: Section) -> str:
    """The key of a section that a Megatron argument comes from: `flavor` when the recipe function sets it."""
    from primus_lint.lower.bridge.recipes import arguments as taken

    for part, fields in PARTS.items():
        for field, name in fields.items():
            if name == argument and f"{part}.{field}" in section.values:
                return f"{part}.{field}"
            if name == argument and field in section.values and field in (taken(section) or ()):
                return field
    return "flavor"


def setting_of(argument: str, section: Section) -> str | None:
    """The argument of a section's recipe function that comes to a Megatron argument; None when it takes none."""
    from primus_lint.lower.bridge.recipes import arguments as taken

    names = (field for fields in PARTS.values() for field, name in fields.items() if name == argument)
    return next((field for field in names if field in (taken(section) or ())), None)


def in_core(finding: Finding) -> bool:
    """Whether Megatron-Core asks a condition, and not Megatron-LM's check of arguments alone."""
    from primus_lint.rules.templates import STAGES

    return STAGES[finding.stage] in CORE_STAGES or finding.code in AT_BUILD_TOO


def core_findings(made: Lowered, section: Section, wanted: Any = None) -> list[Finding]:
    """What Megatron-Core refuses in what a recipe makes, in the section's keys.

    Conditions that Megatron-Bridge has rules of its own for are left to those. Fixes are kept where every key that they
    change is the section's.
    """
    from primus_lint.rules.engine import check

    out = []
    for finding in check(made, wanted):
        if finding.severity != "error" or finding.code in SAID or not in_core(finding):
            continue
        keys = tuple(dict.fromkeys(key_of(key, section) for key in finding.keys)) or ("flavor",)
        finding.labels = tuple((key_of(key, section), text) for key, text in finding.labels)
        finding.fixes = tuple(
            fix for fix in finding.fixes if all(key_of(change.key, section) == change.key for change in fix.changes)
        )
        finding.keys, finding.section = keys, section
        out.append(finding)
    return out
