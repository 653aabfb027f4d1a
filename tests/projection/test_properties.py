"""What must hold for every recipe on every device."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.hardware import accelerator, names, node_type
from primus_lint.ir.record import replace
from primus_lint.ir.run import Target
from primus_lint.lower.megatron import lower
from primus_lint.projection import Projection, project, why_not
from primus_lint.projection.flops import model_flops_per_token
from primus_lint.readers.batch import read_batch

from . import plain
from .recipes import run

MODELS = ("llama3-8b", "llama3-70b", "mixtral-8x7b", "deepseek-v2-lite", "deepseek-v3", "qwen3-30b-a3b", "gpt3-175b")


@st.composite
def recipes(draw: st.DrawFn) -> Any:
    model = draw(st.sampled_from(MODELS))
    tp, cp = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2)))
    args: dict[str, Any] = {
        "tensor_model_parallel_size": tp,
        "context_parallel_size": cp,
        "sequence_parallel": tp > 1,
        "micro_batch_size": draw(st.sampled_from((1, 2))),
        "global_batch_size": 512,
        "overlap_grad_reduce": draw(st.booleans()),
        "overlap_param_gather": False,
        "tp_comm_overlap": draw(st.booleans()) and tp > 1,
    }
    if model in ("llama3-8b", "llama3-70b", "gpt3-175b"):
        args["pipeline_model_parallel_size"] = draw(st.sampled_from((1, 2, 4)))
    elif "-" in model:
        args.update(
            expert_model_parallel_size=draw(st.sampled_from((1, 4, 8))),
            expert_tensor_parallel_size=1,
            moe_grouped_gemm=True,
            moe_token_dispatcher_type=draw(st.sampled_from(("alltoall", "allgather", "flex"))),
        )
    if draw(st.booleans()):
        args.update(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    return run(model, gpu="h100", world_size=128, **args)


def on(recipe: Any, acc: Any, node: Any = None) -> Projection:
    projection = project(recipe, acc, node)
    assert projection is not None, why_not(recipe)
    return projection


@settings(max_examples=60, deadline=None)
@given(recipes(), st.sampled_from(("a100-80gb", "h100", "b200", "gb200", "mi300x", "mi355x")))
def test_nothing_above_what_the_device_achieves(recipe: Any, gpu: str) -> None:
    """Model FLOP/s stay below the best matmul found on the device, every class is non-negative, and the parts add up."""
    acc = accelerator(gpu)
    assert acc is not None
    projection = on(replace(recipe, target=replace(recipe.target, gpu=gpu)), acc)
    assert 0 < projection.mfu < acc.achievable_flops["bf16"] / acc.peak_flops["bf16"]
    assert min(projection.breakdown_s.values()) >= -1e-9
    assert sum(projection.breakdown_s.values()) == pytest.approx(projection.iteration_s, rel=1e-9)
    assert projection.low_s < projection.iteration_s < projection.high_s
    assert 0 <= projection.bubble_fraction < 1
    tokens = recipe.batch.global_batch_size * recipe.batch.seq_length
    assert projection.tokens_per_s_per_gpu == pytest.approx(tokens / projection.iteration_s / 128)
    flops = projection.tokens_per_s_per_gpu * model_flops_per_token(recipe)
    assert projection.model_tflops_per_gpu == pytest.approx(flops / 1e12)


@settings(max_examples=40, deadline=None)
@given(recipes())
def test_more_of_anything_is_never_slower(recipe: Any) -> None:
    base = on(recipe, plain.accelerator(), plain.node()).iteration_s
    faster = plain.accelerator(peak={"bf16": 2e15, "fp8": 4e15})
    assert on(recipe, faster, plain.node()).iteration_s <= base * (1 + 1e-9)
    assert on(recipe, plain.accelerator(bandwidth=2e12), plain.node()).iteration_s <= base * (1 + 1e-9)
    assert on(recipe, plain.accelerator(), plain.node(inside=200e9)).iteration_s <= base * (1 + 1e-9)
    assert on(recipe, plain.accelerator(), plain.node(across=20e9)).iteration_s <= base * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(recipes())
def test_recompute_and_missing_overlap_cost(recipe: Any) -> None:
    acc, node = plain.accelerator(), plain.node()
    recompute = replace(recipe.recompute, granularity=None, method=None, num_layers=None, modules=())
    optimizer = replace(recipe.optimizer, overlap_grad_reduce=True)
    step_s = on(recipe, acc, node).iteration_s
    for other in (replace(recipe, recompute=recompute), replace(recipe, optimizer=optimizer)):
        assert step_s - on(other, acc, node).iteration_s >= -1e-9


def test_every_device_projects_with_its_own_node() -> None:
    for name in names():
        acc = accelerator(name)
        assert acc is not None
        per_node = node_type(name).gpus_per_node  # type: ignore[union-attr]
        recipe = run("llama3-8b", gpu=name, world_size=32, gpus_per_node=per_node)
        assert 0.05 < on(recipe, acc).mfu < 0.85, name


def test_abstains_with_a_reason() -> None:
    acc = plain.accelerator()
    cases = {
        "no GPU is named": run("llama3-8b", gpu=None),
        "no world size is given": run("llama3-8b", world_size=None),
        "the pipeline split is illegal": run("llama3-8b", world_size=24, pipeline_model_parallel_size=3),
        "the vocabulary size is not known: give it with --set vocab_size=N": run(
            None, num_layers=2, hidden_size=64, num_attention_heads=4, max_position_embeddings=4096
        ),
    }
    for reason, recipe in cases.items():
        assert why_not(recipe) == reason
        assert project(recipe, acc) is None
    assert project(run("llama3-8b"), None) is None


@pytest.mark.parametrize(
    "args",
    [
        {"hidden_size": 10**400},
        {"seq_length": 0},
        {"ffn_hidden_size": "wide", "hidden_size": 4096},
        {"num_attention_heads": 1, "num_query_groups": 0},
        {"global_batch_size": 10**30},
        {"vocab_size": 1},
        {"tensor_model_parallel_size": 3},
    ],
)
def test_senseless_sizes_raise_nothing(args: dict[str, Any]) -> None:
    given = {"micro_batch_size": 1, "global_batch_size": 64, "seq_length": 4096, "bf16": True, **args}
    document = read_batch({"framework": "megatron", "model": "llama3-8b", "args": given})
    recipe = lower(document.sections[0], Target("h100", 8, 8), "d3528a21", "megatron").run
    acc = accelerator("h100")
    projection = None if recipe is None else project(recipe, acc)
    assert projection is None or projection.iteration_s >= 0


def test_the_scalar_path_needs_no_numpy() -> None:
    code = (
        "import sys\n"
        "from primus_lint.hardware import accelerator\n"
        "from primus_lint.ir.run import Target\n"
        "from primus_lint.lower.megatron import lower\n"
        "from primus_lint.projection import project\n"
        "from primus_lint.readers.batch import read_batch\n"
        "args = {'micro_batch_size': 1, 'global_batch_size': 64, 'seq_length': 4096, 'bf16': True}\n"
        "document = read_batch({'framework': 'megatron', 'model': 'deepseek-v2-lite', 'args': args})\n"
        "run = lower(document.sections[0], Target('h100', 8, 8), 'd3528a21', 'megatron').run\n"
        "assert project(run, accelerator('h100')).iteration_s > 0\n"
        "heavy = {'numpy', 'torch', 'pydantic', 'jsonschema', 'dataclasses'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
