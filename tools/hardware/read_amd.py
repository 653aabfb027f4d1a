"""Primus-Turbo and HipKittens tables."""

from __future__ import annotations

import csv
import json
import os
import re
from typing import Any

from primus_lint.hardware.rates import attention_work, grouped_gemm_work
from tools.hardware.tables import Ledger, Table

# Primus-Turbo files that stay out, and why
UNUSED = {
    "gemm_fp8_baseline_ck.json": "the GPU is not named; kernels before tuning",
    "gemm_fp8_m_aware_ck.json": "the GPU is not named",
    "attention_decode_fp8.json": "decoding, not training",
    "grouped_gemm_fp8_optimized_ck.json": "quantisation study, a tenth of the speed of the bf16 baseline",
    "grouped_gemm_optimized_ck.json": "subset of the shapes of grouped_gemm.json",
    "grouped_gemm_triton_r5.json": "round of a kernel search, slower than the baseline",
}
MLA_VALUE_DIM = 128  # value head dimension of the 192-wide heads


def primus_turbo(root: str, ledger: Ledger) -> list[Table]:
    """MI300X baselines. Milliseconds have two decimals, so that times come from the TFLOP/s and their FLOP count."""
    folder = os.path.join(root, "primus-turbo")
    for name, reason in UNUSED.items():
        rows = _load(folder, name)
        results = rows if isinstance(rows, list) else rows["results"]
        count = sum(len(part) for part in results.values()) if isinstance(results, dict) else len(results)
        ledger.file(f"primus-turbo/{name}", count)
        ledger.reject(f"primus-turbo/{name}", reason, name, count)
    gemm = Table("gemm", "mi300x", "primus-turbo")
    for row in _configs(folder, "gemm.json", ledger):
        m, n, k = _numbers(row["label"], "MNK")
        gemm.rows.append(("bf16", "fwd", m, n, k, 2.0 * m * n * k / (row["tflops"] * 1e12)))
    grouped = Table("grouped_gemm", "mi300x", "primus-turbo")
    for row in _configs(folder, "grouped_gemm.json", ledger):
        groups, m, n, k = _numbers(row["label"], "BMNK")
        flops = grouped_gemm_work("bf16", "fwd", groups, m, n, k)[0]
        grouped.rows.append(("bf16", "fwd", groups, m, n, k, flops / (row["tflops"] * 1e12)))
    attention = Table("attention", "mi300x", "primus-turbo")
    for row in _configs(folder, "attention.json", ledger):
        batch, seq, heads, kv_heads, dim = (int(value) for value in re.findall(r"=(\d+)", row["label"]))
        dim_v = MLA_VALUE_DIM if dim == 192 else dim
        full = attention_work("forward", batch, heads, kv_heads, seq, seq, dim, dim_v, 1.0)[0]
        # The label does not say the mask: TFLOP/s times milliseconds gives the whole square or half of it.
        causal = row["tflops"] * row["mean_ms"] * 1e9 < 0.75 * full
        seconds = full * (0.5 if causal else 1.0) / (row["tflops"] * 1e12)
        attention.rows.append(("bf16", "forward", batch, heads, kv_heads, seq, dim, dim_v, causal, seconds))
    return [gemm, grouped, attention]


# file -> heads, kv heads, head dimension, direction; batch 16 (less where FLOPs say so), from time x TFLOP/s
ATTENTION = {
    "mi355x_mha_causal_fwd.json": (16, 16, 128, "forward"),
    "mi355x_gqa_causal_fwd.json": (64, 8, 128, "forward"),
    "mi355x_d64_gqa_causal_fwd.json": (64, 8, 64, "forward"),
    "mi355x_mha_bkwd_causal.json": (16, 16, 128, "backward"),
    "mi355x_gqa_bkwd_causal.json": (64, 8, 128, "backward"),
}
GEMMS = {
    "mi325x_bf16_gemm.json": ("mi325x", "bf16", ("pytorch",)),
    "mi355x_bf16_gemm.json": ("mi355x", "bf16", ("pytorch", "aiter")),
    "mi355x_fp8_gemm.json": ("mi355x", "fp8", ("hipblaslt",)),
}
HOST_BOUND = 4096  # square products up to this size: 25-40 us of host launch are a fifth of the time or more


