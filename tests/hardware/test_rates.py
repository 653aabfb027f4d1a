"""Fitted rates against rows: the stored held-out errors are reproduced, and the rows that were not stored agree."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primus_lint import resources
from primus_lint.hardware import accelerator, compiled, measured, names, rates
from tools import build_hardware
from tools.hardware.fit import held_out
from tools.hardware.selfcheck import Limits
from tools.hardware.tables import Ledger

DATABASE = resources.data_root("hardware_db")
with open(os.path.join(DATABASE, "fits.json"), encoding="utf-8") as _file:
    FITS: dict[str, Any] = json.load(_file)
GEMM = [(device, dtype) for device, dtypes in FITS["gemm"].items() for dtype in dtypes]
ATTENTION = [
    (device, direction, mask, dim)
    for device, directions in FITS["attention"].items()
    for direction, masks in directions.items()
    for mask, dims in masks.items()
    for dim in dims
]
# Held-out mean absolute errors that may not be passed: what was measured when this was written, plus a tenth. Sources: the
# 3-parameter roofline of the hold-out study misses by 6-10 % on the same tables; B200 bf16 joins two machines 25 % apart.
GEMM_BOUND = {"b200/bf16": 0.17, "mi350x/fp8": 0.17}
GEMM_BOUND_ELSE = 0.10
ATTENTION_BOUND = {"mi355x/forward/64": 0.22, "b200/backward/128": 0.16}
ATTENTION_BOUND_ELSE = 0.10


def _acc(name: str) -> Any:
    found = accelerator(name)
    assert found is not None
    return found


def _errors(rows: list[dict[str, Any]], device: str, dtype: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    acc = _acc(device)
    predicted = [rates.gemm_time_s(acc, dtype, row["m"], row["n"], row["k"]).time_s for row in rows]
    errors: np.ndarray[Any, np.dtype[np.float64]] = np.array(predicted) / np.array([row["time_s"] for row in rows]) - 1
    return errors


@pytest.mark.parametrize(("device", "dtype"), GEMM)
def test_gemm_error_on_unseen_shapes(device: str, dtype: str) -> None:
    fit = FITS["gemm"][device][dtype]
    assert fit["mape"] <= GEMM_BOUND.get(f"{device}/{dtype}", GEMM_BOUND_ELSE)
    if fit["held"] == fit["rows"] or (device.startswith("mi") and dtype == "fp8"):
        return  # leave-one-out, or rows of the bare product whose prediction adds the quantizing
    rows = [
        row
        for source in fit["source"].split("+")
        for row in measured.rows(f"gemm.{device}.{source}")
        if row["op"] == "fwd"
        and {"fp16": "bf16"}.get(row["dtype"], row["dtype"]) == dtype
        and held_out(row["n"], row["k"])
    ]
    assert len(rows) == fit["held"]
    error = _errors(rows, device, dtype)
    assert np.mean(np.abs(error)) == pytest.approx(fit["mape"], rel=0.01)
    inside = (1 / (1 + error) >= fit["band"][0] * 0.999) & (1 / (1 + error) <= fit["band"][1] * 1.001)
    assert inside.mean() >= 0.84  # the band spans the 5th to the 95th percentile


@pytest.mark.parametrize(("device", "direction", "mask", "dim"), ATTENTION)
def test_attention_error(device: str, direction: str, mask: str, dim: str) -> None:
    fit = FITS["attention"][device][direction][mask][dim]
    assert fit["mape"] <= ATTENTION_BOUND.get(f"{device}/{direction}/{dim}", ATTENTION_BOUND_ELSE)


@pytest.mark.parametrize("device", ["mi300x", "b200"])
def test_grouped_error(device: str) -> None:
    """The forward within what was measured: 4.8 % on MI300X (unseen), 11.8 % on B200 (leave one out)."""
    assert FITS["grouped_gemm"][device]["fwd"]["mape"] <= {"mi300x": 0.055, "b200": 0.13}[device]
    source = FITS["grouped_gemm"][device]["fwd"]["source"]
    rows = [row for row in measured.rows(f"grouped_gemm.{device}.{source}") if row["op"] == "fwd"]
    acc = _acc(device)
    error = [
        rates.grouped_gemm_time_s(acc, "bf16", row["groups"], row["m"], row["n"], row["k"]).time_s / row["time_s"] - 1
        for row in rows
    ]
    assert np.mean(np.abs(error)) < 0.12


def test_rows_that_were_not_stored_agree(measurements: str) -> None:
    """The thinned-out rows of the GEMM and attention tables: a far larger set of unseen shapes than the held-out ones."""
    limits = Limits(compiled.read_sources(DATABASE))
    ledger = Ledger()
    from tools.hardware.read_nvidia import aiconfigurator, keep_aiconfigurator

    seen = 0
    for table in aiconfigurator(measurements, ledger):
        build_hardware.check_rows(table, limits, ledger)
        if table.operation != "gemm" or table.device in ("a100-80gb", "b200"):
            continue
        unseen = [row for row in table.rows if not keep_aiconfigurator(table, row)]
        acc = _acc(table.device)
        for dtype in ("bf16", "fp8"):
            rows = [row for row in unseen if row[0] == dtype]
            m, n, k, seconds = (np.array([row[index] for row in rows], float) for index in (2, 3, 4, 5))
            error = rates.gemm_time_s(acc, dtype, m, n, k).time_s / seconds - 1
            assert np.mean(np.abs(error)) < 0.10, (table.device, dtype)
            seen += len(rows)
    assert seen > 10_000


# Primus-Turbo's averages over its training shapes, MI300X: forward bf16 607 TFLOP/s, grouped 475; MI355X bf16 1,535 (TFLOP/s).
@pytest.mark.parametrize(("device", "tflops"), [("mi300x", 607), ("mi355x", 1535)])
def test_published_averages_on_llama_shapes(device: str, tflops: float) -> None:
    """Llama-3.1-8B and 70B layers at 8,192 and 16,384 tokens: the mean of the modelled TFLOP/s within 7 % of the average."""
    acc = _acc(device)
    shapes = [
        (6144, 4096),
        (4096, 4096),
        (28672, 4096),
        (4096, 14336),
        (10240, 8192),
        (8192, 8192),
        (57344, 8192),
        (8192, 28672),
    ]
    speeds = [
        2 * m * n * k / rates.gemm_time_s(acc, "bf16", m, n, k).time_s / 1e12 for m in (8192, 16384) for n, k in shapes
    ]
    assert np.mean(speeds) == pytest.approx(tflops, rel=0.07)


@pytest.mark.parametrize("name", names())
def test_no_rate_passes_a_peak(name: str) -> None:
    """Whatever the shape, a modelled operation runs below the dense peak and the memory bandwidth."""
    acc = _acc(name)
    for dtype, rate in acc.rates["gemm"].items():
        for m, n, k in ((256, 256, 256), (4096, 4096, 4096), (131072, 28672, 8192)):
            for op in ("fwd", "dgrad", "wgrad"):
                found = rates.gemm_time_s(acc, dtype, m, n, k, op)
                assert 2 * m * n * k / found.time_s < acc.peak_flops[rate["peak"]]
                assert found.low <= 1 <= found.high
    for direction, products in (("forward", 1.0), ("backward", 2.5)):
        for seq in (1024, 8192, 131072):
            found = rates.attention_time_s(acc, "bf16", 1, 32, 8, seq, seq, 128, 128, direction=direction)
            assert products * 32 * seq * seq * 256 / found.time_s < acc.peak_flops["bf16"]
    for op in ("fwd", "dgrad", "wgrad"):
        found = rates.grouped_gemm_time_s(acc, "bf16", 8, 65536, 4096, 7168, op)
        assert 2 * 8 * 65536 * 4096 * 7168 / found.time_s < acc.peak_flops["bf16"]
    for kind in acc.rates["memory"]:
        assert 1e9 / rates.memory_time_s(acc, 1e9, kind).time_s < acc.memory_bytes_per_s


def test_tiers_say_where_a_rate_comes_from() -> None:
    assert rates.gemm_time_s(_acc("h100"), "bf16", 64, 64, 64).tier == "fitted"
    assert rates.gemm_time_s(_acc("h800"), "bf16", 64, 64, 64).tier == "transferred"
    assert rates.gemm_time_s(_acc("mi300x"), "fp8", 64, 64, 64).tier == "transferred"
    assert rates.gemm_time_s(_acc("mi355x"), "fp4", 64, 64, 64).tier == "constant"
    narrow, wide = (
        rates.gemm_time_s(_acc("h100"), "bf16", 64, 64, 64),
        rates.gemm_time_s(_acc("h800"), "bf16", 64, 64, 64),
    )
    assert wide.low < narrow.low and wide.high > narrow.high


def test_a_relative_runs_at_its_own_clock() -> None:
    """MI325X is MI300X silicon with more power: best matmuls of 784.9 and 668.4 TFLOP/s at the same peak."""
    shape = ("bf16", 1, 32, 8, 131072, 131072, 128, 128)
    ratio = (
        rates.attention_time_s(_acc("mi300x"), *shape).time_s / rates.attention_time_s(_acc("mi325x"), *shape).time_s
    )
    assert ratio == pytest.approx(784.9 / 668.4, rel=0.01)


def test_the_forward_is_that_of_training_kernels() -> None:
    """SimuMax's rows of B200, on which its forward is not fitted: of 16 heads and more, within 10 % in the mean."""
    table = Path(__file__).parents[2] / "hardware_db" / "measured" / "attention.b200.simumax.jsonl"
    off = []
    for line in table.read_text(encoding="utf-8").splitlines()[1:]:
        dtype, way, batch, heads, kv_heads, seq, dim, dim_v, causal, seconds = json.loads(line)
        if way == "forward" and causal and heads >= 16 and dim == dim_v == 128:
            found = rates.attention_time_s(_acc("b200"), dtype, batch, heads, kv_heads, seq, seq, dim, dim_v)
            off.append(abs(found.time_s / seconds - 1))
    assert len(off) == 8 and sum(off) / len(off) < 0.10


