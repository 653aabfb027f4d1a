"""MaxText: settings that upstream documents as needed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table
from primus_lint.rules.checks.key_facts import say, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject


def is_moe(subject: Subject) -> bool:
    """Whether the model has experts: by its own key, else by MaxText's model file."""
    experts = subject.section.get("num_experts")
    if isinstance(experts, int):
        return experts > 1
    facts = table("maxtext")["models"].get(str(subject.section.get("model_name")), {})
    return int(facts.get("num_experts") or 1) > 1


def nnx_decoder(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """FP8 of a mixture of experts without `pure_nnx_decoder: false`."""
    quantization = str(subject.section.get("quantization") or "")
    if "fp8" in quantization and is_moe(subject) and subject.section.get("pure_nnx_decoder") is not False:
        message = f"quantization {shown(quantization)} of a mixture of experts needs pure_nnx_decoder: false"
        yield say(rule, subject, message, ("quantization", "pure_nnx_decoder"))
