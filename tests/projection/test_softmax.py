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


@pytest.mark.parametrize(("heads", "aligned"), ((96, True), (64, True), (128, False), (32, True)))
def test_heads_off_16_bytes_run_at_the_fp32_rate(heads: int, aligned: bool) -> None:
    """12,288 columns in 96, 64, 32 heads: 128, 192, 384 values each; 13,824 in 128 heads: 108, which is 216 bytes."""
    from primus_lint.projection import compute
    from primus_lint.projection.device import Device
    from primus_lint.projection.layers import contexts
    from primus_lint.projection.placement import place

    from . import plain

    one = recipe()
    width = 13824 if not aligned else 12288
    one = replace(
        one, model=replace(one.model, num_attention_heads=heads, kv_channels=width // heads, num_query_groups=heads)
    )
    acc = plain.accelerator()
    acc.peak_flops = {**acc.peak_flops, "fp32": plain.FLOPS / 16}
    acc.rates = {**acc.rates, "gemm": {**acc.rates["gemm"], "fp32": {**acc.rates["gemm"]["bf16"], "peak": "fp32"}}}
    device = Device(acc, plain.node(), one)
    context = contexts(one, device, place(one.parallel, 8))[False]
    seconds = compute.attention_core(context).forward.parts["attention"][0]
    flops = 2 * 2 * 2048 * 2048 * (heads // 8) * (width // heads)  # scores and values, the whole square
    assert seconds == pytest.approx(flops / (plain.FLOPS if aligned else plain.FLOPS / 16))
