"""Build typed recipes in tests: Megatron arguments -> Run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from primus_lint.ir.run import Target
from primus_lint.lower import megatron
from primus_lint.readers.document import Origin, Section, Value

if TYPE_CHECKING:
    from primus_lint.ir.run import Run

SHARED = Path(__file__).resolve().parents[3] / "shared"


@cache
def _shared_defaults(version: str) -> dict[str, Any]:
    name = "megatron-head-d98e8a64.json" if version == "d98e8a64" else "megatron-d3528a21.json"
    keys = json.loads((SHARED / "catalogue" / "keys" / name).read_text())["keys"]
    return {key: entry.get("default") for key, entry in keys.items()}


def section_of(args: dict[str, Any]) -> Section:
    values = {key: Value(value, (Origin("experiment", value),)) for key, value in args.items()}
    return Section("test", "megatron", values)


def run_of(args: dict[str, Any], world_size: Any, gpu: str | None = "h100", version: str = "core-0.16.1") -> Run:
    """The typed recipe of Megatron arguments on a number of GPUs."""
    defaults = megatron.defaults
    try:
        defaults(version, "megatron")
    except FileNotFoundError:
        defaults = lambda v, f="megatron": _shared_defaults(v)  # noqa: E731
    with mock.patch.object(megatron, "defaults", defaults):
        lowered = megatron.lower(section_of(args), Target(gpu, world_size), version, "megatron")
    assert lowered.run is not None, "the arguments did not lower"
    return lowered.run
