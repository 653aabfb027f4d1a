"""Norms: what a separate or fused norm keeps for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes


def statistics_bytes(sizes: Sizes, rows: Any) -> Any:
    """fp32 rsigma per row, and mu for a LayerNorm (TransformerEngine's and Apex's kernels)."""
    return rows * (4 if sizes.run.model.normalization == "RMSNorm" else 8)
