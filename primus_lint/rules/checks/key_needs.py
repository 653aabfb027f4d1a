"""Live keys that this configuration does not read: what they belong to is switched off.

Each row: why, the condition on the effective values, and the keys (a name that ends in `_` or `.` stands for all that begin
with it). Read in validate_args, TransformerConfig and the optimizers of Megatron (d3528a21), in TorchTitan 0.2.2's trainer,
checkpointer and profiler, and in MaxText's configuration types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.rules.checks.key_facts import keys_of, listed, name_of, say, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject


class Need(NamedTuple):
    why: str
    off: Callable[[Callable[[str], Any]], bool]
    keys: tuple[str, ...]


def _gpt(get: Callable[[str], Any]) -> bool:
    return get("model_type") in (None, "gpt")


MEGATRON = (
    Need("the model has no experts", lambda get: _gpt(get) and not get("num_experts"), ("moe_",)),
    Need(
        "multi_latent_attention is off",
        lambda get: _gpt(get) and not get("multi_latent_attention"),
        ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim"),
    ),
    Need(
        "fp8 is off",
        lambda get: not get("fp8") and not get("fp4"),
        ("fp8_recipe", "fp8_margin", "fp8_interval", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_wgrad"),
    ),
    Need(
        "nothing is recomputed",
        lambda get: not get("recompute_granularity") and not get("recompute_layer_ids"),
        ("recompute_method", "recompute_num_layers", "recompute_modules"),
    ),
    Need("recompute_granularity is full", lambda get: get("recompute_granularity") == "full", ("recompute_modules",)),
    Need("the model has no MTP layers", lambda get: not get("mtp_num_layers"), ("mtp_loss_scaling_factor",)),
    Need("there is no pipeline", lambda get: get("pipeline_model_parallel_size") == 1, ("overlap_p2p_comm",)),
    Need("the optimizer is sgd", lambda get: get("optimizer") == "sgd", ("adam_beta1", "adam_beta2", "adam_eps")),
    Need("the optimizer is not sgd", lambda get: get("optimizer") == "adam", ("sgd_momentum",)),
    Need(
        "optimizer_cpu_offload is off",
        lambda get: not get("optimizer_cpu_offload"),
        ("optimizer_offload_fraction", "use_torch_optimizer_for_cpu_offload"),
    ),
    Need("lr_decay_style is not WSD", lambda get: get("lr_decay_style") != "WSD", ("lr_wsd_decay_",)),
    Need("profile is off", lambda get: not get("profile"), ("profile_step_start", "profile_step_end", "profile_ranks")),
)
TITAN = (
    Need(
        "there is no pipeline",
        lambda get: get("parallelism.pipeline_parallel_degree") == 1,
        (
            "parallelism.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule_csv",
            "parallelism.pipeline_parallel_microbatch_size", "parallelism.pipeline_parallel_layers_per_stage",
            "parallelism.pipeline_parallel_first_stage_less_layers", "parallelism.pipeline_parallel_last_stage_less_layers",
        ),
    ),
    Need(
        "activation_checkpoint.mode is not selective",
        lambda get: get("activation_checkpoint.mode") != "selective",
        ("activation_checkpoint.selective_ac_option",),
    ),
    Need("compile.enable is off", lambda get: not get("compile.enable"), ("compile.components", "compile.backend")),
    Need(
        "checkpoint.enable is off",
        lambda get: not get("checkpoint.enable") and not get("fault_tolerance.enable"),
        ("checkpoint.",),
    ),
    Need(
        "nothing is profiled",
        lambda get: not get("profiling.enable_profiling") and not get("profiling.enable_memory_snapshot"),
        ("profiling.",),
    ),
    Need("validation.enable is off", lambda get: not get("validation.enable"), ("validation.",)),
    Need(
        "there is no tensor parallelism",
        lambda get: get("parallelism.tensor_parallel_degree") == 1,
        ("parallelism.enable_async_tensor_parallel",),
    ),
)  # fmt: skip
MAXTEXT = (
    Need("the model has no experts", lambda get: not get("MOE"), ("capacity_factor", "megablox", "sparse_matmul")),
    Need(
        "enable_checkpointing is off",
        lambda get: get("enable_checkpointing") is False,
        ("checkpoint_period", "async_checkpointing"),
    ),
    Need("no profiler is chosen", lambda get: get("profiler") in (None, ""), ("profiler_steps", "skip_first_n_steps_for_profiler")),
    Need(
        "there is no pipeline",
        lambda get: get("ici_pipeline_parallelism") == 1 and get("dcn_pipeline_parallelism") == 1,
        ("num_layers_per_pipeline_stage", "num_pipeline_repeats", "num_pipeline_microbatches"),
    ),
    Need("dataset_type is not hf", lambda get: get("dataset_type") != "hf", ("hf_path", "hf_data_dir", "hf_train_files")),
    Need("dataset_type is not grain", lambda get: get("dataset_type") != "grain", ("grain_",)),
)  # fmt: skip
NEEDS = {"megatron": MEGATRON, "primus-megatron": MEGATRON, "torchtitan": TITAN, "maxtext": MAXTEXT}
SWITCHED_OFF: tuple[Any, ...] = (None, False, "", [], {})  # a value that asks for nothing


def not_used(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys of the file whose feature is off, one finding a feature."""
    name = name_of(subject)
    get = _values(subject)
    asked = {key for key, value in written(subject) if value.value not in SWITCHED_OFF and not key.endswith(".enable")}
    for need in NEEDS.get(name, ()):
        found = sorted(key for key in asked if any(_is(key, wanted) for wanted in need.keys))
        if found and need.off(get):
            message = f"{listed(found)} do{'es' if len(found) == 1 else ''} nothing here: {need.why}"
            yield say(rule, subject, message, tuple(found), at_key=True)


def _is(key: str, wanted: str) -> bool:
    return key.startswith(wanted) if wanted.endswith(("_", ".")) else key == wanted


def _values(subject: Subject) -> Callable[[str], Any]:
    """The effective value of a key: the framework's namespace, else the section over the table's defaults."""
    if subject.section.framework in ("megatron", "torchtitan"):
        names = subject.lowered.namespace
        return lambda key: names.get(key)
    table = keys_of(subject)

    def get(key: str) -> Any:
        if key == "MOE":
            from primus_lint.rules.checks.maxtext import is_moe

            return is_moe(subject)
        return subject.section.get(key) if key in subject.section.values else table.get(key, {}).get("default")

    return get
