"""Seconds of one operation on one accelerator: GEMM, grouped GEMM, attention, memory-bound kernels.

Shapes may be Python numbers or broadcast NumPy arrays; dtype, pass, direction and head dimensions are structure: plain
values. Every function returns a `Seconds`: the time, its band as multiples of the time, and the tier.

Models (fitted by tools/build_hardware.py, see hardware_db/fits.json for parameters and held-out errors):
    GEMM            launch + max(flops / (peak * math), bytes / (memory bandwidth * bandwidth))   a roofline
      in fp8        the same + 3 bytes per activation element / (memory bandwidth * quantize): quantizing is included
    grouped GEMM    launch + flops / (peak * math) + bytes / (memory bandwidth * bandwidth)
    attention       the same sum, one set of parameters per direction, mask and head dimension
    memory          bytes / (memory bandwidth * share)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator

ELEMENT_BYTES = {
    "bf16": 2.0, "fp16": 2.0, "tf32": 4.0, "fp32": 4.0, "fp8": 1.0, "fp8_blockwise": 1.0, "mxfp8": 1.0, "turbo_mxfp8": 1.0, "fp4": 0.5,
}  # fmt: skip
WEIGHT_GRADIENT_BYTES = 8.0  # the fp32 main gradient is read and written (gradient accumulation fusion)
QUANTIZE_BYTES = 3.0  # a 16-bit activation is read, its fp8 value written; wgrad finds both operands quantized
BACKWARD_FLOPS = 2.5  # five products backward against two forward: the scores are recomputed (arXiv 2307.08691)
BACKWARD_BYTES = 2.0  # q, k, v, out and their gradients


class Seconds(NamedTuple):
    """`time_s`; true times are expected in time_s * [low, high]. Tier: measured, fitted, transferred, constant. `sustained`:
    measured in loops as long as training steps, not in short bursts."""

    time_s: Any
    low: Any
    high: Any
    tier: str
    sustained: bool = False


def gemm_work(dtype: str, op: str, m: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """(FLOPs, bytes read and written at least) of [m,k] x [k,n]. `op`: fwd, dgrad, wgrad."""
    size = ELEMENT_BYTES[dtype]
    out = WEIGHT_GRADIENT_BYTES if op == "wgrad" else max(size, 2.0)
    return 2.0 * m * n * k, size * (m * k + n * k) + out * m * n


def attention_work(
    direction: str, batch: Any, heads: Any, kv_heads: Any, seq_q: Any, seq_kv: Any, head_dim_qk: int, head_dim_v: int,
    score_share: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """(FLOPs, bytes) of the attention core in 16-bit elements. `score_share`: part of the score matrix that is computed
    (0.5 causal, 1.0 full). `direction`: forward, backward."""
    flops = 2.0 * batch * heads * seq_q * seq_kv * (head_dim_qk + head_dim_v) * score_share
    moved = 2.0 * batch * (seq_q * heads + seq_kv * kv_heads) * (head_dim_qk + head_dim_v)
    if direction == "backward":
        return flops * BACKWARD_FLOPS, moved * BACKWARD_BYTES
    return flops, moved


def gemm_time_s(acc: Accelerator, dtype: str, m: Any, n: Any, k: Any, op: str = "fwd") -> Seconds:
    """One product [m,k] x [k,n] of the dimensions actually multiplied. `dtype`: bf16, fp16, tf32, fp32, fp8,
    fp8_blockwise, mxfp8, turbo_mxfp8, fp4; one that the accelerator lacks is timed as bf16 (legality is decided elsewhere).
    """
    rate = _of_dtype(acc.rates["gemm"], dtype)
    flops, moved = gemm_work(dtype, op, m, n, k)
    busy = maximum(
        flops / (acc.peak_flops[rate["peak"]] * rate["math"]), moved / (acc.memory_bytes_per_s * rate["bandwidth"])
    )
    if "quantize" in rate and op != "wgrad":
        busy = busy + QUANTIZE_BYTES * m * k / (acc.memory_bytes_per_s * rate["quantize"])
    slower = 1.0 if op == "fwd" else rate[op]
    return _seconds((rate["launch"] + busy) * slower, rate)


def linear_times_s(
    acc: Accelerator, dtype: str, tokens: Any, in_features: Any, out_features: Any
) -> tuple[Seconds, Seconds, Seconds]:
    """Forward, dgrad and wgrad of y[tokens, out] = x[tokens, in] W."""
    return (
        gemm_time_s(acc, dtype, tokens, out_features, in_features, "fwd"),
        gemm_time_s(acc, dtype, tokens, in_features, out_features, "dgrad"),
        gemm_time_s(acc, dtype, out_features, in_features, tokens, "wgrad"),
    )


def grouped_gemm_time_s(acc: Accelerator, dtype: str, groups: Any, m: Any, n: Any, k: Any, op: str = "fwd") -> Seconds:
    """`groups` products [m,k] x [k,n] with `m` tokens each (balanced experts). For wgrad the product is [n,m] x [m,k]:
    the arguments stay those of the forward."""
    rate = _of_dtype(acc.rates["grouped_gemm"], dtype)[op]
    flops, moved = grouped_gemm_work(dtype, op, groups, m, n, k)
    busy = flops / (acc.peak_flops[rate["peak"]] * rate["math"]) + moved / (acc.memory_bytes_per_s * rate["bandwidth"])
    if "quantize" in rate and op != "wgrad":
        rows = 1.0 * groups * m * (k if op == "fwd" else n)
        busy = busy + QUANTIZE_BYTES * rows / (acc.memory_bytes_per_s * rate["quantize"])
    return _seconds(rate["launch"] + busy, rate)


def grouped_gemm_work(dtype: str, op: str, groups: Any, m: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """(FLOPs, bytes) of a grouped product, arguments of the forward."""
    if op == "wgrad":
        flops, moved = gemm_work(dtype, op, n, k, m)
    elif op == "dgrad":
        flops, moved = gemm_work(dtype, op, m, k, n)
    else:
        flops, moved = gemm_work(dtype, op, m, n, k)
    return groups * flops, groups * moved


def attention_time_s(
    acc: Accelerator, dtype: str, batch: Any, heads: Any, kv_heads: Any, seq_q: Any, seq_kv: Any, head_dim_qk: int,
    head_dim_v: int, *, direction: str = "forward", causal: bool = True, score_share: Any = None,
) -> Seconds:  # fmt: skip
    """Fused attention core. `score_share`: part of the score matrix computed, default 0.5 if `causal` else 1. 16-bit
    kernels were measured; another `dtype` is timed as bf16."""
    masks = acc.rates["attention"][direction]
    dims = masks["causal" if causal or "full" not in masks else "full"]
    rate = dims[min(dims, key=lambda dim: abs(math.log(int(dim) / head_dim_qk)))]
    share = (0.5 if causal else 1.0) if score_share is None else score_share
    # A backward rate without rows of its own is a multiple (`ratio`) of the forward time.
    counted = "forward" if rate["ratio"] != 1.0 else direction
    flops, moved = attention_work(counted, batch, heads, kv_heads, seq_q, seq_kv, head_dim_qk, head_dim_v, share)
    busy = flops / (acc.peak_flops["bf16"] * rate["math"]) + moved / (acc.memory_bytes_per_s * rate["bandwidth"])
    return _seconds((rate["launch"] + busy) * rate["ratio"], rate)


def memory_time_s(acc: Accelerator, moved_bytes: Any, kind: str = "elementwise") -> Seconds:
    """A fused memory-bound kernel that reads and writes `moved_bytes` in all. `kind`: elementwise, optimizer, and on
    NVIDIA permute and cross_entropy; one without a share of its own counts as elementwise."""
    rates = acc.rates["memory"]
    rate = rates.get(kind) or rates["elementwise"]
    return _seconds(moved_bytes / (acc.memory_bytes_per_s * rate["share"]), rate)


def _of_dtype(rates: dict[str, Any], dtype: str) -> Any:
    return rates.get(dtype) or rates.get("fp32" if dtype == "tf32" else "bf16")


def _seconds(time_s: Any, rate: dict[str, Any]) -> Seconds:
    low, high = rate["band"]
    return Seconds(time_s, low, high, rate["tier"], rate.get("sustained", False))
