"""Which pipeline ranks a grid of recipes has to account for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.ledger.activations.kind import kind_of

if TYPE_CHECKING:
    from primus_lint.ir.run import Run


def heaviest_ranks(run: Run) -> list[int]:
    """The pipeline ranks that no other dominates, for grids: of ranks with equal chunks the first holds most
    micro-batches under 1F1B and its interleaved form. Other schedules keep every rank."""
    assert run.parallel.stages is not None
    ranks = list(range(run.parallel.pp))
    if run.schedule.kind not in ("none", "1f1b", "interleaved"):
        return ranks
    seen = set()
    kept = []
    recomputed = set(run.recompute.layer_ids or ())
    for rank in ranks:
        signature = tuple(
            (
                tuple((kind_of(run, layer), layer in recomputed) for layer in chunk.layers),
                chunk.embedding,
                chunk.loss,
                len(chunk.mtp),
                run.model.num_layers - 1 in chunk.layers,
            )
            for chunk in run.parallel.stages[rank]
        )
        if signature not in seen:
            seen.add(signature)
            kept.append(rank)
    return kept
