"""In-situ ratios of hardware_db without the runs of a source, as `in_situ.json` holds them (see `in_situ`)."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path
from typing import Any

FAMILIES = ("NVIDIA Megatron-Bridge", "torchtitan")  # whose tables are releases of one publication
LEFT_OUT: dict[str, dict[str, float]] = json.loads(Path(__file__).with_name("in_situ.json").read_text("utf-8"))[
    "ratios"
]


def family(source: str) -> str:
    return next((name for name in FAMILIES if source.startswith(name)), source)


def without_source(accelerator: Any, source: str) -> Any:
    """The accelerator with the ratios that the other sources give; as it is for a source that took no part in them."""
    ratios = LEFT_OUT.get(family(source))
    return accelerator if ratios is None else with_ratios(accelerator, ratios)


def with_ratios(accelerator: Any, ratios: dict[str, float]) -> Any:
    """The accelerator with other in-situ ratios (1 where none is given)."""
    changed = copy(accelerator)
    entries = accelerator.rates.get("in_situ", {})
    changed.rates = {**accelerator.rates, "in_situ": {
        bits: {**entry, "ratio": ratios.get(entry["class"], 1.0)} if isinstance(entry, dict) else entry
        for bits, entry in entries.items()
    }}  # fmt: skip
    return changed


def classes(accelerator: Any) -> set[str]:
    entries = accelerator.rates.get("in_situ", {}).values()
    return {entry["class"] for entry in entries if isinstance(entry, dict)}
