"""Weights, gradients and optimizer state under every form of sharding, by hand on Llama-3.1-8B (8,030,261,248)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.support import account
from tests.oracle.recipes import MODELS

N = 8_030_261_248
EIGHTH = N // 8  # no remainder: every shape of the model divides by 8
LAYER = 218_112_000  # one transformer layer: 2 h^2 + 2 h*1024 + 3 h*14336 + 2 h with h = 4096
EMBEDDING = 128_256 * 4096
BASE = {**MODELS["llama3.1-8b"], "gradient_accumulation_fusion": False, "overlap_grad_reduce": False}


def static(changes: dict[str, Any], world: int = 8) -> dict[str, int]:
    found = account({**BASE, **changes}, world)
    rank = found.ranks[0]
    return {name: item.bytes for name, item in rank.items.items() if item.group == "static"}


def test_without_sharding_every_rank_has_everything() -> None:
    assert sum(static({"use_distributed_optimizer": False}).values()) == N * (2 + 4 + 12)


def test_distributed_optimizer_shares_the_states() -> None:
    assert sum(static({}).values()) == N * (2 + 4) + EIGHTH * 12


@pytest.mark.parametrize(
    ("strategy", "weights", "gradients", "states"),
    [
        ("no_shard", N, N, N),
        ("optim", N, N, EIGHTH),
        ("optim_grads", N, EIGHTH, EIGHTH),
        ("optim_grads_params", EIGHTH, EIGHTH, EIGHTH),
    ],
)
def test_megatron_fsdp_by_strategy(strategy: str, weights: int, gradients: int, states: int) -> None:
    changes = {
        "use_megatron_fsdp": True, "data_parallel_sharding_strategy": strategy, "ckpt_format": "fsdp_dtensor",
        "use_distributed_optimizer": True,
    }  # fmt: skip
    assert sum(static(changes).values()) == weights * 2 + gradients * 4 + states * 12


FSDP2 = {"use_torch_fsdp2": True, "use_distributed_optimizer": False}


def test_fsdp2_has_gradients_in_the_dtype_of_the_weights() -> None:
    assert sum(static(FSDP2).values()) == EIGHTH * (2 + 2 + 12)


def test_hybrid_fsdp2_shares_inside_a_replica() -> None:
    found = static({**FSDP2, "data_parallel_replicate_degree": 4}, 32)
    assert sum(found.values()) == EIGHTH * (2 + 2 + 12)


def test_fsdp2_special_optimizers() -> None:
    fp32 = static({**FSDP2, "use_fsdp2_fp32_param_optimizer": True})
    assert sum(fp32.values()) == EIGHTH * (4 + 4 + 8)
    master = static({**FSDP2, "use_fsdp2_bf16_master_weight_optimizer": True})
    assert sum(master.values()) == EIGHTH * (2 + 2 + 4 + 8 + 4)  # fp32 twins of the gradients stay


def test_fsdp2_gathers_units() -> None:
    """Backward: the output layer's weight and gradient (the largest unit), a layer being gathered, and the gradient of
    a layer being reduced."""
    few = account({**BASE, **FSDP2, "global_batch_size": 16}, 8).ranks[0]
    plain = account({**BASE, "use_distributed_optimizer": False, "global_batch_size": 16}, 8).ranks[0]
    units = (2 * EMBEDDING + 2 * LAYER) * 2
    difference = few.items["transients"].bytes - plain.items["transients"].bytes
    assert difference == units


def test_fsdp2_single_micro_batch_never_has_gradients_and_activations_at_once() -> None:
    one = account({**BASE, **FSDP2, "global_batch_size": 8}, 8).ranks[0]
    two = account({**BASE, **FSDP2, "global_batch_size": 16}, 8).ranks[0]
    assert two.peak_allocated_bytes - one.peak_allocated_bytes == EIGHTH * 2
    assert one.items["gradients not made yet"].bytes == -EIGHTH * 2
    # after the step: no bf16 gradients, but the fp32 ones that the optimizer worked on
    assert one.steady_allocated_bytes - one.static_bytes - one.total("persistent") == EIGHTH * (4 - 2)


def test_megatron_fsdp_gathers_ahead() -> None:
    """After a step embedding, output layer and final norm, and as many layers as hold 500 million elements (three of
    218,112,000), whatever `overlap_param_gather` says. `log_params_norm` stops it: nothing is whole, and since May 2026 what
    lies outside the layers alone."""
    changes = {**BASE, "use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}

    def steady(version: str = "core-0.16.1", **args: Any) -> int:
        found = account({**changes, "megatron_fsdp_main_grads_dtype": "fp32", **args}, 8, version=version).ranks[0]
        return int(found.steady_allocated_bytes)

    ahead = steady(overlap_param_gather=False)
    assert ahead == steady(overlap_param_gather=True)
    assert ahead - steady(log_params_norm=True) == (2 * EMBEDDING + 4096 + 3 * LAYER) * 2
    assert steady("d98e8a64") - steady("d98e8a64", log_params_norm=True) == 3 * LAYER * 2


def test_megatron_fsdp_gradients_follow_the_weights_since_megatron_core_0_19() -> None:
    """Unless fp32 is asked for: the optimizer then makes an fp32 copy of bf16 gradients. Up to 0.18 the fp32 accumulation
    that bf16 switches on goes first, whatever is asked for; 0.16 has but `grad_reduce_in_bf16`."""
    changes = {
        **BASE, "use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params", "log_params_norm": True,
    }  # fmt: skip

    def rank(version: str, **args: Any) -> Any:
        return account({**changes, **args}, 8, version=version).ranks[0]

    few, more = (rank("d98e8a64", megatron_fsdp_main_grads_dtype=dtype) for dtype in ("fp32", "auto"))
    assert few.static_bytes == EIGHTH * (2 + 4 + 12)
    assert more.static_bytes == EIGHTH * (2 + 2 + 12)
    assert more.steady_allocated_bytes - few.steady_allocated_bytes == EIGHTH * (2 - 4 + 4)
    for version in ("core-0.16.1", "d3528a21"):
        for dtype in ("fp32", "bf16"):
            assert rank(version, megatron_fsdp_main_grads_dtype=dtype).static_bytes == few.static_bytes
    reduced = {"grad_reduce_in_bf16": True, "accumulate_allreduce_grads_in_fp32": False}
    assert rank("core-0.16.1", megatron_fsdp_main_grads_dtype="fp32", **reduced).static_bytes == more.static_bytes
    assert rank("d3528a21", megatron_fsdp_main_grads_dtype="fp32", **reduced).static_bytes == few.static_bytes
    assert rank("d3528a21", megatron_fsdp_main_grads_dtype="bf16", **reduced).static_bytes == more.static_bytes


def test_megatron_fsdp_has_gradients_of_fp8_weights_in_bf16() -> None:
    """Beside fp32 weights, whose gradients are fp32: the optimizer makes an fp32 copy of what is not (Llama-3.1-8B: all of a
    layer but two norms of 4096 is FP8). The precision-aware one takes them as they are."""
    changes = {
        **BASE, "use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params", "log_params_norm": True,
        "bf16": False, "fp8": "e4m3", "fp8_recipe": "tensorwise", "fp8_param_gather": True,
    }  # fmt: skip
    narrow = 32 * (LAYER - 2 * 4096) // 8

    def rank(**args: Any) -> Any:
        return account({**changes, **args}, 8, version="d98e8a64").ranks[0]

    wide, own = (rank(megatron_fsdp_main_grads_dtype=dtype) for dtype in ("fp32", "auto"))
    assert own.static_bytes - wide.static_bytes == -2 * narrow
    assert own.steady_allocated_bytes - wide.steady_allocated_bytes == (4 - 2) * narrow
    aware = rank(megatron_fsdp_main_grads_dtype="auto", use_precision_aware_optimizer=True)
    assert aware.steady_allocated_bytes - wide.steady_allocated_bytes == -2 * narrow
