"""Bytes of optimizer state per owned element, and who owns what under Muon."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ledger.muon import muon_elements
from primus_lint.ledger.optimizer import state_bytes
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.states import stage
from tests.ledger.support import account, run_of
from tests.oracle.recipes import MODELS

AWARE = {"use_precision_aware_optimizer": True}


@pytest.mark.parametrize(
    ("changes", "main", "first", "second"),
    [
        ({}, 4, 4, 4),
        ({"bf16": False}, 0, 4, 4),  # fp32 weights are their own main copy
        ({"optimizer": "sgd"}, 4, 4, 0),
        (AWARE, 2, 4, 4),  # TE keeps the 16 bits that bf16 lacks
        ({**AWARE, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, 2, 2, 2),
        ({**AWARE, "exp_avg_dtype": "fp8", "exp_avg_sq_dtype": "fp8"}, 2, 2, 2),  # data and transpose
        ({**AWARE, "main_params_dtype": "fp16", "main_grads_dtype": "bf16"}, 2, 4, 4),
    ],
)
def test_bytes_per_element(changes: dict[str, Any], main: int, first: int, second: int) -> None:
    found = state_bytes(Sizes(run_of({**MODELS["llama3.1-8b"], **changes}, 8)))
    assert (found.main, found.exp_avg, found.exp_avg_sq) == (main, first, second)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({}, 0),
        (AWARE, 0),
        ({**AWARE, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, 2),
        ({**AWARE, "exp_avg_dtype": "fp8"}, 4),  # the optimizer's, the quantizer's two, the tensor's own
        ({**AWARE, "exp_avg_dtype": "fp8", "exp_avg_sq_dtype": "fp8"}, 8),
        ({**AWARE, "main_params_dtype": "fp16", "main_grads_dtype": "bf16"}, 1),
    ],
)
def test_states_that_are_not_fp32_have_scales(changes: dict[str, Any], numbers: int) -> None:
    """Llama-3.1-8B on one GPU: two norms and four matrices in each of 32 layers, embedding, final norm, output layer; each
    number is in a block of 512 B. On eight GPUs a rank has an eighth of the elements, and a part of the tensors."""
    items = account({**MODELS["llama3.1-8b"], **changes}, 1).ranks[0].items
    assert (items["state scales"].bytes if numbers else "state scales" in items) == (32 * 6 + 3) * numbers * 512
    if numbers:
        shared = account({**MODELS["llama3.1-8b"], **changes}, 8).ranks[0].items["state scales"].bytes
        assert 0 < shared < 195 * numbers * 512


def test_offloaded_state_is_on_the_host() -> None:
    """HybridDeviceOptimizer: half of the owned elements keep main parameter, gradient and two moments in fp32 on the
    host, the other half main parameter and moments on the device."""
    changes = {**AWARE, "optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.5, "overlap_grad_reduce": False}
    rank = account({**MODELS["llama3.1-8b"], **changes}, 8).ranks[0]
    owned = 8_030_261_248 // 8
    states = sum(item.bytes for name, item in rank.items.items() if name.startswith("optimizer "))
    assert states == owned // 2 * 12
    assert rank.items["host optimizer state"].bytes == owned // 2 * 16
    assert rank.host_bytes == owned // 2 * 16 + rank.items["host pinned rounding"].bytes
    assert "host optimizer state" not in rank.as_json()["items"]


def test_bf16_gradients_are_raised_for_the_step() -> None:
    """fp32 copies of the owned gradients stay until the next iteration clears them."""
    changes = {
        "grad_reduce_in_bf16": True, "accumulate_allreduce_grads_in_fp32": False, "overlap_grad_reduce": False,
    }  # fmt: skip
    rank = account({**MODELS["llama3.1-8b"], **changes}, 8).ranks[0]
    assert rank.items["gradients dense"].bytes == 8_030_261_248 * 2
    more = rank.steady_allocated_bytes - rank.static_bytes - rank.total("persistent")
    assert more == 8_030_261_248 // 8 * 4


def test_muon_has_one_moment_for_matrices() -> None:
    """Toy model: 4 layers of h 256, ffn 512, 8 heads of 32, 4 groups; vocabulary 1,000 -> 1,024."""
    matrices = 4 * (256 * 256 + 512 * 256 + 2 * 512 * 256 + 512 * 256)  # proj, qkv (8+2*4 heads), fc1 gated, fc2
    others = 2 * 1024 * 256 + 4 * 2 * 256 + 256  # embedding and output layer, two norms a layer, final norm
    run = run_of({**MODELS["toy"], "optimizer": "muon", "use_distributed_optimizer": False}, 1)
    sizes = Sizes(run)
    assert run.parallel.stages is not None
    found = muon_elements(sizes, stage(sizes, 0, run.parallel.stages[0]), False)
    assert found == (matrices, others)
    rank = account({**MODELS["toy"], "optimizer": "muon", "use_distributed_optimizer": False}, 1).ranks[0]
    assert rank.items["optimizer main parameters"].bytes == (matrices + others) * 4
    assert rank.items["optimizer moments"].bytes == matrices * 4 + others * 8
