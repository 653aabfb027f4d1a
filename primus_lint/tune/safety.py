"""Which class a changed key belongs to (design 4.2): the one table; docs/safety.md is made from it.

safe          the same training mathematics up to the order of reductions
unsafe        numerics or compatibility can change: written with --unsafe-fixes alone
display-only  changes what is trained: shown, never written

Some keys are safe in general and unsafe for certain recipes; `class_of` decides for one recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SAFE, UNSAFE, DISPLAY = "safe", "unsafe", "display-only"


class KeyClass(NamedTuple):
    """`when`: for which recipes the key is unsafe although it is safe in general."""

    keys: tuple[str, ...]
    safety: str
    reason: str
    when: str = ""


TABLE = (
    KeyClass(
        ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
         "expert_model_parallel_size", "expert_tensor_parallel_size"),
        SAFE, "where the same tensors lie", checkpoint.DEGREES_WHEN,
    ),
    KeyClass(
        ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage",
         "pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
         "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"),
        SAFE, "which stage holds which layers", checkpoint.SPLIT_WHEN,
    ),
    KeyClass(("patch_primus_pipeline", "pp_algorithm"), SAFE, "in which order the same micro-batches run"),
    KeyClass(
        ("micro_batch_size",), SAFE, "the global batch and its gradient stay the same",
        "experts with a capacity factor or an auxiliary loss, which see one micro-batch at a time",
    ),
    KeyClass(
        ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
         "recompute_layer_ids"),
        SAFE, "the same forward, run twice",
    ),
    KeyClass(("sequence_parallel",), SAFE, "the same all-reduce in two halves"),
    KeyClass(
        ("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm",
         "moe_shared_expert_overlap", "overlap_p2p_comm"),
        SAFE, "when the same communication runs",
    ),
    KeyClass(
        ("use_distributed_optimizer",), SAFE, "who keeps which part of the same weights and states",
        checkpoint.OPTIMIZER_WHEN,
    ),
    KeyClass(
        ("use_torch_fsdp2", "grad_reduce_in_bf16"), SAFE, "who keeps which part of the same weights, gradients and states",
        "gradients are added and reduced in another number format than before (FSDP2: that of the weights), or a "
        "checkpoint is loaded",
    ),
    KeyClass(
        ("use_megatron_fsdp", "data_parallel_sharding_strategy"), UNSAFE,
        "another engine: checkpoints of a format of its own, and CUDA_DEVICE_MAX_CONNECTIONS must not be 1",
    ),
    KeyClass(("ckpt_format",), SAFE, "how what is saved lies on disk", checkpoint.FORMAT_WHEN),
    KeyClass(("cp_comm_type",), SAFE, "how the same keys and values travel"),
    KeyClass(("moe_permute_fusion",), SAFE, "the same permutation in one kernel"),
    KeyClass(
        ("moe_token_dispatcher_type",), SAFE, "how the same tokens travel",
        "to or from DeepEP (flex): it needs a library of its own, and probabilities in fp32",
    ),
    KeyClass(
        ("moe_grouped_gemm", "moe_use_legacy_grouped_gemm", "use_turbo_grouped_gemm"),
        SAFE, "the same products in one kernel",
        "FP8 or FP4 (not every kernel computes in it), or a checkpoint is loaded (names and shapes of the weights differ)",
    ),
    KeyClass(
        ("moe_enable_deepep", "moe_flex_dispatcher_backend", "use_turbo_deepep", "moe_router_dtype"),
        UNSAFE, "DeepEP needs a library of its own, and routing in fp32",
    ),
    KeyClass(("fp8", "fp8_recipe", "fp8_param_gather", "fp4", "fp4_recipe"), UNSAFE, "number format of the products"),
    KeyClass(
        ("cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "enable_fused_linear_ce"),
        UNSAFE, "the loss is computed from half-precision logits",
    ),
    KeyClass(
        ("use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"),
        UNSAFE, "number format of gradients and optimizer state",
    ),
    KeyClass(("gradient_accumulation_fusion",), UNSAFE, "weight gradients are no longer rounded before they are added"),
    KeyClass(
        ("max_position_embeddings",), SAFE, "a limit that nothing is computed from", "positions are learned, one by one",
    ),
    KeyClass(("make_vocab_size_divisible_by",), UNSAFE, "padding of the vocabulary, a shape of the checkpoint"),
    KeyClass(
        ("parallelism.tensor_parallel_degree", "parallelism.expert_parallel_degree",
         "parallelism.data_parallel_replicate_degree", "parallelism.fsdp_reshard_after_forward"),
        SAFE, "TorchTitan: where the same tensors lie, and when they are gathered (its checkpoints are independent of it)",
    ),
    KeyClass(
        ("training.local_batch_size", "training.global_batch_size"), SAFE,
        "TorchTitan: the global batch and its gradient stay the same; it is written out where it followed from the local one",
    ),
    KeyClass(
        ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"), SAFE,
        "TorchTitan: the same forward, run twice",
    ),
    KeyClass(("compile.enable",), SAFE, "TorchTitan: the same operations in fewer kernels"),
    KeyClass(
        ("global_batch_size", "seq_length", "lr", "min_lr", "weight_decay", "train_iters",
         "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "vocab_size",
         "mtp_num_layers", "num_experts", "moe_router_topk", "moe_expert_capacity_factor"),
        DISPLAY, "what is trained",
    ),
)  # fmt: skip

BY_KEY = {key: entry for entry in TABLE for key in entry.keys}


def class_of(
    key: str, old: Any, new: Any, given: Mapping[str, Any], model: Any, then: Mapping[str, Any] | None = None
) -> str:
    """The class of changing one key of a recipe: `given` are its arguments as asked for, `model` its `ir.run.Model`,
    `then` its arguments after all changes that are made together (None: this one alone).

    A key that the table does not have is unsafe.
    """
    then = {**given, key: new} if then is None else then
    entry = BY_KEY.get(key)
    if entry is None:
        return UNSAFE
    if entry.safety != SAFE or not entry.when:
        return entry.safety
    return UNSAFE if _unsafe_here(key, old, new, given, model, then) else SAFE


def _unsafe_here(key: str, old: Any, new: Any, given: Mapping[str, Any], model: Any, then: Mapping[str, Any]) -> bool:
    if key in ("use_torch_fsdp2", "grad_reduce_in_bf16") and gradients_in_half(given) != gradients_in_half(then):
        return True
    if key == "micro_batch_size":
        return batch_is_trained(model)
    if key == "max_position_embeddings":
        return bool(model.position_embedding == "learned_absolute")
    if key == "moe_token_dispatcher_type":
        return "flex" in (old, new)
    if key in ("moe_grouped_gemm", "moe_use_legacy_grouped_gemm", "use_turbo_grouped_gemm"):
        return bool(given.get("fp8") or given.get("fp4") or checkpoint.loads(given))
    return checkpoint.breaks(key, new, given, model)


def gradients_in_half(args: Mapping[str, Any]) -> bool:
    """Whether gradients are added and reduced in the half-precision format of the weights. Source: Megatron-LM
    `arguments.py`; torch FSDP2 is wrapped without a precision policy (`torch_fully_sharded_data_parallel.py`)."""
    half = bool(args.get("bf16") or args.get("fp16"))
    return half and bool(args.get("use_torch_fsdp2") or args.get("grad_reduce_in_bf16") or args.get("fp16"))


def batch_is_trained(model: Any) -> bool:
    """Whether the micro-batch is part of what is trained: capacity and auxiliary losses are counted over it."""
    moe = model.moe
    return moe is not None and (moe.capacity_factor is not None or moe.aux_loss)


def class_of_all(changes: Iterable[tuple[str, Any]], given: Mapping[str, Any], model: Any) -> str:
    """The class of several changes together: the worst of them."""
    changed = dict(changes)
    then = {**given, **changed}
    found = {class_of(key, given.get(key), value, given, model, then) for key, value in changed.items()}
    return next((name for name in (DISPLAY, UNSAFE) if name in found), SAFE)


def markdown() -> str:
    """The table as the published page."""
    lines = [
        "# Safety of changed keys",
        "",
        "What `--fix` may write. `safe` keys are written by `--fix`, `unsafe` ones with `--unsafe-fixes` alone,",
        "`display-only` ones are shown and never written. This page is made from `primus_lint/tune/safety.py`.",
        "",
        "| keys | class | why | unsafe when |",
        "| --- | --- | --- | --- |",
    ]
    for entry in TABLE:
        keys = ", ".join(f"`{key}`" for key in entry.keys)
        lines.append(f"| {keys} | {entry.safety} | {entry.reason} | {entry.when} |")
    return "\n".join(lines) + "\n"
