"""Splits of the layers over pipeline stages against the real Megatron-Core 0.16.1: what is refused, and who gets what."""

from __future__ import annotations

import pytest

from primus_lint.ir.run import Target
from primus_lint.lower.megatron import lower
from primus_lint.readers.batch import section_of
from primus_lint.rules.engine import check
from tests.oracle.ask import why_not
from tests.oracle.splits import ask_splits, recipes

pytestmark = pytest.mark.oracle
REASON = why_not()


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_the_stage_table_is_the_real_one() -> None:
    """Refused by a layout rule exactly when the real code refuses it or would lose layers; else the same table."""
    asked = recipes(3000, seed=3)
    legal = 0
    for args, theirs in zip(asked, ask_splits(asked), strict=True):
        target = Target(None, args["pipeline_model_parallel_size"] * 8, 8)
        env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        lowered = lower(section_of({"args": args}, "megatron"), target, "core-0.16.1", "megatron", env)
        errors = [f.name for f in check(lowered) if f.severity == "error" and f.code[0] == "L"]
        layers = theirs["layers"]
        lost = layers is not None and (
            sum(map(sum, layers)) != args["num_layers"] or min(map(min, layers)) < 0
        )  # Megatron builds it, and another model than asked
        assert bool(errors) == (layers is None or lost), (args, errors, theirs)
        if not errors:
            stages = lowered.namespace["stages"]
            assert [[len(chunk.layers) for chunk in rank] for rank in stages] == layers, args
            legal += 1
    assert legal > 300
