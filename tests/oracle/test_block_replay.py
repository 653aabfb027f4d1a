"""What blocks hold beyond the tensors that layers keep, against a replay of the real forward (block_replay.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_lint.ledger.allocator import layer_slack_bytes
from primus_lint.ledger.sizes import Sizes
from tests.ledger.support import run_of
from tests.oracle.ask import why_not
from tests.oracle.recipes import MODELS, question

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
REASON = why_not()
LAYERS = 3


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
@pytest.mark.parametrize(("tp", "each"), [(4, 1 << 20), (2, 0)])
def test_a_packed_projection_in_the_block_of_a_hidden_state(tp: int, each: int) -> None:
    """4,096 tokens of 512: hidden states of 4 MiB; projections of 3 MiB at tensor degree 4, of 6 MiB at 2."""
    args = {
        **MODELS["toy"], "num_layers": LAYERS, "hidden_size": 512, "ffn_hidden_size": 2048, "num_attention_heads": 8,
        "num_query_groups": 8, "vocab_size": 50257, "seq_length": 1024, "micro_batch_size": 4, "normalization": "LayerNorm",
        "add_bias_linear": True, "swiglu": False, "hidden_dropout": 0.1, "apply_rope_fusion": False,
        "position_embedding_type": "learned_absolute", "max_position_embeddings": 1024, "tensor_model_parallel_size": tp,
        "sequence_parallel": False,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("block_replay.py"))],
        input=json.dumps(question("megatron_activations", args, 8, 0)), capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"kept"')]
    assert lines, done.stderr[-2000:]
    assert layer_slack_bytes(Sizes(run_of(args, 8))) == each
    assert json.loads(lines[-1])["beyond"] == LAYERS * each
