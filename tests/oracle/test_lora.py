"""What a layer with LoRA adapters keeps, and how many parameters it trains: equal to the real modules (lora.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_lint.ledger import lora
from primus_lint.ledger.activations.kind import Kind
from primus_lint.ledger.activations.layer import kept
from primus_lint.ledger.activations.tensors import total
from primus_lint.ledger.build import chunks_of
from primus_lint.ledger.params import numel
from primus_lint.ledger.sizes import Sizes
from tests.ledger.support import run_of
from tests.oracle.ask import why_not
from tests.oracle.recipes import MODELS

pytestmark = pytest.mark.oracle
REASON = why_not()
ALL = "linear_qkv,linear_proj,linear_fc1,linear_fc2"


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
@pytest.mark.parametrize(
    ("tp", "targets", "dropout", "mbs"),
    [
        (1, ALL, 0.0, 1), (2, "linear_qkv,linear_proj", 0.0, 1), (2, ALL, 0.1, 2), (4, "linear_fc1", 0.0, 1),
        (1, "linear_qkv,linear_fc2", 0.1, 1), (2, "linear_proj,linear_fc2", 0.0, 1),
    ],
)  # fmt: skip
def test_layer_with_adapters(tp: int, targets: str, dropout: float, mbs: int) -> None:
    words = f"--model llama3.1-8b --layers 3 --seq 1024 --rank-dim 16 --targets {targets} --tp {tp} --mbs {mbs} --dropout {dropout}"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("lora.py")), *words.split()],
        capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"layer"')]
    assert lines, done.stderr[-2000:]
    real = json.loads(lines[-1])
    args = {
        **MODELS["llama3.1-8b"], "num_layers": 3, "seq_length": 1024, "tensor_model_parallel_size": tp,
        "sequence_parallel": tp > 1, "micro_batch_size": mbs, "global_batch_size": 8, "lora.enabled": True, "lora.dim": 16,
        "lora.target_modules": targets.split(","), "lora.dropout": dropout,
    }  # fmt: skip
    sizes = Sizes(run_of(args, 8))
    assert total(kept(sizes, Kind(False, False))) == real["layer"]
    assert numel(lora.segments(sizes, chunks_of(sizes.run, 0)[0])) == 3 * real["adapters"]
