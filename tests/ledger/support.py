"""Build typed recipes in tests: Megatron arguments -> Run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from primus_lint.ir.run import Target
from primus_lint.ledger import Ledger, ledger
from primus_lint.lower.megatron import lower
from primus_lint.readers.document import Origin, Section, Value

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.ledger import RankMemory


GOLDENS = Path(__file__).resolve().parents[3] / "shared" / "goldens"


def golden(case: str, run: str) -> tuple[dict[str, Any], RankMemory]:
    """What a run of Megatron-LM's functional tests measured, and our account of its last rank; skips without the data."""
    folder = GOLDENS / case
    if not folder.is_dir():
        pytest.skip("../shared/goldens is not there")
    from tests.validation.goldens import account as account_of

    measured = json.loads((folder / "measured.json").read_text(encoding="utf-8"))["runs"][run]
    config = folder / "model_config.yaml"
    ours = account_of(str(config), config.read_text(encoding="utf-8"), run, measured)
    assert not isinstance(ours, str), ours
    return measured, ours


def section_of(args: dict[str, Any]) -> Section:
    values = {key: Value(value, (Origin("experiment", value),)) for key, value in args.items()}
    return Section("test", "megatron", values)


def run_of(
    args: dict[str, Any], world_size: Any, gpu: str | None = "h100", version: str = "core-0.16.1",
    framework: str = "megatron", env: dict[str, str] | None = None,
) -> Run:  # fmt: skip
    """The typed recipe of Megatron arguments on a number of GPUs."""
    lowered = lower(section_of(args), Target(gpu, world_size), version, framework, env)
    assert lowered.run is not None, "the arguments did not lower"
    return lowered.run


def account(args: dict[str, Any], world_size: int, **where: Any) -> Ledger:
    """The ledger of Megatron arguments."""
    found = ledger(run_of(args, world_size, **where))
    assert isinstance(found, Ledger), found.reasons
    return found
