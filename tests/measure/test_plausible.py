"""Times above a peak are not believed."""

from __future__ import annotations

import pytest

from primus_lint.hardware import accelerator, node_type
from primus_lint.measure.plausible import why_not
from primus_lint.measure.records import Measurement

from .rows import row

GEMM = {"m": 4096, "n": 4096, "k": 4096}
AT_PEAK_S = 2 * 4096**3 / 989.4e12  # H100 SXM, dense bf16
LAYER = {
    "hidden_size": 4096, "ffn_hidden_size": 14336, "activation": "gated silu", "micro_batch_size": 1, "seq_length": 4096,
    "tp": 1, "cp": 1,
}  # fmt: skip
MLP_S = 3 * 2 * 4096 * 4096 * 14336 / 989.4e12


@pytest.mark.parametrize(
    ("measurement", "said"),
    [
        (row("gemm", "TN", GEMM, AT_PEAK_S * 1.3), None),
        (row("gemm", "TN", GEMM, AT_PEAK_S * 0.9), "dense peak"),
        (row("gemm", "TN", GEMM, AT_PEAK_S * 0.6, dtype="fp8"), None),
        (row("gemm", "TN", GEMM, AT_PEAK_S * 0.45, dtype="fp8"), "dense peak"),
        (row("grouped_gemm", "TN", {**GEMM, "groups": 8, "calls": 8}, AT_PEAK_S * 7), "dense peak"),
        (row("memory", "elementwise", {"bytes": 2**28}, 2**28 / 3e12), None),
        (row("memory", "elementwise", {"bytes": 2**28}, 2**28 / 4e12), "memory bandwidth"),
        (row("memory", "elementwise", {"bytes": 2**20}, 2**20 / 9e12), None),  # it may be in the cache
        (row("all_gather", "nccl", {"bytes": 2**29, "ranks": 8, "nodes": 1}, 7 / 8 * 2**29 / 400e9), None),
        (row("all_gather", "nccl", {"bytes": 2**29, "ranks": 8, "nodes": 1}, 7 / 8 * 2**29 / 600e9), "links"),
        (row("all_gather", "nccl", {"bytes": 2**29, "ranks": 16, "nodes": 2}, 15 / 16 * 2**29 / 2e12), "network"),
        (row("dense_layer", "forward", LAYER, MLP_S * 1.2), None),
        (row("dense_layer", "forward", LAYER, MLP_S * 0.9), "dense peak"),
        (row("dense_layer", "backward", LAYER, MLP_S * 1.9), "dense peak"),
    ],
)
def test_what_is_believed_of_an_h100(measurement: Measurement, said: str | None) -> None:
    reason = why_not(measurement, accelerator("h100"), node_type("h100"))
    assert reason is None if said is None else said in (reason or "")


def test_an_unknown_device_has_no_limits() -> None:
    assert why_not(row("gemm", "TN", GEMM, 1e-12), None, None) is None
