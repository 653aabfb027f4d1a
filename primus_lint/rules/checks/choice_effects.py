"""What a value outside Megatron's choices, and a null, do to a run of Primus, which looks at neither itself.

Read in megatron-core 0.16.1 and Megatron-LM d3528a21, Primus fd1eeabb (the functions named beside each key); nulls in
megatron-core 0.17.0, those up to the configuration also asked of it (tests/oracle/test_arguments.py). A key that is not
listed is not known to stop the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Names = Mapping[str, Any]


class Stop(NamedTuple):
    """Where the run stops (a stage of the rules, and in words), in recipes for which `reached` holds."""

    stage: str
    words: str
    reached: Callable[[Names], bool] = lambda names: True


def _experts(names: Names) -> bool:
    return bool(names["num_experts"])


def _own_dispatcher(names: Names) -> bool:
    """Megatron's dispatcher, not one of Primus-Turbo's."""
    return _experts(names) and not names["use_turbo_deepep"] and not names["use_turbo_mega_moe"]


STOPS = {
    "cross_entropy_fusion_impl": Stop(  # LanguageModule.compute_language_model_loss: neither branch sets the loss
        "first-step", "the first loss is not computed", lambda names: bool(names["cross_entropy_loss_fusion"])
    ),
    "cuda_graph_impl": Stop("config", "the model's configuration is refused"),  # TransformerConfig.__post_init__
    "dataloader_type": Stop("optim", "no data loader is built"),  # build_pretraining_data_loader
    "distributed_backend": Stop("grid", "torch.distributed does not start"),  # init_process_group
    "exp_avg_dtype": Stop("args", "the check of the arguments fails (KeyError)"),  # validate_args: map_dtype
    "exp_avg_sq_dtype": Stop("args", "the check of the arguments fails (KeyError)"),
    "experimental_attention_variant": Stop("build", "there are no such layers to build"),
    "fp8": Stop(  # get_fp8_recipe, of Megatron and of Primus
        "first-step", "the first forward pass stops", lambda names: bool(names["fp8"])
    ),
    "lr_decay_style": Stop("first-step", "the scheduler stops when warm-up is over"),  # OptimizerParamScheduler.get_lr
    "lr_wsd_decay_style": Stop(
        "first-step", "the scheduler stops where the decay begins", lambda names: names["lr_decay_style"] == "WSD"
    ),
    "moe_flex_dispatcher_backend": Stop(  # MoEFlexTokenDispatcher.__init__
        "build", "no dispatcher is built",
        lambda names: _own_dispatcher(names) and names["moe_token_dispatcher_type"] == "flex",
    ),
    "moe_router_score_function": Stop("first-step", "the first forward pass of a router stops", _experts),
    "moe_token_dispatcher_type": Stop("build", "no dispatcher is built", _own_dispatcher),  # MoELayer.__init__
    "moe_token_drop_policy": Stop(  # apply_router_token_dropping
        "first-step", "the first forward pass of a router stops",
        lambda names: _experts(names) and names["moe_expert_capacity_factor"] is not None,
    ),
    "normalization": Stop("build", "no norm is built"),  # TENorm, WrappedTorchNorm, FusedLayerNorm
}  # fmt: skip
DTYPES = ("float16", "bfloat16", "float32")  # TORCH_DTYPE_MAP: what TorchTitan makes of its fields' texts


def _mixed(names: Names) -> bool:
    """Mixed precision under FSDP, or by autocast where a model is whole on every rank."""
    return names["dp_shard"] not in (1, None) or names["cp"] > 1 or (names["tp"] == 1 and names["pp"] == 1)


# Fields of TorchTitan v0.2.2, read there.
TITAN_STOPS = {
    "training.dtype": Stop("build", "no model is built (KeyError)"),  # Trainer.__init__
    "training.mixed_precision_param": Stop("build", "no model is built (KeyError)", _mixed),  # parallelize_*
    "checkpoint.export_dtype": Stop(  # CheckpointManager.__init__
        "build", "no checkpoints are managed (KeyError)", lambda names: bool(names["checkpoint.enable"])
    ),
    "lr_scheduler.decay_type": Stop("first-step", "the scheduler stops where the decay begins"),  # build_lr_schedulers
}  # fmt: skip
SILENT = {
    "fp8_recipe": "with Primus-Turbo FP8 is silently off, without it the first forward pass stops",
    "moe_router_dtype": "the router silently computes in the type of the activations",
    "moe_router_load_balancing_type": "the experts are silently not balanced",
    "position_embedding_type": "positions are silently not embedded",
    "tokenizer_type": "the tokenizer is not built, unless this Primus knows it",
    "transformer_impl": "the local implementation is silently built",
}
UNKNOWN = "it fails later or not at all"


def _rotary(names: Names) -> bool:
    """GPTModel makes the rotary embedding itself."""
    return names["position_embedding_type"] == "rope" and not names["multi_latent_attention"]


def _experts_chosen(names: Names) -> bool:
    return _experts(names) and not names["use_turbo_mega_moe"]


CHECKED = "the check of the arguments stops on it"
# Keys that have a value unless a file takes it away with null.
NULLS = {
    "tensor_model_parallel_size": Stop("args", CHECKED),  # validate_args
    "pipeline_model_parallel_size": Stop("args", CHECKED),
    "context_parallel_size": Stop("args", CHECKED),
    "expert_model_parallel_size": Stop("args", CHECKED),
    "cpu_offloading_num_layers": Stop("args", CHECKED),
    "cp_comm_type": Stop("args", CHECKED),
    "min_lr": Stop("args", CHECKED, lambda names: names["lr"] is not None),
    "mock_data": Stop("args", CHECKED),
    "num_dataset_builder_threads": Stop("args", CHECKED),
    "inference_batch_times_seqlen_threshold": Stop("args", CHECKED),
    "init_method_std": Stop("config", "the model's configuration is refused"),  # TransformerConfig.__post_init__
    "cuda_graph_impl": Stop("config", "the model's configuration is refused"),
    "make_vocab_size_divisible_by": Stop(  # vocab_size_with_padding
        "grid", "the vocabulary is not padded", lambda names: names["padded_vocab_size"] is None
    ),
    "distributed_timeout_minutes": Stop("grid", "no process groups are made"),  # _initialize_distributed
    "seed": Stop("grid", "the random seeds are not set"),  # _set_random_seed
    "rotary_base": Stop("build", "no rotary embedding is built", _rotary),  # RotaryEmbedding.__init__
    "rotary_percent": Stop("build", "no rotary embedding is built", _rotary),
    "weight_decay": Stop(  # OptimizerParamScheduler.__init__
        "optim", "the scheduler is not made", lambda names: names["weight_decay_incr_style"] == "constant"
    ),
    "lr_warmup_init": Stop("optim", "the scheduler is not made"),
    "lr_warmup_iters": Stop(  # get_optimizer_param_scheduler
        "optim", "the scheduler is not made",
        lambda names: bool(names["train_iters"]) and names["lr_warmup_fraction"] is None,
    ),
    "eval_interval": Stop(  # get_train_valid_test_num_samples
        "optim", "the samples are not counted", lambda names: not names["full_validation"] and not names["skip_train"]
    ),
    "eval_iters": Stop("optim", "the samples are not counted"),
    "num_workers": Stop("optim", "no data loader is built"),  # build_pretraining_data_loader
    "moe_router_topk": Stop("first-step", "the first forward pass of a router stops", _experts_chosen),
    "hidden_dropout": Stop("first-step", "the first forward pass stops"),  # bias_dropout_add
    "clip_grad": Stop("first-step", "the first step of the optimizer stops"),  # MixedPrecisionOptimizer.step
    "log_interval": Stop("first-step", "the log of the first step stops"),  # training_log
}  # fmt: skip


def _reached(stop: Stop, names: Names) -> bool:
    """Whether a run gets to the stop; not known to where other values of the recipe cannot be calculated with."""
    from primus_lint.lower.megatron.namespace import WRONG_KIND

    try:
        return stop.reached(names)
    except WRONG_KIND:
        return False


def effect(key: str, names: Names) -> tuple[str | None, str]:
    """The stage at which a wrong value stops the run (None: it is not known to), and what it does, in words."""
    stop = STOPS.get(key)
    if stop is not None:
        return (stop.stage, stop.words) if _reached(stop, names) else (None, "this recipe does not get to it")
    return None, SILENT.get(key, UNKNOWN)


def titan_effect(key: str, value: Any, names: Names) -> tuple[str | None, str]:
    """As `effect`, of a field of TorchTitan: half of its choices are those of its command line alone."""
    stop = TITAN_STOPS.get(key)
    if stop is None or value in DTYPES or not _reached(stop, names):
        return None, UNKNOWN
    return stop.stage, stop.words


def null_effect(key: str, names: Names) -> tuple[str, str] | None:
    """The stage at which a null stops the run, and what it does, in words; None where it is not known to stop it."""
    stop = NULLS.get(key)
    return (stop.stage, stop.words) if stop is not None and _reached(stop, names) else None


def meant(text: Any, legal: list[Any]) -> Any:
    """The legal value that a misspelt one can only mean (case aside, one slip away, or much alike); None without one."""
    from primus_lint.rules.checks.key_facts import nearest

    by_name = {str(item).casefold(): item for item in legal}
    return by_name.get(nearest(str(text).casefold(), by_name) or "")
