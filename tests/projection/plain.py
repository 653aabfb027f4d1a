"""An accelerator and a node with round rates, so that seconds can be computed by hand.

1 PFLOP/s of everything, 1 TB/s of memory, no launch time, exact bands; collectives at 100 GB/s inside a node of 8 and
10 GB/s per GPU across, without latency.
"""

from __future__ import annotations

from typing import Any

from primus_lint.hardware.curves import GROUPS, OPERATIONS, SIZES, volume
from primus_lint.hardware.records import Accelerator, NodeType

FLOPS = 1e15
MEMORY = 1e12
INSIDE = 100e9
ACROSS = 10e9
_EXACT = {"band": [1.0, 1.0], "tier": "measured", "source": "plain"}
_GEMM = {"launch": 0.0, "math": 1.0, "bandwidth": 1e9, "dgrad": 1.0, "wgrad": 1.0, "peak": "bf16", **_EXACT}
_ATTENTION = {"launch": 0.0, "math": 1.0, "bandwidth": 1e9, "ratio": 1.0, **_EXACT}


def accelerator(name: str = "plain", **changes: Any) -> Accelerator:
    data: dict[str, Any] = {
        "title": "plain", "vendor": "nvidia", "arch": "9.0", "nodes": ["plain-8"], "nominal": 1, "visible": [1, 1, 1],
        "bandwidth": MEMORY, "units": 1, "peak": {"bf16": FLOPS, "fp8": 2 * FLOPS}, "achievable": {"bf16": FLOPS},
        "context": [0, 0], "communicator": [0, 0], "facts": [],
        "rates": {
            "gemm": {"bf16": _GEMM, "fp8": {**_GEMM, "peak": "fp8"}},
            "grouped_gemm": {
                peak: {way: {**_GEMM, "peak": peak} for way in ("fwd", "dgrad", "wgrad")} for peak in ("bf16", "fp8")
            },
            "attention": {way: {"causal": {"128": _ATTENTION}} for way in ("forward", "backward")},
            "memory": {"elementwise": {"share": 1.0, **_EXACT}},
        },
    }  # fmt: skip
    return Accelerator(name, {**data, **changes})


def node(inside: float = INSIDE, across: float = ACROSS, gpus: int = 8) -> NodeType:
    ops: dict[str, Any] = {
        op: {str(group): [volume(op, group) * size / inside for size in SIZES] for group in GROUPS} for op in OPERATIONS
    }
    ops["p2p"] = {"2": [size / inside for size in SIZES]}
    inter: dict[str, Any] = {op: [1.0, 1.0, 1.0] for op in (*OPERATIONS, "p2p")}
    inter.update(base=0.0, network_hop=0.0, peer=0.0)
    inter.update(ring=[[0.0, 0.0, 0.0, 1.0, 1e15]], tree=[[0.0, 0.0, 0.0, 1.0, 1e15]])
    data: dict[str, Any] = {
        "gpus_per_node": gpus, "scale_up_gpus": gpus, "fabric": "plain", "fabric_kind": "switch", "fabric_rate": inside,
        "network": "plain", "nics": gpus, "nic_rate": across, "host_memory": None, "note": "",
        "host_operation": [60e-6, 30e-6, 90e-6],
        "curves": {"ops": ops, "tier": "measured", "band": [1.0, 1.0], "source": "plain"}, "inter": inter,
    }  # fmt: skip
    return NodeType("plain-8", data)
