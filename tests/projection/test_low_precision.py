"""Which format and library a product of an FP8 recipe runs in, and whose time that is."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.ir.record import replace
from primus_lint.ir.run import Run
from primus_lint.projection import project, shapes
from primus_lint.projection.compute import Context, dtype_of
from primus_lint.projection.device import Device
from primus_lint.projection.placement import place

from .recipes import run

DENSE = shapes.Gemm("fc1", 8192, 14336, 4096, "column")
EXPERTS = shapes.Gemm("expert_fc1", 4096, 2816, 2048, groups=8)
MI355X = accelerator("mi355x")
assert MI355X is not None


def recipe(turbo: bool, **args: Any) -> Run:
    found = run("mixtral-8x7b", gpu="mi355x", expert_model_parallel_size=8, moe_grouped_gemm=True, **args)
    return replace(found, kernels=replace(found.kernels, turbo_gemm=turbo, turbo_grouped_gemm=turbo))


def formats(found: Run) -> tuple[str, str]:
    """Formats of hardware_db of a dense product and of the experts'."""
    device = Device(MI355X, None, found)
    where, held = place(found.parallel, device.domain_gpus), shapes.tokens(found)
    context = Context(found, device, where, held, None, fp8=True)
    dense, experts = (device.dtype(gemm, dtype_of(context, gemm)) for gemm in (DENSE, EXPERTS))
    return dense, experts


@pytest.mark.parametrize(
    ("turbo", "args", "expected"),
    [
        (False, {"fp8": "hybrid", "fp8_recipe": "delayed"}, ("fp8", "fp8")),
        (True, {"fp8": "hybrid", "fp8_recipe": "delayed"}, ("fp8", "bf16")),  # Turbo has no delayed scaling
        (True, {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, ("fp8", "fp8")),
        (False, {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, ("mxfp8", "mxfp8")),
        (True, {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, ("turbo_mxfp8", "turbo_mxfp8")),
        (False, {"fp8": "hybrid", "moe_use_legacy_grouped_gemm": True}, ("fp8", "bf16")),
    ],
)
def test_formats_by_recipe_and_library(turbo: bool, args: dict[str, Any], expected: tuple[str, str]) -> None:
    assert formats(recipe(turbo, **args)) == expected


def test_primus_turbo_s_averages() -> None:
    """Its documentation, TFLOP/s forward of whole operations on MI355X: MXFP8 1,012, bf16 1,535, experts in FP8 1,203 forward
    and 1,305 backward, bf16 1,099. A large product takes its time by them, with nothing for quantizing on top."""
    device = Device(MI355X, None, recipe(True, fp8="e4m3", fp8_recipe="mxfp8"))
    assert not device.quantizes(DENSE, "fp8")
    large = shapes.Gemm("fc1", 16384, 16384, 16384, "column")
    ratios = {"fp8": MI355X.rates["in_situ"]["8"]["ratio"], "bf16": MI355X.rates["in_situ"]["16"]["ratio"]}
    alone = {name: device.gemm(large, name)[0][0] / ratio for name, ratio in ratios.items()}
    flops = 2 * 16384**3
    assert flops / alone["fp8"] == pytest.approx(1012e12, rel=0.03)
    assert flops / alone["bf16"] == pytest.approx(1535e12, rel=0.05)
    tensorwise = Device(MI355X, None, recipe(True, fp8="hybrid", fp8_recipe="tensorwise"))
    assert not tensorwise.quantizes(EXPERTS, "fp8") and tensorwise.quantizes(DENSE, "fp8")
    forward, dgrad, _ = tensorwise.gemm(EXPERTS, "fp8")
    assert forward[0] / dgrad[0] == pytest.approx(1305 / 1203, rel=0.05)


def test_mxfp8_of_transformer_engine_is_faster_than_bf16() -> None:
    args = {"micro_batch_size": 4, "seq_length": 8192, "world_size": 8, "gpu": "mi355x"}
    seconds = [
        project(run("llama3.1-8b", **args, **precision), MI355X).iteration_s  # type: ignore[union-attr,arg-type]
        for precision in ({}, {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, {"fp8": "e4m3", "fp8_recipe": "mxfp8"})
    ]
    assert seconds[2] == pytest.approx(seconds[1], rel=0.03) and seconds[1] < 0.8 * seconds[0]
