"""Outside PyTorch: the runtime's context and the communicators' buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes

GIB = 1 << 30
# Context: libraries, code objects and scratch of one process; communicators: per group with more than one rank.
CONTEXT_BYTES = {"cuda": (GIB // 2, GIB), "rocm": (GIB // 2, 3 * GIB // 2)}
COMMUNICATOR_BYTES = (64 << 20, 384 << 20)


def context_bytes(sizes: Sizes) -> tuple[int, int]:
    """Low and high estimate of the runtime's context."""
    return CONTEXT_BYTES.get(sizes.run.kernels.vendor, CONTEXT_BYTES["cuda"])


def communicators(sizes: Sizes) -> Any:
    """Number of process groups with more than one rank that a rank communicates in."""
    total: Any = 0
    for size in (sizes.tp, sizes.pp, sizes.cp, sizes.ep, sizes.dp, sizes.edp):
        if size is not None:
            total = total + where(size > 1, 1, 0)
    return total
