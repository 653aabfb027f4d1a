"""The lowering against what the real Megatron said of 1,900 legal recipes: silent changes, micro batches, stages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primus_lint.evaluate import subject_of
from primus_lint.lower.megatron import Lowered
from tests.validation.legality import labels, request

CASES = Path(__file__).resolve().parents[3] / "shared" / "legality" / "labelled.jsonl"
# Notes of the labels that are silent changes of an argument.
CHANGES = {"B18", "D09", "G18", "G21", "N15", "N22", "O11", "O14", "O35", "P22", "P29", "T18", "T40"}

pytestmark = pytest.mark.skipif(not CASES.is_file(), reason="../shared/legality is not at hand")


def legal() -> Iterator[tuple[str, dict[str, Any], Lowered]]:
    """(case, label at a version, lowered recipe) of every legal case."""
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        for version, verdict, _, _ in labels(case):
            if verdict == "legal":
                same = version == case["megatron_commit"] or case["other"].get("same")
                label = case if same else case["other"]
                yield f"{case['id']} at {version}", label, subject_of(request(case, version)).lowered


@pytest.fixture(scope="module")
def lowered() -> list[tuple[str, dict[str, Any], Lowered]]:
    return list(legal())


def test_silent_changes(lowered: list[tuple[str, dict[str, Any], Lowered]]) -> None:
    for name, label, one in lowered:
        changed = {change.catalogue for change in one.adjustments} & CHANGES
        assert changed == set(label.get("notes") or []) & CHANGES, name


def test_micro_batches_of_the_first_step(lowered: list[tuple[str, dict[str, Any], Lowered]]) -> None:
    compared = 0
    for name, label, one in lowered:
        if "num_microbatches" in label:  # a few labels of the other version carry the verdict alone
            assert one.namespace["first_microbatches"] == label["num_microbatches"], name
            compared += 1
    assert compared > 3000


def test_layers_of_each_stage(lowered: list[tuple[str, dict[str, Any], Lowered]]) -> None:
    """Rank-major, then virtual stage; where Megatron loses layers (note L27) there is no table."""
    for name, label, one in lowered:
        stages = one.namespace["stages"]
        if "L27" in (label.get("notes") or []):
            assert stages is None, name
            continue
        if "stage_layers" not in label:
            continue
        expected: list[int] = []
        for part in label["stage_layers"].split(","):
            count, _, times = part.partition("x")
            expected += [int(count)] * int(times or 1)
        assert [len(chunk.layers) for rank in stages for chunk in rank] == expected, name
