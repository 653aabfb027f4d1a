"""The projection with a store: measured shapes, layers carried to other degrees, collectives, calibration, sources."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primus_lint.hardware import accelerator, node_type
from primus_lint.ir.record import replace
from primus_lint.ir.run import Run
from primus_lint.measure import where
from primus_lint.measure.plan import layer_shape
from primus_lint.measure.records import Measurement
from primus_lint.measure.store import CalibrationRun, Store
from primus_lint.projection import Projection, cost, project
from primus_lint.projection.calibrate import NOTHING, Learned, Lesson, learn, model_of
from primus_lint.projection.device import Device
from primus_lint.projection.layers import contexts, layer
from primus_lint.projection.placement import place
from primus_lint.projection.upscale import TIMED, account
from tests.projection.recipes import run

from .rows import row

Fill = Callable[..., None]
WEIGHTS = {"compute": 0.03, "gemm": 0.1}  # of a calibration run


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    path = str(tmp_path / "store.sqlite")
    monkeypatch.setenv(where.VARIABLE, path)

    def add(*rows: Measurement, runs: tuple[CalibrationRun, ...] = ()) -> None:
        with Store(path, write=True) as store:
            store.add(rows)
            for calibration in runs:
                store.add_run(calibration)

    return add


def projected(recipe: Run) -> Projection:
    found = project(recipe, accelerator("h100"))
    assert found is not None
    return found


def modelled(recipe: Run, moe: bool = False) -> tuple[float, float, float]:
    """Seconds of compute of one layer by the model: forward, input gradient, weight gradient."""
    device = Device(accelerator("h100"), None, recipe)  # type: ignore[arg-type]
    block = layer(contexts(recipe, device, place(recipe.parallel, 8))[False], moe).block
    return tuple(part.of(TIMED) for part in (block.forward, block.backward, block.weight))  # type: ignore[return-value]


def layer_rows(recipe: Run, times: float, kind: str = "dense_layer", **shape: Any) -> list[Measurement]:
    """A layer measured at a recipe's degrees, `times` as slow as the model says."""
    forward, backward, weight = modelled(recipe, kind == "moe_layer")
    key = {**layer_shape(recipe, kind), **shape}
    return [
        row(kind, "forward", key, forward * times),
        row(kind, "backward", key, (backward + weight) * times),
        row(kind, "dgrad", key, backward * times),
    ]


def test_a_measured_product_is_taken_as_it_is(fill: Fill) -> None:
    """fc1 of Llama 3 8B at 4,096 tokens: [4096, 4096] x [4096, 28672]; its input gradient multiplies 28,672 deep."""
    recipe = run("llama3-8b", world_size=8)
    before = projected(recipe)
    fill(
        row("gemm", "TN", {"m": 4096, "n": 28672, "k": 4096}, 5e-3),
        row("gemm", "NN", {"m": 4096, "n": 4096, "k": 28672}, 7e-3),
    )
    after = projected(recipe)
    assert after.source == "mixed" and before.source == "simulated"
    assert {"measured"} <= set(after.tiers["gemm"])
    stage = after.stages[0][0]
    device = Device(accelerator("h100"), None, recipe)  # type: ignore[arg-type]
    from primus_lint.projection.shapes import mlp_gemms, tokens

    fc1 = mlp_gemms(recipe.model, recipe.parallel, tokens(recipe), recipe.model.ffn_hidden_size)[0]
    forward, dgrad, _ = device.gemm(fc1, "bf16")
    assert (forward[0], dgrad[0]) == (pytest.approx(5e-3), pytest.approx(7e-3))
    assert forward[1] == pytest.approx(5e-5)  # the measurement's own spread of 1 %
    assert stage.forward_s > before.stages[0][0].forward_s + 32 * 3e-3  # the model says less than 2 ms for it


def test_another_number_format_or_device_is_no_measurement_of_this_one(fill: Fill) -> None:
    recipe = run("llama3-8b", world_size=8)
    before = projected(recipe).iteration_s
    shape = {"m": 4096, "n": 28672, "k": 4096}
    fill(row("gemm", "TN", shape, 5e-3, dtype="fp16"), row("gemm", "TN", shape, 5e-3, device="h200"))
    assert projected(recipe).iteration_s == before


def test_a_layer_measured_at_these_degrees_counts_as_it_is(fill: Fill) -> None:
    recipe = run("llama3-8b", world_size=8, tensor_model_parallel_size=2, sequence_parallel=True)
    before = projected(recipe)
    fill(*layer_rows(recipe, 1.5))
    after = projected(recipe)
    forward = modelled(recipe)[0]
    slowest = Device(accelerator("h100"), None, recipe).straggling  # type: ignore[arg-type]
    gained = after.stages[0][0].forward_s - before.stages[0][0].forward_s
    assert gained == pytest.approx(32 * forward * 0.5 * (1 + slowest))
    assert after.breakdown_s["tp"] == pytest.approx(
        before.breakdown_s["tp"], rel=1e-9
    )  # collectives are added, not scaled
    assert "measured layer" in after.tiers["gemm"]
    assert any("measured: dense layer at micro_batch_size 1" in note for note in after.notes)
    assert "tensor-parallel collectives" in account(after)[-1]


