"""LoRA: frozen products have no weight gradient; adapters are reduced, updated and multiplied."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.projection import Projection, project
from tests.ledger.test_lora import ADAPTERS, LORA

from .recipes import run
from .test_arrays import check


def projected(**args: Any) -> Projection:
    found = project(run("llama3.1-8b", **args), accelerator("h100"))
    assert found is not None
    return found


@pytest.mark.parametrize("tp", (1, 2, 4))
def test_trained_are_the_adapters_alone(tp: int) -> None:
    """Their elements by hand, all four products with 16 hidden values; a tensor rank has its share."""
    found = projected(tensor_model_parallel_size=tp, sequence_parallel=tp > 1, **LORA)
    assert sum(stage.weights for row in found.stages for stage in row) == ADAPTERS // tp


def test_a_frozen_product_runs_twice_instead_of_three_times() -> None:
    whole = projected()
    frozen = projected(**{**LORA, "lora.target_modules": ["linear_proj"], "lora.dim": 1})
    products = frozen.breakdown_s["gemm"] / whole.breakdown_s["gemm"]
    assert 0.62 < products < 0.75  # two of three passes, which differ a little in speed, and a thin adapter
    assert frozen.breakdown_s["attention"] == whole.breakdown_s["attention"]
    assert frozen.breakdown_s["optimizer"] < whole.breakdown_s["optimizer"] / 2


def test_experts_share_one_adapter_a_layer() -> None:
    found = project(
        run("mixtral-8x22b", "h200", 8, expert_model_parallel_size=8, expert_tensor_parallel_size=1, **LORA),
        accelerator("h200"),
    )
    assert found is not None
    assert sum(stage.experts for row in found.stages for stage in row) == 56 * 16 * (2 * 6144 + 3 * 16384)


def test_a_grid_is_its_recipes() -> None:
    check(
        [
            run("llama3.1-8b", tensor_model_parallel_size=tp, micro_batch_size=mbs, sequence_parallel=tp > 1, **LORA)
            for tp in (1, 2, 8)
            for mbs in (1, 2)
        ],
        "h100",
    )
