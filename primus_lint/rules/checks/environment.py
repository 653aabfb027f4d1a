"""The `env:` block of an experiment: what is exported, and what Primus sets itself afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import say
from primus_lint.rules.finding import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.readers.document import Origin
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
BLACKWELL = 10  # its major compute capability


def overridden(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Primus's Megatron backend sets CUDA_DEVICE_MAX_CONNECTIONS itself, after the block was exported."""
    value = subject.document.env.get(CONNECTIONS)
    if value is None or subject.document.format != "primus" or subject.section.framework != "megatron":
        return
    from primus_lint.lower.megatron import launcher_env

    runs = launcher_env(subject.framework, {key: v.value for key, v in subject.section.values.items()})[CONNECTIONS]
    if str(value.value) != runs:
        message = f"{CONNECTIONS}={value.value} does not hold: Primus sets it to {runs} before training"
        yield _say(subject, rule, CONNECTIONS, value.origin, message)


def not_expanded(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """`${NAME:default}` in the block is exported as it stands."""
    document = subject.document
    if document.format != "primus" or subject.section is not document.sections[0]:
        return
    import re

    for name, value in document.env.items():
        if isinstance(value.value, str) and re.search(r"\$\{[^}:]+:[^}]*\}", value.value):
            message = f"{name} is exported as {value.value!r}: `env:` knows $NAME only, no defaults"
            yield _say(subject, rule, name, value.origin, message)


def not_exported(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A launch script under tensor or context parallelism that leaves CUDA_DEVICE_MAX_CONNECTIONS to chance."""
    document, names = subject.document, subject.lowered.namespace
    if document.format != "shell" or CONNECTIONS in subject.exported or not subject.section.whole:
        return
    if any(CONNECTIONS in source.text for source in document.sources.values()):  # for a launcher, or another shell
        return
    arch, sharded = names["arch"], names["use_torch_fsdp2"] or names["use_megatron_fsdp"]
    split = any(isinstance(names[degree], int) and names[degree] > 1 for degree in ("tp", "cp"))
    if not split or sharded or names["overlap_moe_expert_parallel_comm"] or arch is None or arch >= BLACKWELL:
        return
    message = (
        f"the script does not set {CONNECTIONS}: before Blackwell Megatron stops under tensor or context parallelism "
        f"unless it is 1; export {CONNECTIONS}=1, or give what the job sets with --env {CONNECTIONS}=VALUE"
    )
    yield say(rule, subject, message, ("tensor_model_parallel_size" if names["tp"] > 1 else "context_parallel_size",))


def _say(subject: Subject, rule: dict[str, Any], name: str, origin: Origin, message: str) -> Finding:
    place = Place(subject.document.path, origin.line, origin.column, origin.span)
    return say(rule, subject, message, (name,), place=place, key_path=("env", name))
