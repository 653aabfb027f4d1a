"""Outside PyTorch: the runtime's context and the communicators' buffers (bands of the hardware database)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where

if TYPE_CHECKING:
    from primus_lint.hardware import Accelerator
    from primus_lint.ledger.sizes import Sizes


def runtime_accelerator(sizes: Sizes, given: Accelerator | None) -> Accelerator:
    """The accelerator whose runtime is meant; without one, the commonest of the recipe's vendor."""
    if given is not None:
        return given
    from primus_lint.hardware import accelerator

    found = accelerator("mi300x" if sizes.run.kernels.vendor == "rocm" else "h100")
    assert found is not None
    return found


def communicators(sizes: Sizes) -> Any:
    """Number of process groups with more than one rank in which a rank communicates."""
    total: Any = 0
    for size in (sizes.tp, sizes.pp, sizes.cp, sizes.ep, sizes.dp, sizes.edp):
        if size is not None:
            total = total + where(size > 1, 1, 0)
    return total
