"""The order in which the first micro-batches take and give back tensors, against the real modules (first_step_trace.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint.ledger import first_step
from primus_lint.ledger.blocks import Pool
from primus_lint.ledger.build import chunks_of
from primus_lint.ledger.sizes import Sizes
from tests.ledger.support import run_of
from tests.oracle.ask import why_not
from tests.oracle.recipes import MODELS, question

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
REASON = why_not()
MIB = 1 << 20
WORKSPACE = 40 * MIB  # as no other tensor


class Recorder(Pool):
    """Notes what is asked for and given back, as [number, bytes] and [-number, 0]; gives no blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[list[int]] = []

    def take(self, size_bytes: int) -> Any:
        if size_bytes <= MIB:
            return None
        number = 1 + max([abs(number) for number, _ in self.events], default=0)
        self.events.append([number, size_bytes])
        return number

    def give(self, block: Any, size_bytes: int) -> None:
        if block is not None:
            self.events.append([-block, 0])


CASES: dict[str, dict[str, Any]] = {
    "last stage": {"pipeline_model_parallel_size": 2, "num_layers": 4},
    "tensor degree 4, tied": {"tensor_model_parallel_size": 4, "untie_embeddings_and_output_weights": False},
    "untied, one GPU": {"untie_embeddings_and_output_weights": True},
    "no dropout": {"hidden_dropout": 0.0, "attention_dropout": 0.0, "tensor_model_parallel_size": 2},
}


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
@pytest.mark.parametrize("case", CASES)
def test_tensors_come_and_go_as_in_the_real_modules(case: str) -> None:
    args = {
        **MODELS["toy"], "num_layers": 2, "hidden_size": 512, "ffn_hidden_size": 2048, "num_attention_heads": 8,
        "num_query_groups": 8, "vocab_size": 8192, "seq_length": 1024, "micro_batch_size": 4, "normalization": "LayerNorm",
        "add_bias_linear": True, "swiglu": False, "hidden_dropout": 0.1, "attention_dropout": 0.1,
        "position_embedding_type": "learned_absolute", "max_position_embeddings": 3072, "sequence_parallel": False,
        "transformer_impl": "local", "apply_rope_fusion": False, "gradient_accumulation_fusion": False, "global_batch_size": 64,
        "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, **CASES[case],
    }  # fmt: skip
    pp = args["pipeline_model_parallel_size"]
    run = run_of({**args, "masked_softmax_fusion": True, "bias_gelu_fusion": True}, 8)
    sizes = Sizes(run)
    scores = args["micro_batch_size"] * sizes.Aq * 1024**2 * 2
    step = first_step.step_of(sizes, chunks_of(run, pp - 1), scores, WORKSPACE)
    assert step is not None
    asked = question("megatron_activations", args, 8, 8 - 8 // pp)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("first_step_trace.py"))],
        input=json.dumps({**asked, "micro_batches": step.micro_batches, "workspace": WORKSPACE}),
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"events"')]
    assert lines, done.stderr[-2000:]
    recorder = Recorder()
    first_step.run(step, recorder)
    real = json.loads(lines[-1])["events"]
    assert real
    assert normal(recorder.events) == normal(real)


def normal(events: list[list[int]]) -> list[list[int]]:
    """Tensors that go one right after the other, in the order of their numbers."""
    out: list[list[int]] = []
    gone: list[list[int]] = []
    for event in events:
        if event[0] < 0:
            gone.append(event)
            continue
        out += [*sorted(gone), event]
        gone = []
    return out + sorted(gone)
