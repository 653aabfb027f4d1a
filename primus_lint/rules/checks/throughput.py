"""Legal and fitting, but slow: each check tries the other choice with the same rules, ledger and projection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make
from primus_lint.rules.finding import Change, Fix
from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Run
    from primus_lint.pipeline import Subject
    from primus_lint.projection import Projection
    from primus_lint.rules.finding import Finding

WORTH = 0.02  # a suggestion must gain two percent: less drowns in the spread of repeated runs


def recompute_without_need(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """Full recomputation although the activations fit without it."""
    if run.recompute.granularity != "full":
        return
    keys = ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_layer_ids")
    outcome = _what_if(subject, {key: None for key in keys if run.args.get(key) is not None})
    if outcome is None or outcome.fits is not True or outcome.gain < WORTH:
        return
    message = (
        f"every recomputed layer runs its forward pass twice, but the recipe fits without: about {outcome.gain:+.0%} tokens/s "
        f"at a peak of {gib(outcome.peak_bytes)}"
    )
    yield _finding(subject, rule, message, keys, outcome.changes, "recompute nothing")


def gradients_not_overlapped(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """Gradient reduction and parameter gathering wait for the whole backward pass."""
    optimizer = run.optimizer
    if (
        optimizer.sharding not in ("none", "distributed")
        or run.parallel.dp in (None, 1)
        or optimizer.overlap_grad_reduce
    ):
        return
    changes: dict[str, Any] = {"overlap_grad_reduce": True}
    if optimizer.sharding == "distributed" and not optimizer.overlap_param_gather:
        changes["overlap_param_gather"] = True
    outcome = _what_if(subject, changes)
    if outcome is None or outcome.fits is False or outcome.gain < WORTH:
        return
    message = f"gradients are reduced after the backward pass instead of during it: overlap gains about {outcome.gain:.0%} tokens/s"
    yield _finding(subject, rule, message, tuple(changes), changes, "overlap the reduction with the backward pass")


def large_bubble(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """The pipeline waits for a large share of the step."""
    if run.parallel.pp == 1 or projection.bubble_fraction < 0.15:
        return
    microbatches = run.batch.num_microbatches
    message = (
        f"the pipeline stands idle for {projection.bubble_fraction:.0%} of the step: {microbatches} micro-batches on "
        f"{run.parallel.pp} pipeline ranks"
    )
    best = None
    if run.model.num_layers % run.parallel.pp == 0 and run.parallel.vpp == 1 and run.schedule.kind == "1f1b":
        each = run.model.num_layers // run.parallel.pp
        for vpp in (2, 4, 5, 3, 8):
            if each % vpp == 0:
                outcome = _what_if(subject, {"num_virtual_stages_per_pipeline_rank": vpp})
                if outcome is not None and outcome.fits is not False and outcome.gain > (best.gain if best else WORTH):
                    best = outcome
    keys = ("pipeline_model_parallel_size", "global_batch_size", "micro_batch_size")
    if best is None:
        yield make(rule, subject.lowered, message, keys)
        return
    vpp = best.changes["num_virtual_stages_per_pipeline_rank"]
    message += f"; {vpp} virtual stages a rank gain about {best.gain:.0%} tokens/s"
    yield _finding(subject, rule, message, keys, best.changes, f"use {vpp} virtual stages per pipeline rank")


def group_across_nodes(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """Tensor or expert parallel groups that span nodes pay the network for every layer."""
    per_node = subject.target.gpus_per_node
    world = subject.target.world_size
    if world is None or world <= per_node:
        return
    step = float(projection.iteration_s)
    for kind, size, key, part in (
        ("tensor", run.parallel.tp, "tensor_model_parallel_size", "tp"),
        ("expert", run.parallel.ep * run.parallel.etp if run.model.moe else 1, "expert_model_parallel_size", "ep"),
    ):
        share = float(projection.breakdown_s.get(part, 0.0)) / step
        if size > per_node and share > 0.05:
            yield make(
                rule, subject.lowered,
                f"the {kind}-parallel group of {size} GPUs spans nodes of {per_node}: its exposed communication is "
                f"{share:.0%} of the step",
                (key,),
            )  # fmt: skip


def micro_batch_small(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """Twice the micro-batch fits and is faster, at the same global batch."""
    moe = run.model.moe
    if moe is not None and (moe.capacity_factor is not None or moe.aux_loss):
        return
    size = run.batch.micro_batch_size
    if size > 2 or run.batch.num_microbatches is None or run.batch.num_microbatches % 2:
        return
    outcome = _what_if(subject, {"micro_batch_size": size * 2})
    if outcome is None or outcome.fits is not True or outcome.gain < 2 * WORTH:
        return
    message = (
        f"micro-batch {size} leaves the device under-filled: {size * 2} fits ({gib(outcome.peak_bytes)}) and gains about "
        f"{outcome.gain:.0%} tokens/s at the same global batch"
    )
    yield _finding(subject, rule, message, ("micro_batch_size",), outcome.changes, f"use micro_batch_size {size * 2}")


def _what_if(subject: Subject, changes: dict[str, Any]) -> Any:
    """The outcome of other values; None for a recipe that does not fit as it stands (it has no speed to gain on)."""
    from primus_lint.tune.what_if import what_if

    ledger, accelerator = subject.ledger, subject.accelerator
    if not changes or ledger is None or accelerator is None or ledger.fits(accelerator.visible_hbm_bytes) is False:
        return None
    return what_if(subject, changes)


def _finding(
    subject: Subject, rule: dict[str, Any], message: str, keys: tuple[str, ...], changes: dict[str, Any], title: str
) -> Finding:
    fix = Fix(title, "safe", tuple(Change("set", key, value) for key, value in changes.items()))
    return make(rule, subject.lowered, message, keys, fixes=(fix,))
