"""Kernels inside a step: the in-situ ratios of hardware_db, and a host that waits for every kernel."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.ir.record import replace
from primus_lint.projection import project
from primus_lint.projection.device import Device
from primus_lint.projection.project import Projection
from primus_lint.projection.shapes import Gemm

from . import plain
from .recipes import run

RATIOS = {"version": 7, "16": {"class": "sixteen", "ratio": 1.2, "low": 1.1, "high": 1.3},
          "8": {"class": "eight", "ratio": 1.5, "low": 1.4, "high": 1.6}}  # fmt: skip


def fitted(node: Any) -> Any:
    """Rates as fits, which are of kernels alone; the plain ones are measured."""
    if isinstance(node, dict):
        return {key: "fitted" if key == "tier" else fitted(value) for key, value in node.items()}
    return node


def projected(recipe: Any, ratios: dict[str, Any] | None = None) -> Projection:
    acc = plain.accelerator()
    acc.rates = {**fitted(acc.rates), "in_situ": ratios or {}}
    found = project(recipe, acc, plain.node())
    assert found is not None
    return found


def test_products_measured_under_sustained_load_take_no_ratio() -> None:
    """SimuMax times products and the backward of attention on B200 in loops as long as a step; the forward is of bursts."""
    b200 = accelerator("b200")
    assert b200 is not None
    recipe = run("llama3-8b", gpu="b200")
    bare = b200.rates["in_situ"]
    b200.rates = {**b200.rates, "in_situ": {}}
    alone = project(recipe, b200)
    b200.rates = {**b200.rates, "in_situ": bare}
    inside = project(recipe, b200)
    assert alone is not None and inside is not None
    assert inside.breakdown_s["gemm"] == alone.breakdown_s["gemm"]
    assert 1.0 < inside.breakdown_s["attention"] / alone.breakdown_s["attention"] < 1 + (bare["16"]["ratio"] - 1) / 2


def test_no_grouped_product_is_faster_than_one_of_all_rows() -> None:
    acc = plain.accelerator()
    fast = {way: {**rate, "math": 4.0} for way, rate in acc.rates["grouped_gemm"]["bf16"].items()}
    acc.rates = {**acc.rates, "grouped_gemm": {"bf16": fast}}
    found = Device(acc, plain.node(), run("llama3-8b")).gemm(Gemm("expert_fc1", 512, 2048, 1024, groups=8), "bf16")
    assert [pair[0] for pair in found] == [pytest.approx(2 * 8 * 512 * 2048 * 1024 / plain.FLOPS)] * 3


def test_products_and_attention_take_longer_in_a_step() -> None:
    recipe = run("llama3-8b")
    alone, inside = projected(recipe), projected(recipe, RATIOS)
    for kind in ("gemm", "attention"):
        assert inside.breakdown_s[kind] == pytest.approx(1.2 * alone.breakdown_s[kind])
    assert inside.breakdown_s["memory_bound"] == alone.breakdown_s["memory_bound"]
    assert inside.breakdown_s["optimizer"] == alone.breakdown_s["optimizer"]
    assert alone.notes == () and len(inside.notes) == 1
    assert (
        "sixteen" in inside.notes[0]
        and "1.20 times (1.10 to 1.30)" in inside.notes[0]
        and "version 7" in inside.notes[0]
    )
    assert inside.as_json()["notes"] == list(inside.notes)


def test_the_bits_of_the_operands_count() -> None:
    recipe = run("llama3-8b", fp8="hybrid", fp8_recipe="delayed", vocab_size=None, padded_vocab_size=128)
    alone, inside = projected(recipe), projected(recipe, RATIOS)
    ratio = inside.breakdown_s["gemm"] / alone.breakdown_s["gemm"]
    assert 1.49 < ratio <= 1.5  # the small head stays in 16 bits
    assert inside.breakdown_s["attention"] == pytest.approx(1.2 * alone.breakdown_s["attention"])


def test_parts_that_power_does_not_bound_have_none() -> None:
    found = {name: accelerator(name) for name in ("a100-80gb", "h100", "gb200", "mi300x", "mi355x")}
    ratios = {name: acc.rates["in_situ"] for name, acc in found.items() if acc is not None}
    assert ratios["a100-80gb"] == ratios["mi300x"] == {}
    assert ratios["h100"]["16"] == ratios["gb200"]["16"] and ratios["h100"]["16"] != ratios["h100"]["8"]
    assert ratios["mi355x"]["16"] == ratios["mi355x"]["8"]


@pytest.mark.parametrize("name", ("CUDA", "HIP"))
def test_a_host_that_waits_for_every_kernel_hides_nothing(name: str) -> None:
    recipe = run("llama3-8b", world_size=1)
    usual = projected(recipe)
    waiting = projected(replace(recipe, args={**recipe.args, f"env_{name}_LAUNCH_BLOCKING": "1"}))
    assert usual.breakdown_s["host"] == 0  # products of 8192 tokens are longer than their launches
    launches = waiting.breakdown_s["host"] / 60e-6 / recipe.batch.num_microbatches / recipe.model.num_layers
    assert launches == pytest.approx(round(launches)) and 30 < launches < 60
    assert waiting.iteration_s == pytest.approx(usual.iteration_s + waiting.breakdown_s["host"])


def test_kernels_launched_in_a_loop_count_for_themselves() -> None:
    """A product over 16 experts is one operation of the host and 16 kernels in a loop, each 48/126 of an operation; quantizing
    the rows of every expert is another such loop. One kernel for all experts (legacy grouped GEMM) is one operation; experts
    that are modules of their own are 16."""
    from primus_lint.projection import compute, shapes
    from primus_lint.projection.device import Device
    from primus_lint.projection.layers import contexts
    from primus_lint.projection.placement import place

    def launches(quantized: bool, grouped: bool = True, **args: Any) -> tuple[float, float]:
        recipe = run("qwen3-30b-a3b", world_size=8, expert_model_parallel_size=8, moe_grouped_gemm=grouped, **args)
        device = Device(plain.accelerator(), plain.node(), recipe)
        context = contexts(recipe, device, place(recipe.parallel, 8))[quantized]
        assert context.routed is not None and context.routed.experts == 16
        block = compute.linear(context, shapes.expert_gemms(recipe.model, recipe.parallel, context.routed)[0])
        return block.forward_launches, block.backward_launches

    loop = 1 + 16 * 48 / 126
    assert launches(False) == pytest.approx((loop, 2 * loop))
    assert launches(True, fp8="hybrid", fp8_recipe="tensorwise") == pytest.approx((2 * loop, 3 * loop))
    assert launches(False, moe_use_legacy_grouped_gemm=True) == (1, 2)
    assert launches(False, grouped=False) == (16, 32)


@pytest.mark.parametrize("gpu", ("a100-80gb", "h100", "b200", "mi300x", "mi355x"))
@pytest.mark.parametrize("args", ({}, {"fp8": "hybrid", "fp8_recipe": "tensorwise"}))
def test_experts_one_by_one_are_never_faster_than_grouped(gpu: str, args: dict[str, Any]) -> None:
    acc = accelerator(gpu)
    for model, ep in (("mixtral-8x7b", 4), ("qwen3-30b-a3b", 8), ("deepseek-v2-lite", 8), ("qwen3-30b-a3b", 1)):
        if args and gpu == "a100-80gb":
            continue
        given = {"gpu": gpu, "expert_model_parallel_size": ep, "moe_token_dispatcher_type": "alltoall", **args}
        steps = [project(run(model, moe_grouped_gemm=grouped, **given), acc) for grouped in (True, False)]
        assert steps[0] is not None and steps[1] is not None
        assert steps[1].iteration_s > steps[0].iteration_s
        assert steps[1].breakdown_s["grouped_gemm"] >= steps[0].breakdown_s["grouped_gemm"]
