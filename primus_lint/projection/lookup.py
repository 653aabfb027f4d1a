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
