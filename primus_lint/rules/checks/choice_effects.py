"""What a value outside Megatron's choices does to a run of Primus, which does not look at the choices itself.

Read in megatron-core 0.16.1 and Megatron-LM d3528a21, Primus fd1eeabb (the functions named beside each key). A key
that is not listed is not known to stop the run.
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
SILENT = {
    "fp8_recipe": "with Primus-Turbo FP8 is silently off, without it the first forward pass stops",
    "moe_router_dtype": "the router silently computes in the type of the activations",
    "moe_router_load_balancing_type": "the experts are silently not balanced",
    "position_embedding_type": "positions are silently not embedded",
    "tokenizer_type": "the tokenizer is not built, unless this Primus knows it",
    "transformer_impl": "the local implementation is silently built",
}
UNKNOWN = "it fails later or not at all"


def effect(key: str, names: Names) -> tuple[str | None, str]:
    """The stage at which a wrong value stops the run (None: it is not known to), and what it does, in words."""
    stop = STOPS.get(key)
    if stop is not None:
        return (stop.stage, stop.words) if stop.reached(names) else (None, "this recipe does not get to it")
    return None, SILENT.get(key, UNKNOWN)


def meant(text: Any, legal: list[Any]) -> Any:
    """The legal value that a misspelt one can only mean (case aside, one slip away, or much alike); None without one."""
    from primus_lint.rules.checks.key_facts import nearest

    by_name = {str(item).casefold(): item for item in legal}
    return by_name.get(nearest(str(text).casefold(), by_name) or "")