def test_a_layer_is_carried_to_other_degrees_by_the_model(fill: Fill) -> None:
    """Measured whole at tp 1 at 1.4 times the model: at tp 4 it takes 1.4 times what the model says there."""
    whole = run("llama3-8b", world_size=8)
    split = run("llama3-8b", world_size=8, tensor_model_parallel_size=4)
    before = modelled(split)
    fill(*layer_rows(whole, 1.4))
    with_store = projected(split)
    assert "measured layer, carried" in with_store.tiers["gemm"]
    assert any(note.endswith("carried to this recipe's degrees") for note in with_store.notes)
    device = Device(accelerator("h100"), None, split)  # type: ignore[arg-type]
    from primus_lint.projection.layers import LayerTable

    block = LayerTable(split, device, place(split.parallel, 8)).layer((False, False)).block
    parts = (block.forward, block.backward, block.weight)
    assert [part.of(TIMED) for part in parts] == pytest.approx([1.4 * seconds for seconds in before])


def test_collectives_that_were_measured_inside_are_taken_off(fill: Fill) -> None:
    """A layer measured at tp 2 with its all-reduces: time = 1.3 x compute + the collectives of the model."""
    two = run("llama3-8b", world_size=8, tensor_model_parallel_size=2)
    device = Device(accelerator("h100"), None, two)  # type: ignore[arg-type]
    block = layer(contexts(two, device, place(two.parallel, 8))[False], False).block
    key = {**layer_shape(two, "dense_layer"), "communication": 1}
    others = [part.seconds - part.of(TIMED) for part in (block.forward, block.backward, block.weight)]
    forward, backward, weight = modelled(two)
    assert others[0] > 0
    fill(
        row("dense_layer", "forward", key, 1.3 * forward + others[0]),
        row("dense_layer", "backward", key, 1.3 * (backward + weight) + others[1] + others[2]),
    )
    from primus_lint.projection.layers import LayerTable

    device = Device(accelerator("h100"), None, two)  # type: ignore[arg-type]
    carried = LayerTable(two, device, place(two.parallel, 8)).layer((False, False)).block
    assert carried.forward.of(TIMED) == pytest.approx(1.3 * forward)
    assert carried.backward.of(TIMED) + carried.weight.of(TIMED) == pytest.approx(1.3 * (backward + weight))
    assert carried.forward.seconds == pytest.approx(1.3 * forward + others[0])


def test_experts_measured_in_a_smaller_benchmark_count_at_the_full_size(fill: Fill) -> None:
    """128 experts over 16 ranks are 8 on a rank, as are 16 over 2: the same layer."""
    big = run(
        "qwen3-30b-a3b",
        world_size=16,
        expert_model_parallel_size=16,
        num_experts=128,
        moe_token_dispatcher_type="alltoall",
    )
    assert big.model.moe is not None
    small = replace(
        big,
        parallel=replace(big.parallel, ep=2),
        model=replace(big.model, moe=replace(big.model.moe, num_experts=16)),
    )
    fill(*layer_rows(small, 1.0, "moe_layer"))
    assert "measured layer" in projected(big).tiers["grouped_gemm"]


def test_measured_collectives_replace_the_model(fill: Fill) -> None:
    recipe = run("llama3-8b", world_size=8, tensor_model_parallel_size=8, global_batch_size=1)
    size = 4096 * 4096 * 2
    fill(row("all_reduce", "nccl", {"bytes": size, "ranks": 8, "nodes": 1}, 3e-3, dtype="bytes"))
    device = Device(accelerator("h100"), None, recipe)  # type: ignore[arg-type]
    group = place(recipe.parallel, 8).tp
    assert device.collective("all_reduce", size, group)[0] == pytest.approx(3e-3)
    assert device.collective("all_reduce", 2 * size, group)[0] == pytest.approx(6e-3)
    bare = Device(accelerator("h100"), None, recipe)  # type: ignore[arg-type]
    bare.measured = None
    assert device.collective("all_gather", size, group) == bare.collective("all_gather", size, group)


def test_the_stack_that_was_measured_last_counts(fill: Fill) -> None:
    shape = {"m": 4096, "n": 28672, "k": 4096}
    fill(
        row("gemm", "TN", shape, 9e-3, stack="old", date="2025-01-01"),
        row("gemm", "TN", {**shape, "m": 8192}, 5e-3, stack="new", date="2026-01-01"),
    )
    device = Device(accelerator("h100"), None, run("llama3-8b"))  # type: ignore[arg-type]
    assert device.measured is not None
    assert [found.stack for found in device.measured.rows["gemm"]] == ["new"]


