"""What no framework refuses and reports of real runs teach: each check tries the other choice with the same ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make
from primus_lint.rules.finding import Change, Fix
from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.hardware import Accelerator
    from primus_lint.ledger import Ledger
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject


def logits_spike(subject: Subject, ledger: Ledger, accelerator: Accelerator, rule: dict[str, Any]) -> Iterator[Finding]:
    """The loss in single operations is what does not fit: with a fused loss the recipe does."""
    names = subject.lowered.namespace
    fits = ledger.fits(accelerator.visible_hbm_bytes)
    if fits is True or names.get("cross_entropy_loss_fusion"):
        return
    from primus_lint.tune.what_if import with_changes

    for implementation in ("te", "native"):
        changes = {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": implementation}
        other = with_changes(subject, changes)
        if any(finding.severity == "error" for finding in other.conditions) or other.ledger is None:
            continue
        better = other.ledger.fits(accelerator.visible_hbm_bytes)
        if better is True or (fits is False and better is None):
            saved = ledger.device_bytes[0] - other.ledger.device_bytes[0]
            message = (
                f"the logits of {names['padded_vocab']:,} words are kept in fp32: a fused cross entropy saves "
                f"{gib(saved)} on the stage with the loss, and the recipe {'fits' if better else 'may fit'}"
            )
            fix = Fix(
                f"fuse the cross entropy ({implementation})", "unsafe",
                tuple(Change("set", key, value) for key, value in changes.items()),
            )  # fmt: skip
            yield make(rule, subject.lowered, message, tuple(changes), fixes=(fix,))
            return


def offload_without_need(
    subject: Subject, ledger: Ledger, accelerator: Accelerator, rule: dict[str, Any]
) -> Iterator[Finding]:
    """The optimizer steps on the CPU although its state fits on the device."""
    names = subject.lowered.namespace
    if not names.get("optimizer_cpu_offload") or not names.get("optimizer_offload_fraction"):
        return
    from primus_lint.tune.what_if import with_changes

    other = with_changes(subject, {"optimizer_cpu_offload": False})
    if any(finding.severity == "error" for finding in other.conditions) or other.ledger is None:
        return
    if other.ledger.fits(accelerator.visible_hbm_bytes) is not True:
        return
    message = (
        f"the optimizer state is kept on the host ({names['optimizer_offload_fraction']:.0%}), but the recipe fits with it on the "
        f"device ({gib(other.ledger.worst_rank.device_high_bytes)}): a step on the CPU is two to four times as long"
    )
    fix = Fix("keep the optimizer state on the device", "safe", (Change("set", "optimizer_cpu_offload", False),))
    yield make(rule, subject.lowered, message, ("optimizer_cpu_offload", "optimizer_offload_fraction"), fixes=(fix,))


def titan_recompute_without_need(
    subject: Subject, ledger: Ledger, accelerator: Accelerator, rule: dict[str, Any]
) -> Iterator[Finding]:
    """Activations are recomputed although all of them fit with a third of the device to spare."""
    mode = subject.lowered.namespace["activation_checkpoint.mode"]
    if mode not in ("full", "selective"):
        return
    from primus_lint.tune.what_if import with_changes

    other = with_changes(subject, {"activation_checkpoint.mode": "none"}).ledger
    capacity = accelerator.visible_hbm_bytes
    if other is None or other.worst_rank.device_high_bytes > capacity * 2 // 3:
        return
    message = (
        f"activations are recomputed ({mode}), but all of them fit: {gib(other.worst_rank.device_high_bytes)} of "
        f"{gib(capacity)} without; a recomputed block runs its forward pass twice"
    )
    fix = Fix("recompute nothing", "safe", (Change("set", "activation_checkpoint.mode", "none"),))
    yield make(rule, subject.lowered, message, ("activation_checkpoint.mode",), fixes=(fix,))


def host_memory_full(
    subject: Subject, ledger: Ledger, accelerator: Accelerator, rule: dict[str, Any]
) -> Iterator[Finding]:
    """What the ranks of one node keep on the host all the time is more than its memory."""
    found = subject.host_memory
    if found is None or found.used.training_bytes <= found.capacity_bytes:
        return
    used = found.used
    message = (
        f"a node's ranks keep {gib(used.training_bytes)} on the host, and a node ({found.node}) usually has "
        f"{gib(found.capacity_bytes)}: the run is killed when the optimizer is built or first steps"
    )
    yield _host_finding(subject, rule, message, used.permanent)


def host_memory_full_at_save(
    subject: Subject, ledger: Ledger, accelerator: Accelerator, rule: dict[str, Any]
) -> Iterator[Finding]:
    """A node's memory holds training, and not what the first checkpoint stages besides."""
    found = subject.host_memory
    if found is None or not found.used.training_bytes <= found.capacity_bytes < found.used.saving_bytes:
        return
    used = found.used
    message = (
        f"saving a checkpoint stages {gib(used.saving_bytes - used.training_bytes)} on a node beside "
        f"{gib(used.training_bytes)} of training, and a node ({found.node}) usually has {gib(found.capacity_bytes)}: "
        "the first save is killed"
    )
    staged = {name: size for name, size in used.items.items() if name not in used.permanent}
    yield _host_finding(subject, rule, message, staged)


HOST_KEYS = {
    "optimizer state": ("optimizer_offload_fraction", "optimizer_cpu_offload"),
    "pinned rounding": ("optimizer_offload_fraction", "optimizer_cpu_offload"),
    "activations": ("cpu_offloading_num_layers", "offload_modules"),
    "data loader": ("create_attention_mask_in_dataloader", "num_workers", "seq_length"),
    "checkpoint gather": ("dist_ckpt_optim_fully_reshardable", "ckpt_format"),
    "checkpoint states": ("save_interval", "no_save_optim"),
    "checkpoint weights": ("save_interval", "ckpt_fully_parallel_save"),
}


def _host_finding(subject: Subject, rule: dict[str, Any], message: str, items: dict[str, int]) -> Finding:
    """Points at the keys of the largest item; the note lists all."""
    ordered = sorted(items.items(), key=lambda pair: -pair[1])
    note = "host memory of a node: " + ", ".join(f"{name} {gib(size)}" for name, size in ordered if size)
    return make(rule, subject.lowered, message, HOST_KEYS[ordered[0][0]], notes=(note,))
