"""Measurements made up for tests."""

from __future__ import annotations

from typing import Any

from primus_lint.measure.records import Measurement


def row(operation: str, layout: str, shape: dict[str, Any], seconds: float, **changes: Any) -> Measurement:
    """A measurement on an H100 in bf16 with a middle half of +-1 %, unless said otherwise."""
    values: dict[str, Any] = {
        "device": "h100", "stack": "torch 2.13.0, cuda 13.0", "operation": operation, "dtype": "bf16", "layout": layout,
        "shape": shape, "median_s": seconds, "low_s": seconds * 0.99, "high_s": seconds * 1.01, "repetitions": 50,
        "date": "2026-08-01", "source": "test", **changes,
    }  # fmt: skip
    return Measurement(**values)
