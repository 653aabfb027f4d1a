"""Keys that are known and do nothing: dead, inert, removed, renamed, meant for another kind of model.

A key is worth a warning only when it asks for something else than what runs; the same key asking for what happens
anyway is shown by the profile `all`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import keys_of, listed, name_of, removed_of, say, shown, written
from primus_lint.rules.checks.keys import is_environment_name
from primus_lint.rules.checks.presets import PRECISION
from primus_lint.rules.finding import Change, Finding, Fix
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.readers.document import Value
    from primus_lint.subject import Subject

NO_EFFECT = ("dead", "inert", "removed", "renamed")
EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
UNKNOWN = object()  # what runs instead is not known

# Key without effect -> the key that has it, where the two mean the same. The tables name some as `to`; these too.
STANDS_FOR = {
    "norm_epsilon": "layernorm_epsilon",
    "apply_layernorm_1p": "layernorm_zero_centered_gamma",
    "check_for_nan_in_loss": "check_for_nan_in_loss_and_grad",
    "fully_parallel_save": "ckpt_fully_parallel_save",
    "use_custom_fsdp": "use_megatron_fsdp",
    "fp8_format": "fp8",
    "record_shapes": "torch_profiler_record_shapes",
    "s3_cache_path": "object_storage_cache_path",
}
# What runs whatever the key says; the figures are Megatron-LM's (d3528a21).
ALWAYS = {
    "log_batch_size_to_tensorboard": True,
    "log_learning_rate_to_tensorboard": True,
    "async_tensor_model_parallel_allreduce": True,
    "rope_scaling_factor": 8.0,
    "rotary_seq_len_interpolation_factor": 1,  # no interpolation
}
# Keys whose value says what happens anyway, or whose effect another key of the same file gives.
HARMLESS = frozenset(("use_flash_attn", "deprecated_use_mcore_models", "add_position_embedding", "debug", "warmup"))


class Silent(NamedTuple):
    """A key without effect: why, what runs instead (UNKNOWN when that cannot be said) and the key that would work."""

    key: str
    asked: Any
    why: str
    runs: Any
    instead: str | None

    @property
    def matters(self) -> bool:
        """Whether the run differs from what the key asks for."""
        if self.key in HARMLESS or (self.key in ALWAYS and self.asked is None):
            return False
        if self.runs is UNKNOWN:
            return self.asked not in EMPTY
        return not _same(self.asked, self.runs)


def without_effect(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys of the file that ask for something else than what runs."""
    for item in _silent(subject, dict(written(subject))):
        if item.matters:
            yield _say(item, subject, rule)


