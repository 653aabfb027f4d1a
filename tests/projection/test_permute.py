"""Bytes that putting tokens in the order of experts and back moves, by dispatcher and fusion."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ir.record import replace
from primus_lint.projection import shapes, traffic

from .recipes import run

TOKENS, TOP, HIDDEN = 4096, 2, 4096  # mixtral-8x7b
ROWS = TOKENS * TOP * HIDDEN  # values of all copies, bf16
DEEP_EP = {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}


@pytest.mark.parametrize(
    ("args", "turbo", "moved"),
    [
        # tokens read, copies written; sorted by expert and back; copies read, tokens written
        ({"moe_permute_fusion": True}, False, 2 * (ROWS / TOP + ROWS) + 8 * ROWS + 2 * (ROWS + ROWS / TOP)),
        # copies are made first and read; their sum swaps words of 4 bytes
        ({}, False, 2 * (ROWS + ROWS) + 8 * ROWS + 2 * (ROWS + ROWS / TOP) + 8 * ROWS),
        # DeepEP's tokens are permuted once, and back
        ({**DEEP_EP, "moe_permute_fusion": True}, False, 8 * ROWS),
        (DEEP_EP, True, 8 * ROWS),  # Primus-Turbo has a kernel of its own
        (DEEP_EP, False, 8 * ROWS + 8 * ROWS),
    ],
)
def test_bytes(args: dict[str, Any], turbo: bool, moved: float) -> None:
    found = run("mixtral-8x7b", expert_model_parallel_size=8, moe_grouped_gemm=True,
                **{"moe_token_dispatcher_type": "alltoall", **args})  # fmt: skip
    found = replace(found, kernels=replace(found.kernels, turbo_deepep=turbo))
    assert found.model.moe is not None
    held = shapes.tokens(found)
    routed = shapes.routing(found.model.moe, found.parallel, held)
    bytes_ = traffic.permutations(found, found.model.moe, held, routed)
    assert bytes_.forward_bytes == bytes_.backward_bytes == moved
