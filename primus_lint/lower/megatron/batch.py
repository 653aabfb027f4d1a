"""Derived symbols of batch sizes and of the learning-rate schedule (see `namespace`).

Sources: Megatron-Core `num_microbatches_calculator` (ramp-up up to d3528a21, step schedule from d98e8a64) and
Megatron-LM `get_optimizer_param_scheduler`.
"""

from __future__ import annotations

from typing import Any

from primus_lint.formula import maximum
from primus_lint.lower.megatron.namespace import Namespace, countable, derived

_TP = "tensor_model_parallel_size"
_PP = "pipeline_model_parallel_size"
_CP = "context_parallel_size"


@derived("rampup_batch_size", "step_batch_size_schedule", "global_batch_size", "micro_batch_size", "world_size")
def batch_sizes(v: Namespace) -> tuple[Any, ...]:
    """Global batch sizes in the order in which training meets them; one entry unless a ramp or schedule is set.

    Raises ValueError for a ramp or schedule that Megatron refuses (the batch rules say why).
    """
    steps = v.get("step_batch_size_schedule")
    if steps is not None:
        return tuple(size for _, size in schedule_entries(steps, v["seq"]))
    ramp = v["rampup_in_use"]
    if ramp is None:
        return (v["gbs"],)
    if v["ramp_problem"]:
        raise ValueError(v["ramp_problem"])
    steps_of_ramp = range(int(ramp[0]), v["gbs"] + 1, int(ramp[1]))
    countable(len(steps_of_ramp))
    return tuple(steps_of_ramp)


@derived("rampup_batch_size")
def rampup_in_use(v: Namespace) -> Any:
    """The ramp [start, increment, samples]; None when it is unset or this version ignores it."""
    return None if v.get("version") == "d98e8a64" else v.get("rampup_batch_size")


@derived("rampup_batch_size", "global_batch_size", "micro_batch_size", "world_size")
def ramp_problem(v: Namespace) -> str:
    """What Megatron refuses in the batch ramp, in a few words; "" when nothing."""
    start, increment, samples = (int(item) for item in v["rampup_in_use"])
    if start < 1 or increment < 1 or samples < 1:
        return "all three must be positive"
    if start >= v["gbs"]:
        return f"the start must be below the global batch {v['gbs']}"
    rest = v["gbs"] - start
    return f"the increment does not divide {v['gbs']} - {start} = {rest}" if rest % increment else ""


@derived("step_batch_size_schedule", "seq_length")
def schedule_problem(v: Namespace) -> str:
    """What Megatron refuses in the batch schedule, in a few words; "" when nothing."""
    try:
        entries = schedule_entries(v["step_batch_size_schedule"], v["seq"])
    except ValueError:
        return "an entry is not of the form THRESHOLD:BATCH, such as 250B:1536"
    if not entries:
        return "it is empty"
    if entries[0][0] != 0:
        return "the first threshold must be 0"
    thresholds = [threshold for threshold, _ in entries]
    if len(set(thresholds)) < len(thresholds):
        return "two thresholds fall on the same sample"
    return "" if all(size > 0 for _, size in entries) else "a batch is not positive"


def schedule_entries(text: str, seq_length: int | None) -> list[tuple[int, int]]:
    """(threshold in samples, global batch size) of a schedule text such as "0:768 250B:1536", by threshold.

    Thresholds are tokens (samples when there is no sequence length) with suffixes K, M, B and T. Raises ValueError.
    """

    def number(word: str) -> int:
        word = word.strip().upper()
        scale = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}.get(word[-1:])
        return int(float(word[:-1]) * scale) if scale else int(float(word))

    entries = []
    for entry in text.replace(",", " ").split():
        threshold, _, size = entry.partition(":")
        entries.append((number(threshold) // (seq_length or 1), number(size)))
    return sorted(entries, key=lambda item: item[0])


@derived("rampup_batch_size", "step_batch_size_schedule", "global_batch_size", "micro_batch_size", "world_size")
def first_batch(v: Namespace) -> Any:
    """Global batch size of the first step."""
    return v["batch_sizes"][0]


@derived("rampup_batch_size", "step_batch_size_schedule", "micro_batch_size", "world_size", _TP, _PP, _CP)
def unreachable_batch(v: Namespace) -> int | None:
    """The first later batch of a ramp or schedule that does not divide by micro batch times data-parallel size."""
    if v["batch_dp"] is None or len(v["batch_sizes"]) == 1:
        return None
    return next((size for size in v["batch_sizes"][1:] if size % (v["mbs"] * v["batch_dp"])), None)


@derived("global_batch_size", "micro_batch_size", "world_size", _TP, _PP, _CP)
def num_microbatches(v: Namespace) -> Any:
    """Micro batches per data-parallel rank and step at the full batch; None when the world size is not known.

    A batch that does not divide is refused, or rounded down under decrease_batch_size_if_needed.
    """
    if v["batch_dp"] is None:
        return None
    batch = v["gbs"] if v.get("step_batch_size_schedule") is None else v["batch_sizes"][-1]
    return batch // maximum(v["mbs"] * v["batch_dp"], 1)


@derived("global_batch_size", "micro_batch_size", "world_size", _TP, _PP, _CP)
def first_microbatches(v: Namespace) -> Any:
    """Micro batches per rank of the first step; None when the world size is not known."""
    return None if v["batch_dp"] is None else v["first_batch"] // maximum(v["mbs"] * v["batch_dp"], 1)


@derived("eval_global_batch_size", "global_batch_size", "micro_batch_size", "world_size", _TP, _PP, _CP)
def eval_gbs(v: Namespace) -> Any:
    """Global batch of evaluation: the training batch when unset."""
    return v["gbs"] if v.get("eval_global_batch_size") is None else v["eval_global_batch_size"]


@derived("eval_micro_batch_size", "micro_batch_size")
def eval_mbs(v: Namespace) -> Any:
    """Micro batch of evaluation: the training micro batch when unset."""
    return v["mbs"] if v.get("eval_micro_batch_size") is None else v["eval_micro_batch_size"]


@derived("lr_decay_iters", "lr_decay_samples", "train_iters", "train_samples")
def lr_decay_length(v: Namespace) -> Any:
    """Length of the learning-rate decay, in the unit of training (iterations or samples): all of training when unset."""
    if v["train_iters"]:
        return v["train_iters"] if v["lr_decay_iters"] is None else v["lr_decay_iters"]
    return v["train_samples"] if v["lr_decay_samples"] is None else v["lr_decay_samples"]


@derived("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction", "train_iters")
def lr_warmup_length(v: Namespace) -> Any:
    """Length of the learning-rate warm-up, in the unit of training."""
    if v["lr_warmup_fraction"] is not None:
        return v["lr_warmup_fraction"] * v["lr_decay_length"]
    return v["lr_warmup_iters"] if v["train_iters"] else v["lr_warmup_samples"]
