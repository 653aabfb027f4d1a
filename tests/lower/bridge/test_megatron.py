"""The Megatron arguments of a Megatron-Bridge recipe, against the configuration that a real run starts with.

`witness.jsonl` was recorded by witness.py with the real megatron-bridge 0.3.0: its recipe functions and
`runtime_config_update`. Where BRIDGE_PYTHON names an interpreter with megatron-bridge, it is recorded anew and compared.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from primus_lint.ir.run import Target
from primus_lint.lower.bridge import lower
from primus_lint.lower.bridge.megatron import arguments, reasons
from primus_lint.readers.document import Section, Value

HERE = Path(__file__).parent
ROWS = [json.loads(line) for line in (HERE / "witness.jsonl").read_text(encoding="utf-8").splitlines()]
NAMES = {
    "model.virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank", "model.fp8": "fp8",
    "ddp.bucket_size": "ddp_bucket_size", "ddp.grad_reduce_in_fp32": "accumulate_allreduce_grads_in_fp32",
    "ddp.average_in_collective": "ddp_average_in_collective",
    "optimizer.use_distributed_optimizer": "use_distributed_optimizer",
}  # fmt: skip
LIKE_FALSE = (None, False)


def ours(row: dict[str, Any]) -> dict[str, Any] | None:
    """Our arguments of a recorded call; None for a recipe without an account."""
    recipe, flavor = row["recipe"].split(":")
    given = {"recipe": recipe, "flavor": flavor, **row["arguments"]}
    section = Section("pre_trainer", "megatron_bridge", {key: Value(value, ()) for key, value in given.items()})
    names = lower(section, Target("h100", row["world"], 8), "9577b128", "megatron_bridge").namespace
    return None if reasons(names) else arguments(names)


def test_most_recipes_have_an_account() -> None:
    counted = {row["recipe"] for row in ROWS if ours(row) is not None}
    assert len(counted) >= 48, sorted({row["recipe"] for row in ROWS} - counted)


@pytest.mark.parametrize("recipe", sorted({row["recipe"] for row in ROWS}))
def test_arguments_are_those_of_the_run(recipe: str) -> None:
    for row in ROWS:
        made = ours(row) if row["recipe"] == recipe else None
        if made is None:
            continue
        for field, real in row["makes"].items():
            if field == "peft":
                expected = None if real is None else (real["dim"], real["target_modules"])
                found = (made["lora.dim"], made["lora.target_modules"]) if made.get("lora.enabled") else None
                assert found == expected, (row["arguments"], field)
                continue
            value = made.get(NAMES.get(field, field.partition(".")[2]))
            if field == "ddp.bucket_size" and not row["makes"]["ddp.overlap_grad_reduce"]:
                continue  # without overlap there is one bucket
            if field == "model.fp8_recipe" and not row["makes"]["model.fp8"]:
                continue
            assert value == real or (value in LIKE_FALSE and real in LIKE_FALSE), (row["arguments"], field, value, real)


@pytest.mark.skipif("BRIDGE_PYTHON" not in os.environ, reason="BRIDGE_PYTHON names no interpreter with megatron-bridge")
def test_recorded_anew() -> None:
    out = subprocess.run(
        [os.environ["BRIDGE_PYTHON"], str(HERE / "witness.py")], capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in out.stdout.splitlines()] == ROWS
