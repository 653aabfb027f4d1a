"""Stack scalar recipes into one grid, and compare the two forms of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primus_lint.ir.record import replace
from primus_lint.ledger import Ledger, ledger

if TYPE_CHECKING:
    from primus_lint.ir.run import Run

FIGURES = (
    "static_bytes", "steady_allocated_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "device_low_bytes",
    "device_high_bytes",
)  # fmt: skip
PARTS = {
    "parallel": ("tp", "cp", "ep", "etp", "dp", "edp", "sequence_parallel"),
    "batch": ("micro_batch_size", "global_batch_size", "num_microbatches", "seq_length"),
    "recompute": ("num_layers",),
}


def stack(runs: list[Run]) -> Run:
    """One Run whose degrees, batch and recomputed layers are arrays; the rest is that of the first."""
    first = runs[0]
    parts = {}
    for part, names in PARTS.items():
        record = getattr(first, part)
        changed = {}
        for name in names:
            values = [getattr(getattr(run, part), name) for run in runs]
            if values[0] is not None:
                changed[name] = np.array(values)
        parts[part] = replace(record, **changed)
    return replace(first, **parts)


class Deviation(NamedTuple):
    """Grid minus scalar, in bytes and as a fraction of the scalar figure, of the worst rank: least and largest."""

    least_bytes: int
    largest_bytes: int
    largest_fraction: float


def deviations(runs: list[Run]) -> dict[str, Deviation]:
    """Per figure, over all recipes of the grid. The figure of a recipe is the largest of its ranks."""
    together = ledger(stack(runs))
    assert isinstance(together, Ledger), together.reasons
    out = {}
    for figure in FIGURES:
        grid: Any = 0
        for rank in together.ranks:
            grid = np.maximum(grid, getattr(rank, figure))
        grid = np.broadcast_to(grid, (len(runs),)).tolist()
        alone = []
        for run in runs:
            found = ledger(run)
            assert isinstance(found, Ledger), found.reasons
            alone.append(max(getattr(rank, figure) for rank in found.ranks))
        differences = [a - b for a, b in zip(grid, alone, strict=True)]
        fractions = [difference / b for difference, b in zip(differences, alone, strict=True)]
        out[figure] = Deviation(min(differences), max(differences), max(fractions))
    return out