def hipkittens(root: str, ledger: Ledger) -> list[Table]:
    """Library kernels (PyTorch, AITER, hipBLASLt) of square products and causal attention; milliseconds."""
    folder = os.path.join(root, "hipkittens")
    tables = {device: Table("gemm", device, "hipkittens") for device in ("mi325x", "mi350x", "mi355x")}
    for name, (device, dtype, libraries) in GEMMS.items():
        data = _load(folder, name)
        ledger.file(f"hipkittens/{name}", len(data) * (len(libraries) + 1))
        ledger.reject(f"hipkittens/{name}", "the paper's own kernel, which no trainer runs", name, len(data))
        for size, row in data.items():
            n = int(size)
            for library in libraries:
                shape = dtype, "fwd", n, n, n, 2.0 * n**3 / (row[f"tflops_{library}"] * 1e12)
                if n <= HOST_BOUND:
                    ledger.reject(f"hipkittens/{name}", "small product: 25-40 us of host launch in the time", shape)
                else:
                    tables[device].rows.append(shape)
    _mi350x(folder, tables["mi350x"], ledger)
    attention = Table("attention", "mi355x", "hipkittens", "AITER kernels")
    for name, heads in ATTENTION.items():
        _attention(folder, name, heads, attention, ledger)
    layernorm = _load(folder, "mi355x_layernorm.json")
    ledger.file("hipkittens/mi355x_layernorm.json", len(layernorm) * 3)
    reason = "the width of the rows is not stated"
    ledger.reject("hipkittens/mi355x_layernorm.json", reason, "mi355x_layernorm.json", len(layernorm) * 3)
    return [*tables.values(), attention]


def _mi350x(folder: str, table: Table, ledger: Ledger) -> None:
    name = "FP8GemmPerfComparisonmi350x.csv"
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ledger.file(f"hipkittens/{name}", 5 * len(rows))
    for row in rows:
        library = row.pop("")
        for size, tflops in row.items():
            n = int(size)
            shape = "fp8", "fwd", n, n, n, 2.0 * n**3 / (float(tflops) * 1e12)
            if library != "hipblaslt":
                ledger.reject(f"hipkittens/{name}", "the paper's own kernel, which no trainer runs", shape)
            elif n <= HOST_BOUND:
                ledger.reject(f"hipkittens/{name}", "small product: 25-40 us of host launch in the time", shape)
            else:
                table.rows.append(shape)


def _attention(folder: str, name: str, shape: tuple[int, int, int, str], table: Table, ledger: Ledger) -> None:
    heads, kv_heads, dim, direction = shape
    data = _load(folder, name)
    ledger.file(f"hipkittens/{name}", len(data) * 2)
    ledger.reject(f"hipkittens/{name}", "the paper's own kernel, which no trainer runs", name, len(data))
    for size, row in data.items():
        seq = int(size)
        per_batch = attention_work(direction, 1, heads, kv_heads, seq, seq, dim, dim, 0.5)[0]
        batch = round(row["tflops_ref"] * row["avg_time_ref"] * 1e9 / per_batch)
        seconds = row["avg_time_ref"] * 1e-3
        table.rows.append(("bf16", direction, batch, heads, kv_heads, seq, dim, dim, True, seconds))


def _load(folder: str, name: str) -> Any:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def _configs(folder: str, name: str, ledger: Ledger) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = _load(folder, name)["configs"]
    ledger.file(f"primus-turbo/{name}", len(configs))
    return configs


def _numbers(label: str, letters: str) -> list[int]:
    return [int(re.findall(rf"\b{letter}=(\d+)", label)[0]) for letter in letters]
