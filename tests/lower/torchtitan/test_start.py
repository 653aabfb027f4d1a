"""Verdicts on TorchTitan recipes held against the real Trainer of v0.2.2.

`labelled.jsonl` holds small recipes of five architectures with random changes and what the real program said about
them (`start.py`, torch 2.13 on CPU, fake ranks): legal, or the function that stopped. Where TORCHTITAN_PYTHON names an
interpreter with torchtitan, some recipes are asked again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint.evaluate import evaluate

HERE = Path(__file__).parent
CASES = [json.loads(line) for line in (HERE / "labelled.jsonl").read_text(encoding="utf-8").splitlines()]
PYTHON = os.environ.get("TORCHTITAN_PYTHON") or (sys.executable if importlib.util.find_spec("torchtitan") else None)
# Not a condition of torchtitan v0.2.2 but of the newer torch that made the labels: tied embeddings in two FSDP groups.
OF_NEWER_TORCH = "_fsdp_state.py:_validate_no_duplicate_params"
# The function that stopped -> codes of the rules that may say so.
RULES = {
    "parallel_dims.py:_validate": {"P801", "P802", "P803", "P804"},
    "train.py:__init__": {"B801", "B802", "L811"},
    "pipeline_parallel.py:build_pipeline_schedule": {"B803", "R803"},  # the asked rank may hold no block to wrap
    "optimizer.py:build_optimizers": {"O801", "O802", "O803"},
    "checkpoint.py:__init__": {"K811", "K812"},
    "parallelize.py:apply_fsdp": {"O804"},
    "activation_checkpoint.py:apply_ac": {"R801"},
}


def errors_of(case: dict[str, Any]) -> list[str]:
    """Codes of the errors, the first failing stage first. What the command line of torchtitan refuses was not asked."""
    request = {
        "framework": "torchtitan", "args": case["args"], "env": {"NGPU": str(case["world_size"])},
        "stack": {"torch": "2.13.0"}, "target": {"world_size": case["world_size"]},
    }  # fmt: skip
    answer = evaluate(request, only="legality")
    assert answer["ok"], answer["error"]
    errors = [finding["code"] for finding in answer["findings"] if finding["severity"] == "error"]
    return [code for code in errors if code not in ("K801", "K802", "K803")]


@pytest.mark.parametrize("case", [pytest.param(case, id=str(number)) for number, case in enumerate(CASES)])
def test_labelled(case: dict[str, Any]) -> None:
    errors = errors_of(case)
    if case.get("where") == OF_NEWER_TORCH:
        assert not errors
        return
    assert (not errors) == case["legal"], (errors, case)
    wanted = RULES.get(case.get("where", ""))
    if wanted is not None:
        assert errors[0] in wanted, (errors, case)


@pytest.mark.skipif(PYTHON is None, reason="no interpreter with torchtitan (TORCHTITAN_PYTHON)")
def test_asked_again() -> None:
    some = CASES[::40]
    lines = "".join(json.dumps({"args": case["args"], "world_size": case["world_size"]}) + "\n" for case in some)
    done = subprocess.run(
        [str(PYTHON), str(HERE / "start.py")], input=lines, capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [case["legal"] for case in some]
