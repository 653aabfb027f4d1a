"""Bytes of FP8 casts against what TransformerEngine's kernels read and write."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.projection.shapes import Gemm, routing, tokens
from primus_lint.projection.traffic import fp8_casts, padding

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


def test_rows_are_padded_only_where_they_are_not_multiples_already() -> None:
    """TransformerEngine's `Fp8Padding` copies the experts' input and output unless all splits are multiples; the legacy grouped
    product (Megatron-Core `GroupedMLP`) never pads."""
    fp8 = {"fp8": "hybrid", "fp8_recipe": "tensorwise", "moe_grouped_gemm": True, "expert_model_parallel_size": 8}

    def copied(**args: Any) -> float:
        recipe = run("qwen3-30b-a3b", **{**fp8, **args})
        assert recipe.model.moe is not None
        routed = routing(recipe.model.moe, recipe.parallel, tokens(recipe))
        return float(padding(recipe, recipe.model.moe, routed).forward_bytes)

    assert copied() == 4 * 2 * 4096 * 8 * 2048  # input and output, read and written
    for settled in (
        {"fp8": None},
        {"moe_router_padding_for_quantization": True},
        {"moe_use_legacy_grouped_gemm": True},
        {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True},
    ):
        assert copied(**settled) == 0
