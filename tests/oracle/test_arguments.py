"""Hand-picked cases put to Megatron-LM's own argument check; MEGATRON_TRAINING names an unpacked wheel (0.17 or later)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.oracle.arguments import ask
from tests.oracle.ask import why_not

pytestmark = pytest.mark.oracle
DIRECTORY = os.environ.get("MEGATRON_TRAINING")
REASON = why_not() or (
    None if DIRECTORY else "MEGATRON_TRAINING names no unpacked wheel of megatron-core 0.17 or later"
)
REPO = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_each_case_stops_where_the_program_stops_it() -> None:
    """Stages and words of the real program; the last case shows that those before it left nothing behind."""
    base = yaml.safe_load((REPO / "rules" / "bases.yaml").read_text(encoding="utf-8"))["dense"]["args"]
    asked: list[tuple[dict[str, Any], str | None, str]] = [
        ({}, None, ""),
        ({"no_such_argument": 1}, "parse", "no argument sets no_such_argument"),
        ({"optimizer": "nadam"}, "parse", "invalid choice: 'nadam'"),
        ({"tensor_model_parallel_size": 16}, "args", "world size (8) is not divisible by"),
        ({"fp16": True}, "args", "AssertionError"),
        (
            {"recompute_granularity": "selective", "recompute_modules": ["mla_up_proj"]},
            "config",
            "multi_latent_attention",
        ),
        ({}, None, ""),
    ]

    def cases(described: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        assert described["bf16"]["values"] == [True]
        assert described["recompute_granularity"]["values"] == ["full", "selective"]
        env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        return [{"id": "x", "args": {**base, **change}, "world_size": 8, "env": env} for change, _, _ in asked]

    for (_, answer), (change, stage, words) in zip(ask(Path(str(DIRECTORY)), cases), asked, strict=True):
        assert answer["stage"] == stage, (change, answer)
        assert words in (answer["error"] or ""), (change, answer)


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_nulls_that_primus_would_write_stop_where_the_rule_says() -> None:
    """The rule null-where-a-value-is-needed against the real program, as far as this one goes (no process groups)."""
    from primus_lint.rules.checks.choice_effects import NULLS

    base = yaml.safe_load((REPO / "rules" / "bases.yaml").read_text(encoding="utf-8"))["dense"]["args"]
    stages = {key: stop.stage for key, stop in NULLS.items()}

    def cases(described: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        assert set(stages) <= set(described)
        env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        return [{"id": key, "args": base, "nulls": [key], "world_size": 8, "env": env} for key in stages]

    for case, answer in ask(Path(str(DIRECTORY)), cases):
        asked = ("args", "config")  # 0.19 looks at init_method_std earlier than 0.17
        assert answer["stage"] in (asked if stages[case["id"]] in asked else (None,)), (case["id"], answer)
