"""One formula, any shape: a grid of recipes gives what each of its recipes gives alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.ir.record import replace
from primus_lint.ir.run import Run
from primus_lint.projection import project

from .recipes import run

np = pytest.importorskip("numpy")


def grid(recipes: list[Run]) -> Run:
    """One Run whose degrees and batch are arrays; everything structural is that of the first."""
    first = recipes[0]

    def column(part: str, name: str) -> Any:
        return np.array([getattr(getattr(recipe, part), name) for recipe in recipes])

    return replace(
        first,
        parallel=replace(
            first.parallel,
            **{name: column("parallel", name) for name in ("tp", "cp", "ep", "etp", "dp", "edp", "sequence_parallel")},
        ),
        batch=replace(
            first.batch,
            **{name: column("batch", name) for name in ("micro_batch_size", "global_batch_size", "num_microbatches")},
        ),
    )


def check(recipes: list[Run], gpu: str) -> None:
    found = accelerator(gpu)
    assert found is not None
    together = project(grid(recipes), found)
    assert together is not None
    for index, recipe in enumerate(recipes):
        alone = project(recipe, found)
        assert alone is not None
        for name in ("iteration_s", "low_s", "high_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu"):
            value = np.broadcast_to(getattr(together, name), (len(recipes),))[index]
            assert value == pytest.approx(getattr(alone, name), rel=1e-9), (name, index)
        for kind, seconds in alone.breakdown_s.items():
            value = np.broadcast_to(together.breakdown_s[kind], (len(recipes),))[index]
            assert value == pytest.approx(seconds, rel=1e-9, abs=1e-12), (kind, index)
        bubble = np.broadcast_to(together.bubble_fraction, (len(recipes),))[index]
        assert bubble == pytest.approx(alone.bubble_fraction, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("gpu", ("h100", "mi300x", "mi355x", "gb200"))
@pytest.mark.parametrize("pp, vpp", ((1, 1), (4, 1), (4, 4)))
def test_dense(gpu: str, pp: int, vpp: int) -> None:
    recipes = []
    for tp, cp, mbs in product((1, 2, 8), (1, 2), (1, 2)):
        extra: dict[str, Any] = {"num_virtual_stages_per_pipeline_rank": vpp} if vpp > 1 else {}
        recipes.append(
            run(
                "llama3-8b", gpu=gpu, world_size=64, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
                context_parallel_size=cp, micro_batch_size=mbs, global_batch_size=256, sequence_parallel=tp > 1,
                recompute_granularity="full", recompute_method="block", recompute_num_layers=1, **extra,
            )
        )  # fmt: skip
    check(recipes, gpu)


@pytest.mark.parametrize("dispatcher", ("alltoall", "allgather", "flex"))
def test_experts(dispatcher: str) -> None:
    recipes = []
    for tp, ep, mbs in product((1, 2), (2, 8, 16), (1, 2)):
        recipes.append(
            run(
                "deepseek-v2-lite", gpu="mi355x", world_size=64, tensor_model_parallel_size=tp,
                expert_model_parallel_size=ep, expert_tensor_parallel_size=1, micro_batch_size=mbs,
                global_batch_size=256, sequence_parallel=tp > 1, moe_token_dispatcher_type=dispatcher,
                moe_enable_deepep=dispatcher == "flex", moe_grouped_gemm=True,
            )
        )  # fmt: skip
    check(recipes, "mi355x")


@pytest.mark.parametrize(("pp", "delayed"), [(1, False), (2, True)])
def test_experts_beside_other_micro_batches(pp: int, delayed: bool) -> None:
    recipes = []
    for ep, mbs, batch in product((2, 8, 16), (1, 2), (128, 512)):
        extra: dict[str, Any] = {"num_virtual_stages_per_pipeline_rank": 2} if pp > 1 else {}
        recipes.append(
            run(
                "qwen3-30b-a3b", gpu="mi355x", world_size=64, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
                expert_tensor_parallel_size=1, micro_batch_size=mbs, global_batch_size=batch,
                moe_token_dispatcher_type="alltoall", moe_grouped_gemm=True, overlap_moe_expert_parallel_comm=True,
                delay_wgrad_compute=delayed, **extra,
            )
        )  # fmt: skip
    check(recipes, "mi355x")


@pytest.mark.parametrize(
    "recompute",
    [
        {"granularity": "selective", "modules": ("torchtitan_op",)},
        {"granularity": "full", "method": "uniform", "num_layers": 1, "early_stop": True},
    ],
)
def test_checkpoints_of_torch(recompute: dict[str, Any]) -> None:
    recipes = []
    for tp, mbs in product((1, 2, 8), (1, 2)):
        found = run(
            "llama3-8b", world_size=16, tensor_model_parallel_size=tp, micro_batch_size=mbs, sequence_parallel=tp > 1
        )
        recipes.append(replace(found, recompute=replace(found.recompute, **recompute)))
    check(recipes, "h100")


def test_sharding_and_schedules() -> None:
    for args in (
        {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "ckpt_format": "torch_dist"},
        {"use_distributed_optimizer": False, "overlap_param_gather": False},
        {"fp8": "hybrid"},
        {"recompute_granularity": "selective"},
        {"cp_comm_type": "all_gather"},
        {"cp_comm_type": "a2a"},
        {"transformer_impl": "local", "attention_backend": "local"},
    ):
        recipes = [
            run(
                "llama3.1-8b", world_size=32, tensor_model_parallel_size=tp, context_parallel_size=cp,
                micro_batch_size=mbs, sequence_parallel=tp > 1, **args,
            )
            for tp, cp, mbs in product((1, 2), (1, 4), (1, 2))
        ]  # fmt: skip
        check(recipes, "h100")
