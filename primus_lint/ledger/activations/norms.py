"""Norms: what they keep for backward, by implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes


def input_bytes(sizes: Sizes, rows: Any, width: Any) -> Any:
    """The norm's input. PyTorch's RMSNorm (local spec) keeps two fp32 tensors instead of it."""
    if sizes.run.kernels.implementation == "local" and sizes.run.model.normalization == "RMSNorm":
        return rows * width * 8
    return rows * width * (4 if sizes.run.precision.fp32_residual else sizes.act)


def statistics_bytes(sizes: Sizes, rows: Any) -> Any:
    """fp32 rsigma per row, and mu for a LayerNorm."""
    return rows * (4 if sizes.run.model.normalization == "RMSNorm" else 8)
