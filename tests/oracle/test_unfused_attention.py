"""Plain attention of TransformerEngine: equal to the real module (unfused_attention.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_lint.ledger.activations.attention import causal_mask_bytes, scores
from primus_lint.ledger.sizes import Sizes
from tests.ledger.support import run_of
from tests.oracle.ask import why_not
from tests.oracle.recipes import MODELS

pytestmark = pytest.mark.oracle
REASON = why_not()


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_masks_and_softmax_without_the_kernel_for_both() -> None:
    """fp32, or heads x sequences that are no multiple of four: PyTorch's softmax in fp32, the joined mask of every layer, and
    a causal one that stays for ever."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("unfused_attention.py"))],
        capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("[{")]
    assert lines, done.stderr[-2000:]
    for real in json.loads(lines[-1]):
        heads = {"num_attention_heads": real["heads"], "num_query_groups": real["heads"], "kv_channels": 64}
        args = {
            **MODELS["toy"], **heads, "seq_length": 256, "micro_batch_size": real["sequences"],
            "bf16": real["dtype"] == "bfloat16", "attention_backend": "unfused",
            "create_attention_mask_in_dataloader": real["given"],
        }  # fmt: skip
        sizes = Sizes(run_of(args, 1))
        kept = scores(sizes, 0, 0)
        assert (sum(kept.values()), causal_mask_bytes(sizes)) == (real["kept"], real["cached"]), real
