"""LoRA: states of a rank by hand, and which uses abstain."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ledger import Abstention, ledger
from tests.ledger.support import account, run_of
from tests.oracle.recipes import MODELS

LORA = {
    "lora.enabled": True,
    "lora.dim": 16,
    "lora.target_modules": ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"],
}
LLAMA = {**MODELS["llama3.1-8b"], "global_batch_size": 8, "overlap_grad_reduce": False, **LORA}
PARAMETERS, H, F = 8_030_261_248, 4096, 14336
# inputs + outputs of the four linear layers, times the dimension, in 32 layers
ADAPTERS = 32 * 16 * ((H + 6144) + (H + H) + (H + 2 * F) + (F + H))


def test_frozen_weights_have_no_state() -> None:
    rank = account(LLAMA, 8).ranks[0]
    assert rank.items["weights frozen"].bytes == 2 * PARAMETERS
    assert rank.items["weights dense"].bytes == 2 * ADAPTERS
    assert rank.items["gradients dense"].bytes == 4 * ADAPTERS
    states = sum(item.bytes for name, item in rank.items.items() if name.startswith("optimizer "))
    assert states == 12 * ADAPTERS // 8
    assert rank.static_bytes == 2 * PARAMETERS + 6 * ADAPTERS + states
    whole = account({**LLAMA, "lora.enabled": False}, 8).ranks[0]
    assert rank.static_bytes < whole.static_bytes // 3 and rank.peak_allocated_bytes < whole.peak_allocated_bytes


def test_experts_share_one_adapter_a_layer() -> None:
    """Mixtral 8x22B on 8 expert ranks (56 layers, h 6144, g 16384): fc1 and fc2 of the experts have (h + 2g) and (g + h)
    times the dimension a layer."""
    args = {
        **MODELS["mixtral-8x22b"],
        **LORA,
        "expert_model_parallel_size": 8,
        "expert_tensor_parallel_size": 1,
        "global_batch_size": 8,
    }
    rank = account(args, 8).ranks[0]
    assert rank.items["weights expert"].bytes == 2 * 56 * 16 * (2 * 6144 + 3 * 16384)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lora.target_modules": ["*.layers.0.*.linear_qkv"]}, "other modules"), ({"lora.dim": 0}, "dimension"),
        ({"use_torch_fsdp2": True, "use_distributed_optimizer": False}, "FSDP"),
    ],
)  # fmt: skip
def test_what_has_no_account_says_why(changes: dict[str, Any], why: str) -> None:
    found = ledger(run_of({**LLAMA, **changes}, 8))
    assert isinstance(found, Abstention) and why in " ".join(found.reasons)
