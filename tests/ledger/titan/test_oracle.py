"""The real torchtitan on a fake world (../shared/oracle/titan_fsdp.py) and the account: equal to the byte.

Needs an interpreter that has torchtitan 0.2.2: this one, or the one that TORCHTITAN_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint.ledger.titan import build
from primus_lint.ledger.titan.activations import head_bytes, kept_bytes
from tests.ledger.titan.test_reference_table import sizes

ORACLE = Path(__file__).resolve().parents[4] / "shared" / "oracle"
RUN = Path(__file__).resolve().parents[2] / "lower" / "torchtitan" / "without_triton.py"
PYTHON = os.environ.get("TORCHTITAN_PYTHON") or (sys.executable if importlib.util.find_spec("torchtitan") else None)
RECOMPUTE: dict[str, str | int] = {"none": "none", "full": "full", "selective-op": "op", "selective-2": 2}


def draw(seed: int) -> dict[str, Any]:
    pick = random.Random(seed)
    return {
        "flavor": pick.choice(["8B", "70B"]),
        "layers": pick.randint(2, 4),
        "dp": pick.choice([2, 3, 8, 24]),
        "tp": pick.choice([1, 1, 2, 8]),
        "replicate": pick.choice([1, 1, 2]),
        "seq": pick.choice([256, 1024, 2048]),
        "mbs": pick.randint(1, 3),
        "ac": pick.choice(sorted(RECOMPUTE)),
        "reshard": pick.choice(["default", "always", "never"]),
    }


QWEN = {
    "8B": {"hidden": 4096, "heads": 32, "ffn": 12288}, "14B": {"hidden": 5120, "heads": 40, "ffn": 17408},
    "32B": {"hidden": 5120, "heads": 64, "ffn": 25600},
}  # fmt: skip


def draw_qwen(seed: int) -> dict[str, Any]:
    """Dense Qwen3: its attention has no sharding for tensor parallelism on a CPU."""
    pick = random.Random(seed)
    case = {**draw(seed), "flavor": pick.choice(sorted(QWEN)), "layers": pick.randint(2, 3), "tp": 1, "model": "qwen3"}
    return {**case, "reshard": "always", "ac": "full", "mbs": 1, "seq": 2048, "flavor": "32B"} if seed == 0 else case


@pytest.mark.skipif(not ORACLE.is_dir(), reason="../shared/oracle is absent")
@pytest.mark.skipif(PYTHON is None, reason="no interpreter with torchtitan (TORCHTITAN_PYTHON)")
@pytest.mark.parametrize("case", [*map(draw, range(3)), *map(draw_qwen, range(4))], ids=str)
def test_drawn_recipe(case: dict[str, Any]) -> None:
    words = [word for key, value in case.items() for word in (f"--{key}", str(value))]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [str(PYTHON), str(RUN), "titan_fsdp.py", *words],
        cwd=ORACLE,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-2000:]
    real = json.loads(lines[-1])
    qwen = case.get("model") == "qwen3"
    s = sizes(
        "8B" if qwen else case["flavor"], layers=case["layers"], shard=case["dp"], tp=case["tp"], replicate=case["replicate"],
        seq=case["seq"], tokens=case["seq"] * case["mbs"], recompute=RECOMPUTE[case["ac"]], reshard=case["reshard"],
        **({**QWEN[case["flavor"]], "vocab": 151936, "qwen": True} if qwen else {}),
    )  # fmt: skip
    items = build.static_items(s, rank=0)
    assert items["weights"].bytes == real["shard_param_bytes"]
    assert items["optimizer moments"].bytes == real["optim_state_bytes"]
    base = sum(items[name].bytes for name in ("weights", "optimizer moments", "rotary table", "batch"))
    kept = sum(kept_bytes(s, layer) for layer in range(s.layers)) + head_bytes(s)
    found = build.moments(s, base, items["gradients"].bytes, kept)
    assert max(found.values()) == real["peak"], (case, found)
