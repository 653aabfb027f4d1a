"""Which rows each rate is fitted on, and the fits themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from primus_lint.hardware.curves import GROUPS, OPERATIONS, SIZES
from primus_lint.hardware.rates import QUANTIZE_BYTES, attention_work, gemm_work, grouped_gemm_work
from tools.hardware.fit import Sample, additive, fit, held_out, roofline
from tools.hardware.selfcheck import Limits
from tools.hardware.tables import Table

Tables = dict[str, Table]
# (accelerator, dtype) -> sources of forward rows; several sources count the same in sum
GEMM = {
    ("a100-80gb", "bf16"): ("aiconfigurator", "estimate-train-time"),
    ("a100-pcie-80gb", "bf16"): ("simumax",),
    ("gh200-96gb", "bf16"): ("estimate-train-time",),
    ("h100", "bf16"): ("aiconfigurator",),
    ("h100", "fp8"): ("aiconfigurator",),
    ("h200", "bf16"): ("aiconfigurator",),
    ("h200", "fp8"): ("aiconfigurator",),
    # SimuMax measures in loops as long as training steps: 0.69 of AIConfigurator's short bursts at 25 equal shapes. Its own
    # B200 runs agree with the sustained rate, which is what a step gets.
    ("b200", "bf16"): ("simumax",),
    ("b200", "fp8"): ("aiconfigurator",),
    ("gb200", "bf16"): ("aiconfigurator",),
    ("gb200", "fp8"): ("aiconfigurator",),
    ("mi300x", "bf16"): ("primus-turbo",),
    ("mi325x", "bf16"): ("hipkittens",),
    ("mi350x", "fp8"): ("hipkittens",),
    ("mi355x", "bf16"): ("hipkittens",),
    ("mi355x", "fp8"): ("hipkittens",),
}
# AMD rows are all large: launch (Primus's 2.8 us) and bandwidth (its share for norms) cannot be told from them
AMD_START, AMD_FIXED = [2.8e-6, 0.5, 0.566], {0, 2}
# SimuMax's rows are all large as well: launch and bandwidth of the fit on AIConfigurator's
B200_START, B200_FIXED = [2.5e-6, 0.5, 0.517], {0, 2}
GROUPED = {"mi300x": "primus-turbo", "b200": "simumax", "a100-pcie-80gb": "simumax"}
# accelerator -> source of attention rows; True: one set for all head dimensions (too few rows for each)
ATTENTION = {
    "a100-pcie-80gb": ("simumax", False), "h100": ("aiconfigurator", False), "h200": ("aiconfigurator", False),
    "b200": ("aiconfigurator", False), "gb200": ("aiconfigurator", False), "mi300x": ("primus-turbo", False),
    "mi355x": ("hipkittens", False),
}  # fmt: skip
BACKWARD = {"a100-pcie-80gb": ("simumax", False), "b200": ("simumax", True), "mi355x": ("hipkittens", False)}
DIMS = (64, 128, 192, 256)
# Rows of one or two sequence lengths cannot tell how the efficiency grows with it. MI300X (4,096 and 8,192): launch and
# bandwidth of a free fit of head dimension 128, causal. A100-PCIe (4,096): its share for plain kernels.
NARROW: dict[str, tuple[list[float], set[int]]] = {
    "mi300x": ([2e-5, 0.4, 0.53], {0, 2}),
    "a100-pcie-80gb": ([1e-4, 0.6, 0.752], {2}),
}
SAME = {"fp16": "bf16"}


def gemm_fits(tables: Tables, limits: Limits) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (device, dtype), sources in GEMM.items():
        parts = []
        for source in sources:
            rows = [row for row in tables[f"gemm.{device}.{source}"].rows if SAME.get(row[0], row[0]) == dtype]
            parts.append([row for row in rows if row[1] == "fwd"])
        sample = _gemm_sample(parts, device, dtype, limits)
        amd = device.startswith("mi")
        start, fixed = (AMD_START, AMD_FIXED) if amd else ([4e-6, 0.7, 0.7], None)
        if sources == ("simumax",) and device == "b200":
            start, fixed = B200_START, B200_FIXED
        if dtype == "fp8" and not amd:  # AIConfigurator's fp8 rows quantize their activations; AMD's do not
            start = [*start, 0.7]
        rate = fit(roofline, sample, start, fixed, 2 if len(sources) > 1 else 1)
        rate["source"] = "+".join(sources)
        rate.update(_pass_ratios(tables, device, dtype, sources, limits))
        found.setdefault(device, {})[dtype] = rate
    return found


def _gemm_sample(parts: list[list[Any]], device: str, dtype: str, limits: Limits) -> Sample:
    rows = [row for part in parts for row in part]
    weight = [1 / len(part) for part in parts for _ in part]
    m, n, k, seconds = (np.array([row[index] for row in rows], float) for index in (2, 3, 4, 5))
    flops, moved = gemm_work(dtype, "fwd", m, n, k)
    held = [held_out(row[3], row[4]) for row in rows]  # by (n, k): unseen layers, not unseen batch sizes
    quantize_s = QUANTIZE_BYTES * m * k / limits.bandwidth[device]
    return Sample(
        flops / limits.peak[device][dtype], moved / limits.bandwidth[device], seconds, weight, held, quantize_s
    )


def _pass_ratios(
    tables: Tables, device: str, dtype: str, sources: tuple[str, ...], limits: Limits
) -> dict[str, float | None]:
    """dgrad and wgrad time over the forward model fitted on the same source (median of rows).

    Not from estimate-train-time: its backward rows reach 95 % (A100) and 98 % (GH200) of the peak, faster than its
    forwards, which no other source sees and no training run sustains (data without entropy draws little power).
    """
    for source in reversed(sources):
        if source == "estimate-train-time":
            continue
        rows = [row for row in tables[f"gemm.{device}.{source}"].rows if SAME.get(row[0], row[0]) == dtype]
        if all(row[1] == "fwd" for row in rows):
            continue
        own = _gemm_sample([[row for row in rows if row[1] == "fwd"]], device, dtype, limits)
        rate = fit(roofline, own, [4e-6, 0.7, 0.7])
        ratios: dict[str, list[float]] = {"dgrad": [], "wgrad": []}
        for _, op, m, n, k, seconds in rows:
            if op in ratios:
                ratios[op].append(seconds / _modelled(rate, device, dtype, op, m, n, k, limits))
            elif op == "bwd":  # y = x W: dgrad [m,n]x[n,k], wgrad [n,m]x[m,k]
                both = _modelled(rate, device, dtype, "dgrad", m, k, n, limits)
                both += _modelled(rate, device, dtype, "wgrad", n, k, m, limits)
                ratios["dgrad"].append(seconds / both)
                ratios["wgrad"].append(seconds / both)
        return {op: float(f"{np.median(values):.4g}") for op, values in ratios.items()}
    return {"dgrad": None, "wgrad": None}


def _modelled(rate: dict[str, Any], device: str, dtype: str, op: str, m: int, n: int, k: int, limits: Limits) -> float:
    flops, moved = gemm_work(dtype, op, m, n, k)
    math_s = flops / limits.peak[device][dtype] / rate["math"]
    return float(rate["launch"] + max(math_s, moved / limits.bandwidth[device] / rate["bandwidth"]))


def grouped_fits(tables: Tables, limits: Limits, gemm: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for device, source in GROUPED.items():
        rows = tables[f"grouped_gemm.{device}.{source}"].rows
        joint = len(rows) < 15  # A100-PCIe: 4 rows per pass
        for op in ("fwd", "dgrad", "wgrad"):
            own = [row for row in rows if row[1] == op or (joint and op != "wgrad" and row[1] != "wgrad")]
            if not own:
                continue
            work = [grouped_gemm_work(row[0], row[1], *row[2:6]) for row in own]
            sample = Sample(
                np.array([flops for flops, _ in work]) / limits.peak[device]["bf16"],
                np.array([moved for _, moved in work]) / limits.bandwidth[device],
                [row[-1] for row in own], np.ones(len(own)), [held_out(*row[2:6]) for row in own],
            )  # fmt: skip
            start, fixed = [2e-5, 0.5, 0.6], set[int]()
            if joint:  # two sizes of group: the math of the dense product
                dense = gemm[device]["bf16"]["math"]
                start, fixed = (
                    ([2e-5, dense, 0.6], {1})
                    if op != "wgrad"
                    else ([found[device]["fwd"]["launch"], dense, 0.6], {0, 1})
                )
            rate = fit(additive, sample, start, fixed)
            rate["source"] = source
            found.setdefault(device, {})[op] = rate
    return found


def attention_fits(tables: Tables, limits: Limits) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for direction, plan in (("forward", ATTENTION), ("backward", BACKWARD)):
        for device, (source, joint) in plan.items():
            rows = [row for row in tables[f"attention.{device}.{source}"].rows if row[1] == direction]
            if device == "mi355x" and direction == "backward":
                rows = [row for row in rows if row[3] == row[4]]  # that AITER's GQA backward is 3-4 times slower
            for mask, causal in (("causal", True), ("full", False)):
                for dim in DIMS:
                    own = [row for row in rows if row[8] == causal and (joint or row[6] == dim)]
                    if len(own) >= 4 and (not joint or dim == 128):
                        rate = _attention_fit(own, device, direction, source, limits)
                        found.setdefault(device, {}).setdefault(direction, {}).setdefault(mask, {})[str(dim)] = rate
    return found


def _attention_fit(rows: list[Any], device: str, direction: str, source: str, limits: Limits) -> dict[str, Any]:
    work = []
    for row in rows:
        _, _, batch, heads, kv_heads, seq, dim_qk, dim_v, causal, _ = row
        share = 0.5 if causal else 1.0
        work.append(attention_work(direction, batch, heads, kv_heads, seq, seq, dim_qk, dim_v, share))
    sample = Sample(
        np.array([flops for flops, _ in work]) / limits.peak[device]["bf16"],
        np.array([moved for _, moved in work]) / limits.bandwidth[device],
        [row[-1] for row in rows], np.ones(len(rows)), [held_out(*row[2:8]) for row in rows],
    )  # fmt: skip
    start, fixed = NARROW.get(device, ([3e-5, 0.5, 0.4], set()))
    rate = fit(additive, sample, start, fixed)
    rate["source"] = source
    return rate


def memory_fits(tables: Tables, limits: Limits) -> dict[str, Any]:
    """Median share of the bandwidth over rows that last longer than launches do."""
    found: dict[str, Any] = {}
    for table in tables.values():
        if table.operation != "memory":
            continue
        for op, kind in (("residual_add", "elementwise"), ("optimizer", "optimizer")):
            rows = [row for row in table.rows if row[0] == op and (row[2] > 5e-5 if kind == "elementwise" else True)]
            if not rows:
                continue
            moved, seconds = np.array([row[1] for row in rows], float), np.array([row[2] for row in rows], float)
            if kind == "optimizer":  # many tensors: a constant of launches and a slope
                slope, constant = _line(moved, seconds)
                share, error = 1 / (slope * limits.bandwidth[table.device]), (constant + slope * moved) / seconds - 1
            else:
                share = float(np.median(moved / seconds)) / limits.bandwidth[table.device]
                error = moved / (share * limits.bandwidth[table.device]) / seconds - 1
            low, high = (1 / (1 + float(np.quantile(error, q))) for q in (0.95, 0.05))
            found.setdefault(table.device, {})[kind] = {
                "share": float(f"{share:.4g}"), "band": [float(f"{low:.4g}"), float(f"{high:.4g}")],
                "rows": len(rows), "held": 0, "mape": float(f"{np.mean(np.abs(error)):.4g}"), "kind": "fitted",
                "source": table.source,
            }  # fmt: skip
    return found


def _line(x: Any, y: Any) -> tuple[float, float]:
    """Slope and constant of a least-squares line in relative error."""
    solution = np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1) / y[:, None], np.ones_like(y), rcond=None)[0]
    return float(solution[0]), float(solution[1])


def curve_fits(tables: Tables) -> dict[str, Any]:
    """Seconds at the sizes of `curves.SIZES` for every measured node, made to rise with the size (the dips are noise and
    changes of protocol); error: every second size left out."""
    found: dict[str, Any] = {}
    for table in tables.values():
        if table.operation != "collective" or table.source != "aiconfigurator":
            continue
        ops: dict[str, Any] = {}
        errors: list[float] = []
        for op in OPERATIONS:
            for group in GROUPS:
                rows = sorted((row[3], row[4]) for row in table.rows if row[0] == op and row[2] == group)
                if not rows:
                    continue
                size, seconds = np.array(rows, float).T
                at = np.interp(np.log2(SIZES), np.log2(size), np.log2(seconds))
                ops.setdefault(op, {})[str(group)] = [float(f"{value:.5g}") for value in np.exp2(rising(list(at)))]
                guess = np.exp2(np.interp(np.log2(size[1:-1:2]), np.log2(size[::2]), np.log2(seconds[::2])))
                errors += list(guess / seconds[1:-1:2] - 1)
        found[table.device] = {
            "ops": ops, "source": table.source, "rows": len(table.rows), "kind": "fitted",
            "mape": float(f"{np.mean(np.abs(errors)):.4g}"), "held": len(errors),
        }  # fmt: skip
    return found


def rising(values: list[float]) -> list[float]:
    """The nearest (least squares) sequence that does not fall: pool adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, size = pools.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]
