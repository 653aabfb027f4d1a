"""What a linear layer keeps of its input: the tensor itself, or a one-byte copy with its scales.

TransformerEngine: per-tensor recipes (delayed, tensorwise) keep 1 B per element and one fp32 scale; blockwise keeps
fp32 scales per 128 rows and column; mxfp8 one byte per 32 rows and column. FP4 halves the elements, with a scale byte
per 16 (nvfp4) or 32 (mxfp4) rows and column; taken from its structure, not held against the real thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, round_up
from primus_lint.ledger.activations.kind import recipe

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes

SCALE_BYTES = 4
BLOCK = 128
MX_BLOCK = 32
FP4_BLOCK = {"nvfp4": 16, "mxfp4": 32}


def linear_input(sizes: Sizes, low: bool, rows: Any, columns: Any) -> Any:
    """Bytes kept of a [rows, columns] input of a linear layer."""
    if not low:
        return rows * columns * sizes.act
    return quantized(sizes, rows, columns)


def quantized(sizes: Sizes, rows: Any, columns: Any) -> Any:
    """Bytes of the one-byte copy in the layout of the weight-gradient GEMM."""
    how = recipe(sizes.run)
    if how == "blockwise":
        return rows * columns + 4 * ceil_div(rows, BLOCK) * round_up(columns, 4)
    if how == "mxfp8":
        return rows * columns + round_up(ceil_div(rows, MX_BLOCK), 4) * round_up(columns, BLOCK)
    if how in FP4_BLOCK:
        return rows * columns // 2 + round_up(ceil_div(rows, FP4_BLOCK[how]), 4) * round_up(columns, BLOCK)
    return rows * columns + SCALE_BYTES


def keeps_original(sizes: Sizes) -> bool:
    """Megatron asks TE to keep the bf16 tensor where a neighbour keeps it anyway (all recipes but delayed)."""
    return recipe(sizes.run) != "delayed"
