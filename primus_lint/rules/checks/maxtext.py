"""MaxText: its device mesh, and settings that upstream documents as needed together."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from primus_lint.readers.tables import table
from primus_lint.rules.checks.key_facts import listed, say, shown
from primus_lint.rules.finding import Change, Fix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

# What decides which tensors of a layer are kept, in the decoder of upstream's model.
REMAT_POLICIES = (
    "full", "none", "custom", "minimal", "minimal_flash", "minimal_offloaded", "minimal_with_context",
    "minimal_with_quantization", "minimal_with_context_and_quantization", "qkv_proj_offloaded", "save_dot_except_mlp",
    "save_dot_except_mlpwi", "save_dot_with_context_except_mlp", "save_out_proj", "save_qkv_proj",
)  # fmt: skip


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


def remat_policy(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A name that the decoder does not know."""
    from primus_lint.rules.checks.choice_effects import meant

    policy = subject.section.get("remat_policy")
    if policy is None or policy in REMAT_POLICIES:
        return
    near = meant(policy, list(REMAT_POLICIES))
    fixes = () if near is None else (Fix(f"write {near}", "safe", (Change("set", "remat_policy", near),)),)
    message = f"remat_policy {shown(policy)} is not known; there are {', '.join(REMAT_POLICIES)}"
    yield say(rule, subject, message, ("remat_policy",), fixes=fixes)


def mesh(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Axes that do not make a mesh of the devices: inside of a slice (`ici_`), between slices (`dcn_`). What counts as a
    slice of several nodes is for JAX to say, so those are held to divisibility alone."""
    world, known = subject.target.world_size, 1
    for group in ("ici", "dcn"):
        axes = _axes(subject, group)
        free = [key for key, size in axes.items() if size == -1]
        if len(free) > 1:
            yield say(rule, subject, f"{listed(free)} are all -1: MaxText works out one of them", tuple(reversed(free)))
            return
        sizes = {key: size for key, size in axes.items() if size not in (1, -1)}
        product = prod(sizes.values())
        known *= product
        if world is None or world > subject.target.gpus_per_node:
            continue
        devices = world if group == "ici" else 1  # one node is one slice
        if devices % product if free else devices != product:
            what = f"{world} GPUs" if group == "ici" else "the one slice that a node is"
            shown_sizes = " x ".join(f"{key} {size}" for key, size in sizes.items()) or f"no {group} axis above 1"
            message = f"{shown_sizes} = {product} {'does not divide' if free else 'is not'} {what}"
            yield say(rule, subject, message, tuple(sizes) or tuple(axes)[:1])
            return
    if world is not None and world % known:
        yield say(rule, subject, f"the axes multiply to {known}, which does not divide {world} GPUs", tuple(
            key for group in ("ici", "dcn") for key, size in _axes(subject, group).items() if size not in (1, -1)
        ))  # fmt: skip


def _axes(subject: Subject, group: str) -> dict[str, int]:
    """The axes of one level with their sizes; {} when one is no number (another rule says so)."""
    keys = table("maxtext")["keys"]
    found = {
        key: subject.section.get(key) if key in subject.section.values else facts.get("default")
        for key, facts in keys.items()
        if key.startswith(f"{group}_") and key.endswith("_parallelism") and key != f"{group}_parallelism"
    }
    if any(type(size) is not int or size == 0 for size in found.values()):
        return {}
    return {key: size for key, size in found.items() if size is not None}