def test_blackwell_ultra_s_forward_is_faster_than_its_products_are() -> None:
    """AIConfigurator's medians of a forward at 8,192, head dimension 128: 1,275 TFLOP/s on B300, 1,041 on B200."""
    shape = ("bf16", 1, 32, 8, 131072, 131072, 128, 128)
    forward, backward = (
        rates.attention_time_s(_acc("b200"), *shape, direction=way).time_s
        / rates.attention_time_s(_acc("b300"), *shape, direction=way).time_s
        for way in ("forward", "backward")
    )
    assert forward == pytest.approx(1275 / 1041, rel=0.05) and backward == pytest.approx(1.0, abs=0.02)


def test_fp8_of_cdna3_is_its_bf16_at_the_median_ratio() -> None:
    """fp8 over bf16 share of bare products: 0.944 (H100), 0.939 (H200), 0.973 (GB200), 1.049 (MI355X)."""
    shares = []
    for name in ("h100", "h200", "gb200", "mi355x"):
        gemm = _acc(name).rates["gemm"]
        shares.append(gemm["fp8"]["math"] / gemm["bf16"]["math"])
    for name in ("mi300x", "mi325x"):
        gemm = _acc(name).rates["gemm"]
        assert gemm["fp8"]["math"] / gemm["bf16"]["math"] == pytest.approx(float(np.median(shares)), abs=0.005)
        assert not gemm["fp8"].get("whole")  # quantizing comes on top
