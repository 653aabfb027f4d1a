"""Experts, tied embeddings and float8 layers of the real torchtitan (witness.py), against the account.

`witness.jsonl` holds small random recipes (recipes.py) with what two steps of the real model allocated (torch 2.13 and
torchao 0.15 on a CPU): states, what stays after a step and what is kept after the forward pass are equal to the byte, the
peak within a few percent. Where TORCHTITAN_PYTHON names an interpreter with torchtitan, some are asked again.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from primus_lint.ledger.titan import build
from primus_lint.ledger.titan.activations import head_bytes, kept_bytes, logits_bytes, loss_bytes
from tests.ledger.titan.recipes import draw, sizes
from tests.ledger.titan.test_oracle import ORACLE, PYTHON

HERE = Path(__file__).parent
RECORDED = [json.loads(line) for line in (HERE / "witness.jsonl").read_text(encoding="utf-8").splitlines()]
PEAK_LOW, PEAK_HIGH = -0.07, 0.03  # transients inside attention and routing have no account of their own


def account(case: dict[str, Any]) -> tuple[dict[str, int], int]:
    """(bytes as the witness names them, peak)."""
    s = sizes(case)
    items = build.static_items(s, rank=0)
    gradients = items["gradients"].bytes
    steady = sum(item.bytes for item in items.values()) - gradients
    kept = sum(kept_bytes(s, layer) for layer in range(s.layers)) + head_bytes(s)
    moments = build.moments(s, steady, gradients, kept)
    left = moments["backward of the loss"] - steady - kept - loss_bytes(s)
    found = {
        "weights": items["weights"].bytes, "moments": items["optimizer moments"].bytes, "steady": steady,
        "after forward": steady + kept + left + logits_bytes(s),
    }  # fmt: skip
    return found, max(moments.values())


@pytest.mark.parametrize("row", [pytest.param(row, id=str(number)) for number, row in enumerate(RECORDED)])
def test_recorded(row: dict[str, Any]) -> None:
    found, peak = account(row["case"])
    parallel, real = row["case"]["parallel"], row["bytes"]
    if parallel.get("etp", 1) > 1:  # the ranks of a two-dimensional mesh of experts, which lie on the CPU in a real run
        mesh = 4 * parallel["shard"] * parallel["tp"]
        real = {**real, "steady": real["steady"] - mesh, "after forward": real["after forward"] - mesh}
    assert found == {name: real[name] for name in found}, row["case"]
    assert PEAK_LOW < peak / real["peak"] - 1 < PEAK_HIGH, row["case"]


def test_recorded_peaks_on_the_whole() -> None:
    """Half of the peaks are met within one percent."""
    errors = sorted(abs(account(row["case"])[1] / row["bytes"]["peak"] - 1) for row in RECORDED)
    assert errors[len(errors) // 2] < 0.01, errors


def test_the_last_rank_owns_what_is_left() -> None:
    """Experts that ranks share unevenly: states of real rows only, on the first and the last rank."""
    for row in RECORDED:
        s = sizes(row["case"])
        if s.tp > 1:
            continue
        each = [build.static_items(s, rank)["optimizer moments"].bytes for rank in range(s.shard)]
        counters = 4 * build.params.tensors(s)
        for group in build.params.stored(s):
            owned = sum(group.owned(rank) for rank in range(group.ranks))
            assert owned == group.numel
        assert each[0] == max(each) >= each[-1] >= counters


@pytest.mark.skipif(
    not ORACLE.is_dir() or PYTHON is None, reason="no interpreter with torchtitan, or no ../shared/oracle"
)
def test_asked_again() -> None:
    some = [row for row in RECORDED if "float8" not in row["case"]][::15]
    lines = "".join(json.dumps(row["case"]) + "\n" for row in some)
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run(
        [str(PYTHON), str(HERE / "witness.py"), str(ORACLE)], input=lines, env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers == [row["bytes"] for row in some], done.stderr[-2000:]


def test_recipes_are_drawn_the_same_everywhere() -> None:
    assert [row["case"] for row in RECORDED[:36]] == [draw(seed) for seed in range(36)]