def without_need(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys of the file that have no effect and ask for what happens anyway."""
    items = [item for item in _silent(subject, dict(written(subject))) if not item.matters]
    if items:
        names = [item.key for item in items]
        message = f"{listed(names)} ha{'s' if len(names) == 1 else 've'} no effect; what is asked for happens anyway"
        labels = tuple((item.key, item.why) for item in items[1:])
        fix = Fix("drop it" if len(names) == 1 else "drop them", "safe", tuple(Change("drop", name) for name in names))
        yield say(rule, subject, message, tuple(names), labels=labels, fixes=(fix,), at_key=True)


def preset_without_effect(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys of the model preset that ask for something else than what runs."""
    given = {key: value for key, value in subject.section.values.items() if value.origins[0].layer == "model-preset"}
    items = [item for item in _silent(subject, given) if item.matters]
    if items:
        parts = [f"{item.key} {shown(item.asked)}{_runs(item)}" for item in items]
        message = f"the model preset {subject.section.model} asks in vain for {listed(parts, 4)}"
        if len(items) == 1 and items[0].instead is not None:
            message += f"; {items[0].instead} is the key that works"
        labels = tuple((item.key, item.why) for item in items)
        yield say(rule, subject, message, tuple(item.key for item in items), labels=labels)


def module_preset_without_effect(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys of the module preset that no code reads, those with a new name first."""
    given = {key: value for key, value in subject.section.values.items() if value.origins[0].layer == "module-preset"}
    own = f"/{subject.section.module_preset}.yaml"  # what the preset itself says, before what it inherits

    def rank(item: Silent) -> tuple[bool, ...]:
        inherited = not str(given[item.key].origins[0].path).endswith(own)
        return inherited, item.instead is None, not item.matters

    items = sorted(_silent(subject, given), key=rank)
    if items:
        parts = [f"{item.key} ({item.instead} is read)" if item.instead else item.key for item in items]
        message = f"the module preset {subject.section.module_preset} holds keys that nothing reads: {listed(parts, 5)}"
        labels = tuple((item.key, item.why) for item in items[:4])
        yield say(rule, subject, message, tuple(item.key for item in items[:4]), labels=labels)


def deprecated(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Old spellings that still work."""
    table = keys_of(subject)
    for key, value in written(subject):
        entry = table.get(key)
        if entry is not None and entry.get("state") == "deprecated" and value.value not in EMPTY:
            to = entry.get("to")
            note = f" ({entry['note']})" if entry.get("note") else ""
            message = f"{key} is an old spelling{note}" + (f"; use {to}" if to else "")
            yield say(rule, subject, message, (key,), at_key=True)


def other_model(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys that only another kind of model reads."""
    table = keys_of(subject)
    found: dict[str, list[str]] = {}
    for key, value in written(subject):
        entry = table.get(key)
        if entry is None or key in STANDS_FOR or value.value == entry.get("default"):
            continue
        if _in_scope(entry, subject) is False:
            found.setdefault(str(entry["scope"]), []).append(key)
    for scope, names in found.items():
        message = f"{listed(names)} {'is' if len(names) == 1 else 'are'} read only with {scope}"
        yield say(rule, subject, message, tuple(names), at_key=True)


def _silent(subject: Subject, given: dict[str, Value]) -> Iterator[Silent]:
    """The given keys that have no effect, with what happens instead."""
    if not name_of(subject) or name_of(subject) == "megatron_bridge":
        return
    table, removed = keys_of(subject), removed_of(subject)
    for key, value in given.items():
        if is_environment_name(key):
            continue
        entry = table.get(key) or removed.get(key)
        if entry is None:
            continue
        state = str(entry.get("state"))
        outside = _in_scope(entry, subject) is False
        if state not in NO_EFFECT and not (outside and key in STANDS_FOR):
            continue
        instead = STANDS_FOR.get(key) or entry.get("to")
        why = f"read only with {entry['scope']}" if outside else _why(state, entry)
        yield Silent(key, value.value, why, _what_runs(key, value.value, instead, entry, subject), instead)


def _why(state: str, entry: dict[str, Any]) -> str:
    if entry.get("note"):
        return str(entry["note"])
    if state == "removed":
        gone = str(entry.get("gone") or "")
        return f"removed{f' in {gone[:4]}' if gone else ''}"
    return {"dead": "no code reads it", "inert": "without effect on training", "renamed": "the key was renamed"}[state]


def _in_scope(entry: dict[str, Any], subject: Subject) -> bool | None:
    """Whether the section is of the kind that a key is meant for; None when that cannot be said."""
    name, _, wanted = str(entry.get("scope") or "").partition(": ")
    if not wanted:
        return None
    value = subject.section.get(name)
    if name == "model_type":
        return str(value if value is not None else "gpt") == wanted
    return bool(value) == (wanted == "true")


def _what_runs(key: str, asked: Any, instead: str | None, entry: dict[str, Any], subject: Subject) -> Any:
    """The value that is in force in place of the asked one; UNKNOWN when nothing stands in its place."""
    if key in ALWAYS:
        if key == "rope_scaling_factor" and not subject.section.get("use_rope_scaling"):
            return asked
        return ALWAYS[key]
    if subject.section.framework != "megatron":
        return entry.get("default", UNKNOWN)
    names = subject.lowered.namespace
    if key == "virtual_pipeline_model_parallel_size":
        return None if asked is None else _virtual_size(names)
    if key == "params_dtype":
        return "bf16" if names.get("bf16") else "fp16" if names.get("fp16") else "fp32"
    if instead in STANDS_FOR.values() and instead is not None:
        value = names.get(instead)
        if instead == "layernorm_epsilon" and value is None:
            return 1e-5
        return value if value is not None or instead in PRECISION else UNKNOWN
    return UNKNOWN


def _virtual_size(names: Any) -> Any:
    try:
        return names["vpp"]
    except (TypeError, KeyError, ValueError, ZeroDivisionError):
        return UNKNOWN


def _same(asked: Any, runs: Any) -> bool:
    if isinstance(asked, str) and isinstance(runs, str):
        short = {"bfloat16": "bf16", "torch.bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
        return short.get(asked, asked) == short.get(runs, runs)
    if isinstance(asked, str) and isinstance(runs, float):
        try:
            return float(asked) == runs
        except ValueError:
            return False
    return bool(asked == runs)


def _runs(item: Silent) -> str:
    return "" if item.runs is UNKNOWN else f" (runs with {shown(item.runs)})"


def _say(item: Silent, subject: Subject, rule: dict[str, Any]) -> Finding:
    message = f"{item.key} has no effect ({item.why})"
    if item.runs is not UNKNOWN:
        message = f"{item.key} {shown(item.asked)} has no effect ({item.why}): the run uses {shown(item.runs)}"
    fixes: tuple[Fix, ...] = ()
    if item.instead is not None and item.instead in STANDS_FOR.values():
        beside = item.instead in {key for key, _ in written(subject)}
        message += f"; {item.instead} is the key that works{', and it is set as well' if beside else ''}"
        if not beside:
            fixes = (Fix(f"rename it to {item.instead}", "unsafe", (Change("rename", item.key, item.instead),)),)
    elif item.instead is not None:
        message += f"; see {item.instead}"
    if item.key == "virtual_pipeline_model_parallel_size" and isinstance(item.asked, int):
        fixes = (Fix(f"rename it to {item.instead}", "safe", (Change("rename", item.key, str(item.instead)),)),)
    severity = "error" if STANDS_FOR.get(item.key) in PRECISION else rule["severity"]  # another number format trains
    return say(rule, subject, message, (item.key,), fixes=fixes, at_key=True, severity=severity)
