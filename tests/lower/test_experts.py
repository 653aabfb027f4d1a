"""Symbols of experts and context parallelism that depend on single layers."""

from __future__ import annotations

from typing import Any

import pytest

import primus_lint.lower.megatron  # registers the symbols
from primus_lint.lower.megatron.namespace import Namespace

assert primus_lint.lower.megatron


def names(**values: Any) -> Namespace:
    base: dict[str, Any] = {
        "num_layers": 4, "num_experts": None, "moe_layer_freq": 1, "cp_comm_type": ["p2p"], "framework": "megatron",
        "moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.0,
    }  # fmt: skip
    return Namespace({**base, **values})


@pytest.mark.parametrize(
    ("window_size", "skip", "types", "expected"),
    [
        (None, None, ["p2p"], []),
        ([-1, 0], None, ["p2p"], []),  # causal attention to everything
        ("128,0", None, ["p2p"], ["p2p"]),
        ((128, 0), 1, ["p2p"], []),  # every layer attends to everything
        ((128, 0), 2, ["a2a", "p2p", "a2a", "p2p"], ["a2a", "a2a"]),  # layers 2 and 4 attend to everything
        ((128, 0), "[0,1,0,1]", ["a2a", "p2p", "a2a", "p2p"], ["p2p", "p2p"]),
    ],
)
def test_exchange_of_windowed_layers(window_size: Any, skip: Any, types: list[str], expected: list[str]) -> None:
    v = names(window_size=window_size, window_attn_skip_freq=skip, cp_comm_type=types)
    assert v["windowed_context_types"] == expected


@pytest.mark.parametrize(
    ("types", "coefficients", "expected"),
    [
        ("aux_loss", 0.0, False),
        ("aux_loss", 0.01, True),
        ("sinkhorn", 0.01, False),
        (["none", "seq_aux_loss"], [0.01, 0.0], False),
        (["none", "seq_aux_loss"], [0.0, 0.01], True),
    ],
)
def test_auxiliary_loss(types: Any, coefficients: Any, expected: bool) -> None:
    assert names(moe_router_load_balancing_type=types, moe_aux_loss_coeff=coefficients)["has_aux_loss"] is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"num_experts": None}, False),
        ({"num_experts": 8}, True),
        ({"num_experts": 8, "moe_layer_freq": "[0]*4"}, False),
        ({"num_experts": 8, "moe_layer_freq": "[0]*3+[1]"}, True),
        ({"num_experts": 8, "hybrid_layer_pattern": "M-M*"}, False),
        ({"num_experts": 8, "hybrid_layer_pattern": "MEM*"}, True),
    ],
)
def test_some_layer_has_experts(values: dict[str, Any], expected: bool) -> None:
    assert names(**values)["has_expert_layer"] is expected


def test_two_level_exchange() -> None:
    assert names()["inner_exchange"] == 1
    assert names(hierarchical_context_parallel_sizes=[2, 4])["inner_exchange"] == 2
