"""Memory that Primus's AMD stack takes without saying so: each names the bytes, with the ledger's own formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make
from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Run
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

WORTH_BYTES = 2 << 30


def banded_attention_scratch(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """Turbo attention picks the FlyDSL kernels, whose backward has a buffer per band of the sequence."""
    from primus_lint.ledger.activations.attention import flydsl, sinks
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.transients import attention_workspace

    sizes = Sizes(run)
    if not run.kernels.turbo_attention or not flydsl(sizes) or (sinks(run) and run.parallel.cp == 1):
        return
    scratch = int(attention_workspace(sizes))
    if scratch < WORTH_BYTES:
        return
    message = (
        f"every attention backward needs {gib(scratch)} for the moment: with these heads Turbo attention runs its FlyDSL "
        f"kernels, which have one buffer for each band of the {sizes.seq // sizes.cp:,} tokens"
    )
    yield make(rule, subject.lowered, message, ("use_turbo_attention", "seq_length", "context_parallel_size"))


def worst_case_experts(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """Sync-free stage 3 sizes the rows of the experts for the worst routing."""
    from primus_lint.ir.record import replace
    from primus_lint.ledger.activations.experts import experts
    from primus_lint.ledger.activations.kind import kind_of
    from primus_lint.ledger.activations.tensors import total
    from primus_lint.ledger.sizes import Sizes

    moe = run.model.moe
    if moe is None or run.kernels.sync_free_moe_stage < 3:
        return
    kind = kind_of(run, moe.layer_is_moe.index(True))
    now = total(experts(Sizes(run), kind))
    balanced = total(experts(Sizes(replace(run, kernels=replace(run.kernels, sync_free_moe_stage=2))), kind))
    if now - balanced < 64 << 20:
        return
    message = (
        f"stage 3 sizes the experts for the worst routing: {gib(now)} a layer and micro-batch, where a balanced load needs "
        f"{gib(balanced)}"
    )
    yield make(rule, subject.lowered, message, ("turbo_sync_free_moe_stage",))


def pinned_weights(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """On gfx950 Turbo's per-tensor FP8 products hold a transposed copy of every weight for each micro-batch in flight."""
    from primus_lint.ledger.activations.kind import kind_of
    from primus_lint.ledger.activations.tensors import total
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.weight_copies import pinned

    ledger = subject.ledger
    if not run.kernels.turbo_gemm or run.batch.num_microbatches in (None, 1) or ledger is None:
        return
    assert run.parallel.stages is not None
    sizes = Sizes(run)
    most = 0
    for rank in ledger.ranks:
        held = 0
        for index, chunk in enumerate(run.parallel.stages[rank.pp_rank]):
            suffix = f" (chunk {index})" if run.parallel.vpp > 1 else ""
            items = [rank.items.get(f"activations {name} layers fp8{suffix}") for name in ("dense", "moe")]
            flying = max((item.numbers["n"] for item in items if item is not None), default=0)
            held += flying * sum(int(total(pinned(sizes, kind_of(run, layer)))) for layer in chunk.layers)
        most = max(most, held)
    if run.recompute.granularity == "full" or most < WORTH_BYTES:
        return
    message = (
        f"micro-batches in flight hold {gib(most)} of transposed FP8 weights: on this device Turbo's products with per-tensor "
        "scaling make a copy of every dense weight for each"
    )
    yield make(rule, subject.lowered, message, ("use_turbo_gemm", "fp8_recipe"))
