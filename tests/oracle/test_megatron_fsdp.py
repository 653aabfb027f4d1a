"""What Megatron-FSDP has whole, and of which dtype its buffers are: equal to the real `MegatronFSDP` (megatron_fsdp.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_lint.ledger.optimizer import state_bytes
from primus_lint.ledger.sharding import ahead_elements, whole_elements
from primus_lint.ledger.sizes import Sizes
from tests.ledger.support import run_of
from tests.oracle.ask import why_not
from tests.oracle.compare import asked_version
from tests.oracle.recipes import MODELS

pytestmark = pytest.mark.oracle
REASON = why_not()
UNIT, ENDS = 2 * 64 * 256, 2 * 2048 * 64  # elements of a block, of embedding and head


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
@pytest.mark.parametrize(
    ("world", "layers", "dtype", "ahead"),
    [
        (4, 8, "bfloat16", 0), (4, 8, "bfloat16", 60_000), (2, 6, "float32", 100_000), (8, 12, "float32", 40_000),
    ],
)  # fmt: skip
def test_what_is_whole(world: int, layers: int, dtype: str, ahead: int) -> None:
    script = str(Path(__file__).with_name("megatron_fsdp.py"))
    done = subprocess.run(
        [sys.executable, script, str(world), str(layers), dtype, str(ahead)],
        capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"buffers"')]
    assert lines, done.stderr[-2000:]
    real = json.loads(lines[-1])
    found = whole_elements(ENDS, layers * UNIT, UNIT, ahead or ahead_elements(UNIT))
    assert (found.after_step, found.weights, found.last_gradients) == (
        real["after a step"], real["weights"], real["gradients"]
    )  # fmt: skip
    later = asked_version() != "core-0.16.1"
    assert real["kept"] == (ENDS if later else 0)
    share, wide = (ENDS + layers * UNIT) // world, dtype == "float32"
    weight = 4 if wide else 2
    assert real["buffers"] == {
        "model_weight_buffer": [share, weight], "main_weight_buffer": [share, 4], "main_grad_buffer": [share, weight]
    }  # fmt: skip
    assert real["cast bytes"] == (0 if wide else 4 * share)  # of gradients that are not fp32


def test_main_parameters_are_a_buffer_of_their_own() -> None:
    """Also of fp32 weights, and with the precision-aware optimizer."""
    fsdp = {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params", "bf16": False}
    for change in ({}, {"use_precision_aware_optimizer": True}, {"bf16": True}):
        sizes = Sizes(run_of({**MODELS["toy"], **fsdp, **change}, 4))
        assert state_bytes(sizes).main == 4
