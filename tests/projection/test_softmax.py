"""The softmax of an unfused attention core: one kernel where Megatron's takes the shapes, single steps otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from primus_lint.ir.record import replace
from primus_lint.projection import traffic

from .recipes import run

LOCAL = {
    "transformer_impl": "local",
    "attention_backend": "local",
    "masked_softmax_fusion": True,
    "attention_dropout": 0.0,
}


def recipe(**args: Any) -> Any:
    """GPT-3's 96 heads at TP 8: 12 matrices a rank and sequence."""
    values = {**LOCAL, "tensor_model_parallel_size": 8, "seq_length": 2048, "bf16": True, **args}
    return run("gpt3-175b", world_size=8, **values)


def forward_bytes(one: Any) -> float:
    return float(traffic.softmax(one, 1000).forward_bytes / 1000)


def test_shapes_of_the_kernel() -> None:
    """The conditions of Megatron-Core's `FusedScaleMaskSoftmax.is_kernel_available`."""
    assert forward_bytes(recipe()) == 4  # two bytes in, two out
    assert forward_bytes(recipe(seq_length=8192)) == 29  # scale, mask, upcast, softmax, downcast
    assert forward_bytes(recipe(seq_length=1026, micro_batch_size=2)) == 29
    assert forward_bytes(recipe(masked_softmax_fusion=False)) == 29
    odd = recipe()
    odd = replace(odd, model=replace(odd.model, num_attention_heads=8))  # one matrix a rank
    assert forward_bytes(odd) == 29
    four = replace(odd, batch=replace(odd.batch, micro_batch_size=4))
    assert forward_bytes(four) == 4


def test_fp32_has_no_kernel_and_no_casts() -> None:
    """Scale (4 + 4), mask (4 + 1 + 4) and softmax (4 + 4)."""
    assert forward_bytes(recipe(bf16=False)) == 25


def test_dropout_reads_and_writes_values_and_a_mask() -> None:
    assert forward_bytes(recipe(attention_dropout=0.1)) == 4 + 5
    assert forward_bytes(recipe(attention_dropout=0.1, bf16=False)) == 25 + 9


def test_grids_agree_with_single_recipes() -> None:
    one = recipe()
    sizes = np.array([1, 2, 3, 4])
    heads = replace(one, model=replace(one.model, num_attention_heads=8))
    grid = traffic.softmax(replace(heads, batch=replace(heads.batch, micro_batch_size=sizes)), 1000)
    for index, size in enumerate(sizes):
        alone = traffic.softmax(replace(heads, batch=replace(heads.batch, micro_batch_size=int(size))), 1000)
        assert grid.forward_bytes[index] == pytest.approx(alone.forward_bytes)
        assert grid.forward_kernels[index] == alone.forward_kernels
