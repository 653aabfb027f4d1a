"""Legal and fitting, but slow: each check tries the other choice with the same rules, ledger and projection.

A check looks at the recipe and its projection first, and asks `what_if` once at most: only where the trigger holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make
from primus_lint.rules.finding import Change, Fix
from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Run
    from primus_lint.projection import Projection
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

FEW_ROWS = (
    1024  # of an expert and micro-batch; H100's fused experts reach 20 % of peak at 64-256, 48 % at 256-1k, 70 % above
)
UNEVEN = 0.10  # busy time of the slowest pipeline rank over the mean
IDLE = 0.15  # share of the step that a pipeline stands idle
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
    if run.parallel.pp == 1 or projection.bubble_fraction < IDLE:
        return
    microbatches = run.batch.num_microbatches
    message = (
        f"the pipeline stands idle for {projection.bubble_fraction:.0%} of the step: {microbatches} micro-batches on "
        f"{run.parallel.pp} pipeline ranks"
    )
    keys = ("pipeline_model_parallel_size", "global_batch_size", "micro_batch_size")
    vpp = _virtual_stages(run)
    outcome = None if vpp is None else _what_if(subject, {"num_virtual_stages_per_pipeline_rank": vpp})
    if outcome is None or outcome.fits is False or outcome.gain < WORTH:
        yield make(rule, subject.lowered, message, keys)
        return
    message += f"; {vpp} virtual stages a rank gain about {outcome.gain:.0%} tokens/s"
    if outcome.bubble_fraction >= IDLE:  # a step in the right direction, and no cure
        yield make(rule, subject.lowered, f"{message} and leave {outcome.bubble_fraction:.0%}", keys)
        return
    yield _finding(subject, rule, message, keys, outcome.changes, f"use {vpp} virtual stages per pipeline rank")


def _virtual_stages(run: Run) -> int | None:
    """A number of virtual stages to try: four, or what divides the layers of a rank next to it."""
    if run.model.num_layers % run.parallel.pp or run.parallel.vpp > 1 or run.schedule.kind != "1f1b":
        return None
    each = run.model.num_layers // run.parallel.pp
    return next((vpp for vpp in (4, 5, 3, 2, 6, 7, 8) if each % vpp == 0), None)


def group_across_nodes(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """Tensor or expert parallel groups that leave their node (or NVLink rack) pay the network in every layer."""
    from primus_lint.projection import facts

    domains = facts.straddling(projection)
    groups = [
        ("tensor", run.parallel.tp, "tensor_model_parallel_size", "tp"),
        ("expert", run.parallel.ep, "expert_model_parallel_size", "ep"),
    ]
    out = [group for group in groups if domains[group[3]] and facts.share(projection, group[3]) > 0.05]
    if not out or subject.accelerator is None:
        return
    step_s = float(projection.iteration_s)
    price = float(facts.straddle_price_s(run, projection, subject.accelerator)) / step_s
    for kind, size, key, part in out:
        yield make(
            rule, subject.lowered,
            f"the {kind}-parallel group of {size} GPUs spans {domains[part] + 1} nodes: its exposed communication is "
            f"{facts.share(projection, part):.0%} of the step; inside one node all groups together would save {price:.0%}",
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


def few_tokens_per_expert(
    subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]
) -> Iterator[Finding]:
    """Experts see so few rows that their weights are read for little work; a larger expert-parallel group feeds them."""
    from primus_lint.projection import facts

    rows, moe = facts.tokens_per_local_expert(run), run.model.moe
    if moe is None or rows >= FEW_ROWS:
        return
    if facts.share(projection, "grouped_gemm") + facts.share(projection, "host") < 0.1:  # a launch an expert and matrix
        return
    ep = run.parallel.ep * 2
    if moe.num_experts % ep or ep * run.parallel.etp > subject.target.gpus_per_node:
        return
    outcome = _what_if(subject, {"expert_model_parallel_size": ep})
    if outcome is None or outcome.fits is False or outcome.gain < WORTH:
        return
    message = (
        f"an expert computes {rows:.0f} rows a micro-batch, too few to fill the device: expert parallelism {ep} doubles them "
        f"and gains about {outcome.gain:.0%} tokens/s"
    )
    keys = ("expert_model_parallel_size", "micro_batch_size")
    yield _finding(subject, rule, message, keys, outcome.changes, f"use expert_model_parallel_size {ep}")


def slow_dispatcher(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """Every copy of a token travels, where DeepEP sends it to each rank and node once."""
    from primus_lint.projection import facts

    moe = run.model.moe
    if moe is None or moe.dispatcher == "flex" or run.parallel.ep * run.parallel.etp < 2:
        return
    if facts.share(projection, "ep") < 0.1:
        return
    changes: dict[str, Any] = {"moe_router_dtype": "fp32"} if run.args.get("moe_router_dtype") != "fp32" else {}
    if run.framework == "primus-megatron":
        changes["use_turbo_deepep"] = True
        if not run.args.get("enable_primus_turbo"):
            changes["enable_primus_turbo"] = True
    elif run.kernels.vendor == "cuda":
        changes |= {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}
    else:
        return
    outcome = _what_if(subject, changes)
    if outcome is None or outcome.fits is False or outcome.gain < 2 * WORTH:
        return
    message = (
        f"the {moe.dispatcher} dispatcher sends {moe.router_topk} copies of every token, {facts.share(projection, 'ep'):.0%} "
        f"of the step is exposed exchange: DeepEP gains about {outcome.gain:.0%} tokens/s"
    )
    keys = ("moe_token_dispatcher_type", "use_turbo_deepep")
    yield _finding(subject, rule, message, keys, outcome.changes, "exchange tokens with DeepEP", "unsafe")


def no_fp8(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """A device with FP8 runs its products in 16 bits."""
    from primus_lint.projection import facts

    precision, accelerator = run.precision, subject.accelerator
    if accelerator is None or "fp8" not in accelerator.peak_flops or precision.params_dtype != "bf16":
        return
    products = facts.share(projection, "gemm") + facts.share(projection, "grouped_gemm")
    if precision.fp8 is not None or precision.fp4 is not None or products < 0.3:
        return
    outcome = _what_if(subject, {"fp8": "hybrid"})
    if outcome is None or outcome.fits is False or outcome.gain < 5 * WORTH:
        return
    message = f"{accelerator.name} has FP8 and the products take {products:.0%} of the step: fp8 hybrid gains about {outcome.gain:.0%} tokens/s"
    yield _finding(subject, rule, message, ("fp8", "bf16"), outcome.changes, "compute products in FP8", "display-only")


def unaligned_products(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """Matrices whose rows do not start at multiples of 16 bytes leave the fast path of the matrix units."""
    from primus_lint.projection import shapes

    wide = 8 if run.precision.params_dtype in ("bf16", "fp16") else 4
    model, parallel = run.model, run.parallel
    held = shapes.tokens(run)
    products = [
        *shapes.attention_gemms(model, parallel, held),
        *shapes.mlp_gemms(model, parallel, held, model.ffn_hidden_size),
    ]
    if model.moe is not None:
        products += shapes.expert_gemms(model, parallel, shapes.routing(model.moe, parallel, held))
    odd = sorted({size for product in products for size in (product.n, product.k) if size % wide})
    head = model.kv_channels if model.mla is None else model.mla.v_head_dim
    if head % wide:
        odd.append(head)
    if not odd:
        return
    sizes = ", ".join(f"{size} ({size - size % wide or wide} or {size - size % wide + wide})" for size in odd)
    message = (
        f"matrices of a rank have sides of {sizes} elements: only multiples of {wide} (16 bytes) run at full speed"
    )
    keys = ("ffn_hidden_size", "moe_ffn_hidden_size", "kv_channels", "hidden_size", "tensor_model_parallel_size")
    yield make(rule, subject.lowered, message, tuple(key for key in keys if run.args.get(key) is not None))


def uneven_stages(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """One pipeline rank works longer than the others, which wait for it in every micro-batch."""
    from primus_lint.projection import facts

    pp, layers = run.parallel.pp, run.model.num_layers
    if pp == 1 or run.parallel.vpp > 1 or layers % pp or run.schedule.kind != "1f1b":
        return
    extra = float(facts.stage_imbalance(projection))
    each, slowest = layers // pp, max(range(pp), key=lambda rank: float(projection.per_stage_s[rank]))
    if extra < UNEVEN or slowest != pp - 1 or run.args.get("pipeline_model_parallel_layout"):
        return
    last = next((n for n in range(each - 1, 0, -1) if (layers - n) % (pp - 1) == 0), None)
    outcome = None if last is None else _what_if(subject, {"decoder_last_pipeline_num_layers": last})
    if last is None or outcome is None or outcome.fits is False or outcome.gain < WORTH:
        return
    message = (
        f"the last pipeline rank holds the head and {each} layers and works {extra:.0%} longer than the mean: {last} layers "
        f"on it gain about {outcome.gain:.0%} tokens/s"
    )
    keys = ("pipeline_model_parallel_size", "num_layers")
    yield _finding(subject, rule, message, keys, outcome.changes, f"put {last} layers on the last rank")


def tensor_overlap_off(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """Tensor-parallel collectives wait for their products although TransformerEngine could pipeline them."""
    from primus_lint.projection import facts

    kernels = run.kernels
    if run.parallel.tp == 1 or not run.parallel.sequence_parallel or kernels.tp_comm_overlap:
        return
    if kernels.vendor != "cuda" or kernels.implementation != "transformer_engine":
        return
    if run.parallel.tp > subject.target.gpus_per_node or facts.share(projection, "tp") < 0.08:
        return
    outcome = _what_if(subject, {"tp_comm_overlap": True})
    if outcome is None or outcome.fits is False or outcome.gain < 2 * WORTH:
        return
    message = (
        f"tensor-parallel communication is exposed for {facts.share(projection, 'tp'):.0%} of the step: tp_comm_overlap "
        f"gains about {outcome.gain:.0%} tokens/s"
    )
    yield _finding(subject, rule, message, ("tp_comm_overlap", "tensor_model_parallel_size"), outcome.changes,
                   "overlap tensor-parallel communication")  # fmt: skip


def expert_overlap_off(subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]) -> Iterator[Finding]:
    """Tokens are exchanged while the device waits, although another micro-batch could compute."""
    from primus_lint.projection import facts

    if run.model.moe is None or run.parallel.ep == 1 or run.schedule.overlap_moe_ep:
        return
    if (run.parallel.pp > 1 and run.parallel.vpp == 1) or run.recompute.granularity == "full":
        return
    if facts.share(projection, "ep") < 0.1:
        return
    outcome = _what_if(subject, {"overlap_moe_expert_parallel_comm": True})
    if outcome is None or outcome.fits is False or outcome.gain < 2 * WORTH:
        return
    message = (
        f"the exchange of tokens is exposed for {facts.share(projection, 'ep'):.0%} of the step: behind another "
        f"micro-batch it gains about {outcome.gain:.0%} tokens/s"
    )
    yield _finding(subject, rule, message, ("overlap_moe_expert_parallel_comm", "expert_model_parallel_size"),
                   outcome.changes, "overlap the exchange of tokens")  # fmt: skip


def slow_attention_backward(
    subject: Subject, run: Run, projection: Projection, rule: dict[str, Any]
) -> Iterator[Finding]:
    """The environment denies TransformerEngine the assembly kernel of attention's backward."""
    from primus_lint.projection import facts

    if run.args.get("env_NVTE_CK_USES_BWD_V3") != "0" or run.kernels.turbo_attention or subject.accelerator is None:
        return
    gain = float(projection.iteration_s) / float(facts.with_assembly_backward_s(run, subject.accelerator)) - 1
    if gain < 2 * WORTH:
        return
    message = (
        "NVTE_CK_USES_BWD_V3=0 leaves the backward of attention a composable-kernel version: 1, or Primus-Turbo's attention, "
        f"gains about {gain:.0%} tokens/s"
    )
    yield make(rule, subject.lowered, message, ("use_turbo_attention",))


def _what_if(subject: Subject, changes: dict[str, Any]) -> Any:
    """The outcome of other values; None for a recipe that does not fit as it stands (it has no speed to gain on)."""
    from primus_lint.tune.what_if import what_if

    ledger, accelerator = subject.ledger, subject.accelerator
    if not changes or ledger is None or accelerator is None or ledger.fits(accelerator.visible_hbm_bytes) is False:
        return None
    return what_if(subject, changes)


def _finding(
    subject: Subject, rule: dict[str, Any], message: str, keys: tuple[str, ...], changes: dict[str, Any], title: str,
    safety: str = "safe",
) -> Finding:  # fmt: skip
    fix = Fix(title, safety, tuple(Change("set", key, value) for key, value in changes.items()))
    return make(rule, subject.lowered, message, keys, fixes=(fix,))
