"""The memory section of docs/accuracy.md says what the figures hold."""

from __future__ import annotations

from typing import Any

from tests.validation.goldens import ceilings, repeated, score
from tests.validation.ground_truth_memory import summary
from tools.accuracy_memory import memory_section


def row(run: str, steady_error: float, peak_error: float, inside: bool, cause: str = "") -> dict[str, Any]:
    return {
        "case": "gpt/a", "run": run, "platform": "h100", "steady": 1_000_000, "steady_error": steady_error,
        "peak_error": peak_error, "cause": cause, "steady_in_band": inside, "peak_in_band": True, "steady_width": 0.02,
        "peak_width": 0.06,
    }  # fmt: skip


def value(error: float) -> dict[str, Any]:
    return {
        "kind": "reserved", "measured": 10.0, "floor": 9.0 - 50 * error, "error": error, "in_band": error > 0,
        "other_engine": True, "published_error": 0.005,
    }  # fmt: skip


def test_shares_and_causes() -> None:
    rows = [row("dev_dgx_h100", 0.0, 0.01, True), row("dev_dgx_h100_2nd", -0.2, -0.5, False, "a named cause")]
    figures = {
        **score(rows, 4),
        "rows": rows,
        "skipped": [{}, {}],
        "repeated": repeated(rows),
        "ceilings": ceilings(rows),
    }
    oracle = {
        "pairs": 3, "bytes_compared": 1000, "bytes_different": 0,
        "activations": {"cases": 2, "bytes_compared": 500, "bytes_different": 7},
    }  # fmt: skip
    published = {
        "oom_confusion": {"ran, fits": 5},
        "memory": summary([{"source": "S", "memory": [value(error)]} for error in (0.02, -0.04)] + [{}]),
    }  # fmt: skip
    text = memory_section(figures, oracle, published)
    assert "2 of 4 runs" in text
    assert "| h100 | dev | 1 | 100% | 100% | 100% | 1.00% | 1.0% | 100% |" in text
    assert "| h100 | dev, resumed | 1 | 0% | 0% | 0% | 50.00% | 50.0% | 100% |" in text
    assert "| a named cause | 1 | -20.0% | -50.0% |" in text
    assert "agree within 0.1 % in 100% of 1 pairs" in text
    assert "500 bytes, 7 different" in text
    assert "| nothing | 1 | 100% | 2 | 100% | 100% | 50% |" in text  # two equal runs, of which the account has one
    assert "| S, another engine | reserved | 2 | 3.0% | 3.0% | -1.0% | -4.0% | 50% | 0.5% |" in text
    assert "exceed the measured value in 1 runs" in text
    assert "ran, fits: 5" in text
