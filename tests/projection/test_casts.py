"""Bytes of FP8 casts against what TransformerEngine's kernels read and write."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.projection.shapes import Gemm
from primus_lint.projection.traffic import fp8_casts

from .recipes import run

COLUMN, ROW = Gemm("qkv", 100, 30, 20, "column"), Gemm("proj", 100, 30, 20, "row")
INPUT, GRADIENT = 100 * 20, 100 * 30  # values


@pytest.mark.parametrize(
    ("gpu", "precision", "gemm", "forward", "backward"),
    [
        # per-tensor scaling: a transposed copy (1 byte) on Hopper, none on Blackwell, whose products take both layouts
        ("h100", {"fp8": "hybrid", "fp8_recipe": "delayed"}, ROW, 1, 1),
        ("b200", {"fp8": "hybrid", "fp8_recipe": "delayed"}, ROW, 0, 0),
        ("h100", {"fp8": "hybrid", "fp8_recipe": "delayed"}, COLUMN, 0, 1),  # the norm's kernel writes both
        # the maximum of the current tensor is one read of it (2 bytes), which a norm's kernel does on the way
        ("h100", {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, ROW, 3, 3),
        ("h100", {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, COLUMN, 1, 3),
        ("gb300", {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, ROW, 2, 2),
        ("gb300", {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, COLUMN, 0, 2),
        # blocks of rows and of columns differ: two copies everywhere
        ("b200", {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, COLUMN, 1, 1),
    ],
)
def test_bytes_a_value(gpu: str, precision: dict[str, Any], gemm: Gemm, forward: int, backward: int) -> None:
    moved = fp8_casts(run("llama3-8b", gpu=gpu, **precision), gemm)
    assert (moved.forward_bytes, moved.backward_bytes) == (forward * INPUT, backward * GRADIENT)
