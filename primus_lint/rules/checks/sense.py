"""Does the recipe make sense: do its names agree with each other and with what it trains?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.namespace import WRONG_KIND
from primus_lint.rules.checks.key_facts import name_of, say, written
from primus_lint.rules.finding import Place
from primus_lint.rules.model_names import Name, differ, read_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.readers.document import Value
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

PROJECTS = frozenset(
    (
        "wandb_project", "wandb_exp_name", "mlflow_experiment_name", "metrics.wandb_project", "base_output_directory",
        "run_name", "tensorboard_dir", "job.dump_folder", "checkpoint.folder", "save", "load", "pretrained_checkpoint",
    )
)  # fmt: skip
TOKENIZERS = ("tokenizer_model", "hf_path", "model.hf_assets_path", "model.tokenizer_path", "tokenizer_path")


WARM_UP = ("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction")


def own_name(subject: Subject) -> str:
    """The name of the model that a section trains: its preset, flavor or recipe; "" without one."""
    section = subject.section
    parts = [
        section.model or "",
        *(str(section.get(key) or "") for key in ("model.name", "model.flavor", "model_name")),
    ]
    return " ".join(part for part in parts if part)


def stem(subject: Subject) -> str:
    """The file's name without its ending."""
    return os.path.basename(subject.document.path).rsplit(".", 1)[0]


def _other(text: Any, own: Name) -> str | None:
    """What a name says that the model's own name contradicts: a family, or a size."""
    if not isinstance(text, str):
        return None
    name = read_name("/".join(text.split("/")[-2:]))  # of a path the end: folders above may be called anything
    if differ(name.families, own.families):
        return "/".join(sorted(name.families))
    if differ(name.sizes, own.sizes):
        return "/".join(sorted(name.sizes)).upper().replace("X", "x")
    return None


def project(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A dashboard or output folder that is named after another model."""
    own = read_name(own_name(subject))
    for key, value in written(subject):
        if key in PROJECTS and (other := _other(value.value, own)) is not None:
            message = f"{key} {value.value} names another model ({other})"
            yield say(rule, subject, message, (key,), labels=((key, f"the model is {subject.section.model}"),))


def experiment_name(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """An experiment name that is another model's: Primus makes the output folder of it."""
    document = subject.document
    value = document.top_level.get("exp_name")
    if value is None or subject.section is not document.sections[0] or value.origin.path != document.path:
        return
    other = _other(value.value, read_name(own_name(subject)))
    if other is not None:
        message = (
            f"exp_name {value.value} names another model ({other}) than the one trained, {subject.section.model}: "
            "checkpoints and logs of the two share a folder"
        )
        yield say(rule, subject, message, ("exp_name",), place=_at(value, "used in the output path"))


def file_name(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A file that is named after another model than its preset."""
    other = _other(stem(subject), read_name(own_name(subject)))
    preset = subject.section.meta.get("model")
    if other is None or preset is None:
        return
    message = f"the file is named after another model ({other}) than the one it trains, {own_name(subject)}"
    place = _at(preset) if preset.origin.path == subject.document.path else None
    yield say(rule, subject, message, ("model",), place=place, key_path=preset.origin.key_path)


def tokenizer(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Real data is cut into tokens by another model's tokenizer."""
    if subject.section.get("mock_data") or subject.section.get("dataset_type") == "synthetic":
        return
    own = read_name(own_name(subject)).families
    for key, value in subject.section.values.items():
        if key in TOKENIZERS and isinstance(value.value, str) and differ(read_name(value.value).families, own):
            if not _is_tokenizer(key, subject):
                continue
            message = f"{key} {value.value} is a tokenizer of another model than {subject.section.model}"
            yield say(rule, subject, message, (key,))


def _is_tokenizer(key: str, subject: Subject) -> bool:
    return key != "hf_path" or name_of(subject) == "megatron_bridge"  # MaxText's hf_path is a data set


def number_format(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A file named after a number format that the run does not train in."""
    if name_of(subject) not in ("primus-megatron", "torchtitan", "maxtext"):
        return
    said = read_name(stem(subject)).formats
    keys, runs = _format(subject)
    if not said or runs is None:
        return
    wide = said <= {"bf16", "fp16"}
    if wide == (runs in ("bf16", "fp16", "fp32")):
        return
    if any(origin.value not in (None, "null", False) for key in keys for origin in _origins(subject, key)[1:]):
        return  # a preset asks for the format and is shadowed: a rule of its own says so
    message = f"the file is named {'/'.join(sorted(said)).upper()}, but the run trains in {runs}"
    yield say(rule, subject, message, keys)


def _origins(subject: Subject, key: str) -> tuple[Any, ...]:
    value = subject.section.values.get(key)
    return () if value is None else value.origins


def _format(subject: Subject) -> tuple[tuple[str, ...], str | None]:
    """(keys that decide, the number format that runs); None when it cannot be said."""
    section = subject.section
    if section.framework == "maxtext":
        asked = section.get("quantization")
        return ("quantization",), str(asked) if asked else "bf16"
    names = subject.lowered.namespace
    if section.framework == "torchtitan":
        try:
            return ("model.converters",), "/".join(names["quantized"]) or "bf16"
        except (KeyError, TypeError, AttributeError):
            return (), None
    for key in ("fp4", "fp8"):
        if names.get(key):
            return ("fp8", "fp4"), f"{key} ({names[key]})"
    return ("fp8", "fp4"), "bf16" if names.get("bf16") else "fp16" if names.get("fp16") else "fp32"


def warm_up(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """The learning rate is still rising when training ends."""
    names = subject.lowered.namespace
    try:
        warm, length = names["lr_warmup_length"], names["train_iters"] or names["train_samples"]
    except WRONG_KIND:  # a fraction that is no number: wrong-type says it
        return
    if names["train_samples"] is None and names["lr_warmup_samples"]:
        return
    unit = "samples" if names["train_samples"] else "iterations"
    if unit == "samples":
        given = names["lr_warmup_samples"]
        warm = given if given else warm
    elif names["lr_warmup_iters"]:
        warm = names["lr_warmup_iters"]
    if not isinstance(warm, (int, float)) or not isinstance(length, int) or warm < length or length <= 0:
        return
    decay = names["lr_decay_length"]
    if isinstance(decay, (int, float)) and warm >= decay:
        return  # Megatron stops: warmup-shorter-than-decay says so
    mock = bool(names.get("mock_data"))
    message = (
        f"the learning rate still warms up when training ends ({warm:,} {unit} of warm-up, {length:,} of training): "
        "it never reaches lr"
    )
    ends = "train_samples" if unit == "samples" else "train_iters"
    keys = (*(key for key in WARM_UP if names.get(key)), ends)
    labels = ((ends, "training ends here"),)
    # with mock data nothing is learned anyway: a benchmark
    yield say(rule, subject, message, keys, labels=labels, severity="info" if mock else rule["severity"])


def _at(value: Value, message: str = "") -> Place:
    origin = value.origin
    return Place(origin.path or "", origin.line, origin.column, origin.span, message)
