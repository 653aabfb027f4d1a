"""What a compiled block keeps, against PyTorch's own partitioner (compiled.py; recorded with PyTorch 2.13, torchao 0.15)."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from primus_lint.ledger.titan.activations import block_bytes, selective_bytes
from primus_lint.ledger.titan.experts import mlp_bytes, row_bytes
from primus_lint.ledger.titan.sizes import Experts, Float8, Kernels, Latent, Sizes
from tests.ledger.titan.test_oracle import ORACLE, PYTHON
from tests.ledger.titan.test_witness import HERE

RECORDED = {
    "llama3": 527_360, "llama3 selective": 180_224, "llama3 tensorwise": 379_950, "llama3 rowwise": 380_160, "qwen3": 530_432,
    "deepseek_v3 0": 646_656, "deepseek_v3 48": 671_744, "shared experts": 106_496, "routed experts": 174_088,
}  # fmt: skip
FLOAT8 = Float8(attention=True, mlp=True, output=True, gathered=False)


def sizes(**changes: Any) -> Sizes:
    values: dict[str, Any] = {
        "layers": 2, "hidden": 128, "heads": 4, "groups": 2, "head_dim": 32, "ffn": 384, "vocab": 512, "seq": 64,
        "tokens": 128, "tp": 1, "shard": 8, "replicate": 1, "accumulation": 1, "recompute": "none", "reshard": "default",
        "kernels": Kernels(norm="compiled", flash_saved=True, loss="compiled"),
    }  # fmt: skip
    return Sizes(**{**values, **changes})


def latent(rank: int) -> Sizes:
    return sizes(groups=4, latent=Latent(q_rank=rank, kv_rank=64, nope=32, rope=16, value=24))


def experts() -> tuple[int, int]:
    """(shared experts with the input that they share, routed ones with the ends of their rows)."""
    moe = Experts(
        count=2, top_k=2, ffn=64, shared=96, first=0, every=1, ep=1, tp=1, shard=8, scored_before=False, normed=False,
        align=8, bias=False, gate_counted=False, exchange_saved=False,
    )  # fmt: skip
    s = sizes(experts=moe)
    return mlp_bytes(s, moe.shared) + 2 * 128 * 128, 272 * row_bytes(s, moe) + 4 * moe.count


def mine() -> dict[str, int]:
    qwen = sizes(qwen=True, ffn=320)
    shared, routed = experts()
    return {
        "llama3": block_bytes(sizes(), 0),
        "llama3 selective": selective_bytes(
            sizes(kernels=Kernels(norm="compiled", flash_saved=False, loss="eager")), 0
        ),
        "llama3 tensorwise": block_bytes(sizes(float8=FLOAT8), 0),
        "llama3 rowwise": block_bytes(sizes(float8=FLOAT8), 0),
        "qwen3": block_bytes(qwen, 0) - qwen.handed_bytes,
        "deepseek_v3 0": block_bytes(latent(0), 0),
        "deepseek_v3 48": block_bytes(latent(48), 0),
        "shared experts": shared,
        "routed experts": routed,
    }


def test_as_the_partitioner_saves() -> None:
    found = mine()
    for name, expected in RECORDED.items():
        # Scales of float8 tensors (one a tensor, one of the output's rows) are not in the account.
        room = 1024 if "wise" in name else 0
        assert found[name] <= expected <= found[name] + room, name


@pytest.mark.skipif(
    not ORACLE.is_dir() or PYTHON is None, reason="no interpreter with torchtitan, or no ../shared/oracle"
)
def test_asked_again() -> None:
    done = subprocess.run(
        [str(PYTHON), "compiled.py", str(ORACLE)], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert {name: RECORDED[name] for name in answer} == answer