def test_training_runs_of_the_framework_count(fill: Fill) -> None:
    recipe = run("llama3-8b", world_size=8)
    before = projected(recipe)

    def calibration(label: str, framework: str, ratio: float) -> CalibrationRun:
        return CalibrationRun("h100", framework, label, ratio, 1.0, 1.0, model_of(recipe), WEIGHTS, "2026-08-01")

    fill(
        runs=(calibration("a", "megatron", 1.1), calibration("b", "megatron", 1.2), calibration("c", "torchtitan", 3.0))
    )
    after = projected(recipe)
    assert after.source == "mixed" and before.source == "simulated"
    assert after.notes == (*before.notes, "calibrated on 2 training runs, 2 of this model")
    weights = tuple(WEIGHTS.get(kind, 0.0) for kind in cost.KINDS)
    learned = learn(tuple(Lesson(math.log(ratio), model_of(recipe), weights) for ratio in (1.1, 1.2)), model_of(recipe))
    assert project(recipe, accelerator("h100"), learned=learned).iteration_s == after.iteration_s  # type: ignore[union-attr]
    assert 1.02 < after.iteration_s / before.iteration_s < 1.15  # between nothing and what the two say
    common = math.exp(learned.offsets["compute"] * cost.COMMON)
    assert after.breakdown_s["attention"] == pytest.approx(before.breakdown_s["attention"] * common)
    assert after.high_s / after.iteration_s < before.high_s / before.iteration_s
    assert project(recipe, accelerator("h100"), learned=NOTHING).iteration_s == before.iteration_s  # type: ignore[union-attr]
    other = run("llama3-70b", world_size=8)
    assert "calibrated on 2 training runs, 0 of this model" in projected(other).notes


def test_a_calibrated_measured_layer_is_scaled_too(fill: Fill) -> None:
    recipe = run("llama3-8b", world_size=8)
    fill(*layer_rows(recipe, 1.5))
    plain = project(recipe, accelerator("h100"), learned=NOTHING)
    scaled = project(recipe, accelerator("h100"), learned=Learned({"compute": 1.0}))
    assert plain is not None and scaled is not None
    assert scaled.breakdown_s["gemm"] == pytest.approx(math.exp(cost.COMMON) * plain.breakdown_s["gemm"])


def test_grids_with_a_store_agree_with_single_recipes(fill: Fill) -> None:
    from tests.projection.test_arrays import grid

    recipes = [
        run("llama3-8b", world_size=16, tensor_model_parallel_size=tp, micro_batch_size=mbs, sequence_parallel=tp > 1)
        for tp in (1, 2, 8)
        for mbs in (1, 2)
    ]
    shape = {"bytes": 2**24, "ranks": 2, "nodes": 1}
    fill(
        *layer_rows(recipes[2], 1.5),
        *layer_rows(recipes[5], 1.2),
        row("gemm", "TN", {"m": 4096, "n": 128256, "k": 4096}, 9e-3),
        row("reduce_scatter", "nccl", shape, 1e-3, dtype="bytes"),
        row("optimizer", "adam", {"elements": 2**26}, 5e-3),
        row("memory", "elementwise", {"bytes": 2**28}, 2e-4, dtype="fp32"),
        runs=(CalibrationRun("h100", "megatron", "a", 1.2, 1.0, 1.1, model_of(recipes[0]), WEIGHTS, "2026-08-01"),),
    )
    together = project(grid(recipes), accelerator("h100"))
    assert together is not None
    for index, recipe in enumerate(recipes):
        alone = projected(recipe)
        for name in ("iteration_s", "low_s", "high_s"):
            value = np.broadcast_to(getattr(together, name), (len(recipes),))[index]
            assert value == pytest.approx(getattr(alone, name), rel=1e-9), (index, name)


def test_a_device_of_ones_own_is_known_by_its_store(fill: Fill, tmp_path: Path) -> None:
    name = "cpu-test-1t"
    with Store(where.default_path() or "", write=True) as store:
        store.add_device(name, {"label": "a CPU", "kind": "cpu", "memory_bytes": 2**34, "units": 1, "gpus_per_node": 2})
        store.add(
            [
                row("gemm", "TN", {"m": 1024, "n": 1024, "k": 1024}, 2 * 1024**3 / 1e11, device=name, dtype="fp32"),
                row("memory", "elementwise", {"bytes": 2**28}, 2**28 / 4e10, device=name, dtype="fp32"),
            ]
        )
    found, node = accelerator(name), node_type(name)
    assert found is not None and node is not None
    assert found.peak_flops["fp32"] == pytest.approx(1e11) and found.memory_bytes_per_s == pytest.approx(4e10)
    assert node.gpus_per_node == 2 and node.host_operation_s == (0.0, 0.0, 0.0)
    step = project(run("llama3-8b", gpu=name, world_size=2, gpus_per_node=2, bf16=False, num_layers=2), found, node)
    assert step is not None and step.iteration_s > 0
    assert accelerator("cpu-other-1t") is None and node_type("cpu-other-1t") is None


def test_a_broken_store_is_no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = run("llama3-8b", world_size=8)
    before = projected(recipe).iteration_s
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"h100 and nothing that SQLite could read" * 100)
    monkeypatch.setenv(where.VARIABLE, str(broken))
    assert projected(recipe).iteration_s == before
