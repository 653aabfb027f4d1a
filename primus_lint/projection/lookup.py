"""The way from a device to the user's measurements of it, which costs nothing when there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.formula import where
from primus_lint.measure import where as store

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.measured import Measured


def measured_on(accelerator: Accelerator) -> Measured | None:
    """What the user measured on such a device; without a store of the user's nothing is imported."""
    path = store.existing()
    if path is None:
        return None
    from primus_lint.projection import measured

    return measured.of(path, accelerator)


def known_or(found: Pair, modelled: Pair) -> Pair:
    """What was measured, and the model where that is NaN."""
    known = found[0] == found[0]
    return where(known, found[0], modelled[0]), where(known, found[1], modelled[1])


def unwindowed(run: Run) -> float:
    """Share of the layers that attend to the whole sequence although the model has a window: every n-th one, or the zeros
    of a list (`window_attn_skip_freq`). Layers are priced at the mean."""
    skipped = run.args.get("window_attn_skip_freq")
    if isinstance(skipped, int) and not isinstance(skipped, bool) and skipped > 0:
        return 1 / skipped
    if isinstance(skipped, (list, tuple)) and skipped:
        return sum(1 for item in skipped if not item) / len(skipped)
    return 0.0
