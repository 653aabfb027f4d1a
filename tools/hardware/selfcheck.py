"""Plausibility: no row above the device's dense peak, its memory bandwidth, or the rate of its links."""

from __future__ import annotations

from typing import Any

from primus_lint.hardware.curves import volume
from primus_lint.hardware.rates import attention_work, gemm_work, grouped_gemm_work

NOT_THE_FABRIC = 0.2  # share of the NIC rate below which a transfer did not use the network that the node has


class Limits:
    """Peaks and link rates by accelerator and node type, from hardware_db."""

    def __init__(self, raw: dict[str, Any]) -> None:
        from primus_lint.hardware.compiled import base

        self.peak = {
            name: {dtype: base(fact) for dtype, fact in entry["peak"].items()}
            for name, entry in raw["accelerators"].items()
        }
        self.bandwidth = {name: base(entry["memory_bandwidth"]) for name, entry in raw["accelerators"].items()}
        self.node = {
            name: {
                "kind": raw["fabrics"][node["fabric"]]["kind"],
                "in_switch": raw["fabrics"][node["fabric"]]["in_switch_reduction"],
                "rate": base(raw["fabrics"][node["fabric"]]["rate"]),
                "nic": base(raw["fabrics"][node["network"]]["rate"]),
            }
            for name, node in raw["nodes"].items()
        }


def why_impossible(limits: Limits, operation: str, device: str, row: tuple[Any, ...]) -> str | None:
    """The reason for which a row cannot be true; None when it can."""
    if row[-1] <= 0:
        return "time is not positive"
    if operation == "collective":
        return _collective(limits.node[device], *row)
    if operation == "memory":
        over = row[1] / row[-1] > limits.bandwidth[device]
        return "above the memory bandwidth" if over else None
    flops = _flops(operation, row)
    return "above the dense peak" if flops / row[-1] > limits.peak[device][row[0]] else None


def _flops(operation: str, row: tuple[Any, ...]) -> float:
    if operation == "gemm":
        dtype, op, m, n, k, _ = row
        return float(gemm_work(dtype, op, m, n, k)[0]) * (2 if op == "bwd" else 1)  # bwd: dgrad plus wgrad
    if operation == "grouped_gemm":
        dtype, op, groups, m, n, k, _ = row
        return float(grouped_gemm_work(dtype, op, groups, m, n, k)[0])
    _, direction, batch, heads, kv_heads, seq, dim_qk, dim_v, causal, _ = row
    share = 0.5 if causal else 1.0
    return float(attention_work(direction, batch, heads, kv_heads, seq, seq, dim_qk, dim_v, share)[0])


def _collective(
    node: dict[str, Any], op: str, nodes: int, gpus_per_node: int, message_bytes: float, time_s: float
) -> str | None:
    """Bus bandwidth against the links. A switch that reduces (NVLS) takes every byte once, so that the bus bandwidth of
    an all-reduce may reach 2(n-1)/n of the link rate."""
    ranks = nodes * gpus_per_node
    bus = message_bytes * (1.0 if op == "p2p" else volume(op, ranks)) / time_s
    if nodes > 1:
        limit = node["nic"] * (1 if op == "p2p" else gpus_per_node)
        if bus > limit:
            return "above the rate of the NICs"
        return "under a fifth of the NIC rate: not the fabric of the node" if bus < NOT_THE_FABRIC * limit else None
    limit = node["rate"]
    if node["kind"] == "mesh" and op != "p2p":
        limit *= ranks - 1
    if op == "all_reduce" and node["in_switch"]:
        limit *= volume(op, ranks)
    return "above the link rate" if bus > limit else None
