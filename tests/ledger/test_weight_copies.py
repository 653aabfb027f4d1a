"""FP8 copies of weights, by hand on Llama-3.1-8B: 32 layers of 218,103,808 GEMM elements."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.support import account
from tests.oracle.recipes import MODELS

LLAMA = MODELS["llama3.1-8b"]
LAYER = 4096 * (4096 + 6144 + 28672 + 14336)
W = 32 * LAYER
DELAYED = {"fp8": "hybrid", "fp8_recipe": "delayed"}
TENSORWISE = {"fp8": "hybrid", "fp8_recipe": "tensorwise"}
BLOCKWISE = {"fp8": "hybrid", "fp8_recipe": "blockwise"}
MX = {"fp8": "e4m3", "fp8_recipe": "mxfp8"}
TURBO = {"enable_primus_turbo": True, "use_turbo_gemm": True}


def copies(changes: dict[str, Any], gpu: str, framework: str = "megatron") -> int:
    found = account({**LLAMA, **changes}, 8, gpu=gpu, framework=framework, version="d3528a21").ranks[0]
    return int(found.items["FP8 weight copies"].bytes) if "FP8 weight copies" in found.items else 0


@pytest.mark.parametrize(
    ("changes", "gpu", "expected"),
    [
        ({}, "h100", 0),
        (DELAYED, "h100", 2 * W),  # data and transpose
        (DELAYED, "b200", W),  # one layout does
        (DELAYED, "mi300x", 2 * W),
        (DELAYED, "mi355x", 2 * W),
        (MX, "b200", 2 * W + 2 * W // 32),  # a scale byte per 32 elements
        (BLOCKWISE, "h100", 2 * W + 4 * (2 * W // 16384)),  # 4 B per 128 x 128
        ({"fp4": "e2m1", "fp4_recipe": "nvfp4"}, "b200", 2 * W // 2 + 2 * W // 16),  # half a byte, a scale per 16
        ({**DELAYED, "no_fp8_weight_transpose_cache": True}, "mi300x", W),
        ({**DELAYED, "fp8_param_gather": True}, "h100", 0),
        (
            {**DELAYED, "first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 1, "num_layers_at_end_in_bf16": 2},
            "h100", 2 * 29 * LAYER,
        ),
    ],
)  # fmt: skip
def test_transformer_engine(changes: dict[str, Any], gpu: str, expected: int) -> None:
    framework = "primus-megatron" if "no_fp8_weight_transpose_cache" in changes else "megatron"
    assert copies(changes, gpu, framework) == expected


@pytest.mark.parametrize(
    ("recipe", "expected"), [(TENSORWISE, W), (BLOCKWISE, 2 * W + 4 * (2 * W // 16384)), (MX, 2 * W + 2 * W // 32)]
)
def test_turbo_caches_for_the_other_micro_batches(recipe: dict[str, Any], expected: int) -> None:
    assert copies({**TURBO, **recipe}, "mi355x", "primus-megatron") == expected
    assert copies({**TURBO, **recipe, "global_batch_size": 8}, "mi355x", "primus-megatron") == 0


def layers(changes: dict[str, Any], gpu: str) -> int:
    found = account({**LLAMA, **TURBO, **changes}, 8, gpu=gpu, framework="primus-megatron", version="d3528a21").ranks[0]
    return int(found.items["activations dense layers fp8"].bytes)


def test_turbo_pins_a_transposed_copy_per_call_on_gfx950() -> None:
    assert layers(TENSORWISE, "mi355x") - layers(TENSORWISE, "mi300x") == W
    assert layers(BLOCKWISE, "mi355x") == layers(BLOCKWISE, "mi300x")


def test_turbo_pins_the_only_copy_of_a_single_micro_batch() -> None:
    once = {"global_batch_size": 8}
    assert layers({**TENSORWISE, **once}, "mi300x") - layers(TENSORWISE, "mi300x") == W
    assert layers({**TENSORWISE, **once}, "mi355x") == layers(TENSORWISE, "mi355x")


def test_experts_that_run_in_bf16_have_no_copies() -> None:
    """Mixtral-8x22B at EP 8: one expert of 3 x 6144 x 16384 a rank and layer, attention 2 x 6144^2 + 2 x 1024 x 6144."""
    args = {**MODELS["mixtral-8x22b"], **DELAYED, "expert_model_parallel_size": 8}
    attention, expert = 6144 * (2 * 6144 + 2 * 1024), 3 * 6144 * 16384

    def found(changes: dict[str, Any]) -> int:
        where = {"gpu": "mi300x", "framework": "primus-megatron", "version": "d3528a21"}
        return int(account({**args, **changes}, 8, **where).ranks[0].items["FP8 weight copies"].bytes)

    assert found({}) == 56 * 2 * (attention + expert)
    assert found({"no_fp8_weight_transpose_cache": True}) == 56 * (attention + 2 * expert)  # grouped is not patched
    assert found({"moe_use_legacy_grouped_gemm": True}) == 56 * 2 * attention
    turbo = {"enable_primus_turbo": True, "use_turbo_grouped_gemm": True}
    assert found(turbo) == 56 * 2 * attention  # Turbo has no delayed scaling: bf16
    assert found({**turbo, **TENSORWISE}) == 56 * (2 * attention + expert)


@pytest.mark.parametrize(
    ("changes", "gpu", "each"),
    [(TENSORWISE, "h100", 0), (TENSORWISE, "b200", -1), (MX, "b200", 2 / 32), (BLOCKWISE, "h100", 4 * 2 / 16384)],
)
def test_primary_weights_in_fp8(changes: dict[str, Any], gpu: str, each: float) -> None:
    """One byte an element instead of two, and a transpose where both layouts are needed; scales."""
    found = account({**LLAMA, **changes, "fp8_param_gather": True}, 8, gpu=gpu).ranks[0]
    assert found.items["weights in FP8"].bytes == W * each
