"""Outside PyTorch: DeepEP's buffers (figures of ../shared/reference/byte-accounting-amd.md section 3), context, groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.hardware.runtime import runtime_bytes
from primus_lint.ledger import device
from tests.ledger.support import account, run_of
from tests.oracle.recipes import MODELS

OVERHEAD = 160 + (32 << 20)  # counters beside the buffer, and DeepEP's workspace


def sizes(hidden: int, ep: int, units: int) -> Any:
    moe = SimpleNamespace(dispatcher="flex", latent_size=None)
    run = SimpleNamespace(
        model=SimpleNamespace(moe=moe), args={"turbo_deepep_num_cu": units}, kernels=SimpleNamespace(turbo_deepep=True)
    )
    return SimpleNamespace(run=run, h=hidden, ep=ep, tp=1)


@pytest.mark.parametrize(
    ("hidden", "ep", "units", "expected"),
    [
        (7168, 8, 32, 537_135_616),
        (7168, 8, 64, 1_074_271_232),
        (7168, 8, 80, 1_342_839_040),  # the shipped MI355X DeepSeek-V3 value
        (7168, 64, 32, 604_284_416 + 588_081_152),  # and the RDMA buffer
        (4096, 8, 32, 335_809_024),
        (4096, 8, 80, 839_522_560),
        (2048, 8, 32, 201_591_296),
    ],
)
def test_deepep_buffers(hidden: int, ep: int, units: int, expected: int) -> None:
    assert device.deepep_bytes(sizes(hidden, ep, units)) == expected + OVERHEAD


def test_no_buffers_without_deepep() -> None:
    assert device.deepep_bytes(sizes(7168, 1, 32)) == 0
    args = {**MODELS["mixtral-8x22b"], "expert_model_parallel_size": 8}
    assert "DeepEP buffers" not in account(args, 8).ranks[0].items
    flex = {**args, "moe_token_dispatcher_type": "flex", "moe_enable_deepep": True, "moe_router_dtype": "fp32"}
    assert account(flex, 8).ranks[0].items["DeepEP buffers"].group == "device"


def test_groups_with_more_than_one_rank_have_a_communicator() -> None:
    from primus_lint.ledger.sizes import Sizes

    args = {**MODELS["llama3.1-8b"], "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    assert device.communicators(Sizes(run_of(args, 4))) == 2  # tensor, pipeline
    assert device.communicators(Sizes(run_of(args, 8))) == 4  # and data, expert-data


def test_device_bytes_are_a_band() -> None:
    found = accelerator("mi300x")
    assert found is not None
    rank = account(MODELS["llama3.1-8b"], 8, gpu="mi300x").ranks[0]
    low, high = runtime_bytes(found, 2)
    shift = rank.items["order of blocks"].bytes if "order of blocks" in rank.items else 0
    assert rank.device_low_bytes == rank.peak_allocated_bytes - shift + low
    assert rank.device_high_bytes == rank.peak_reserved_bytes + high
