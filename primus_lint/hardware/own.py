"""Devices that hardware_db does not know, made from what the user measured on them.

Their peaks are the best rates that were measured, so that a share of peak is a share of what a plain product reaches here.
Times come from the measurements themselves (`projection.measured`); these rates only say how time grows between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.hardware.curves import GROUPS, OPERATIONS, P2P, SIZES, volume
from primus_lint.hardware.records import Accelerator, NodeType
from primus_lint.measure.records import PRODUCTS
from primus_lint.measure.where import existing, mentions

if TYPE_CHECKING:
    from primus_lint.measure.records import Measurement

BAND = [0.5, 2.0]  # a roofline at full peak, before measurements correct it
LINK_BAND = [0.25, 4.0]  # nothing is known of the links but the memory behind them
LINK_LATENCY_S = 50e-6  # of a message through sockets or shared memory, order of magnitude
LIKE = "a100-pcie-8"  # the node of hardware_db that lends what a node of one's own does not say (its network)


def accelerator(name: str) -> Accelerator | None:
    """A device of the user's store; None when the store does not know it."""
    facts, rows = _of(name)
    return None if facts is None else build(name, facts, rows)


def node_type(name: str) -> NodeType | None:
    """The node of such a device (named like the device)."""
    facts, rows = _of(name)
    return None if facts is None else build_node(name, facts, rows)


def _of(name: str) -> tuple[dict[str, Any] | None, list[Measurement]]:
    path = existing()
    if path is None or not mentions(path, name):
        return None, []
    from primus_lint.measure.store import Store, StoreError

    try:
        with Store(path) as store:
            return store.device(name), store.rows(name)
    except StoreError:
        return None, []


def build(name: str, facts: dict[str, Any], rows: list[Measurement]) -> Accelerator:
    """`facts`: label, kind ("cpu", "cuda"), memory_bytes, units. Rates from the best of `rows`."""
    peaks: dict[str, float] = {}
    for row in rows:
        if row.operation in PRODUCTS:
            shape = row.shape
            flops = 2.0 * shape["m"] * shape["n"] * shape["k"] * shape.get("groups", 1)
            peaks[row.dtype] = max(peaks.get(row.dtype, 0.0), flops / row.median_s)
    best = max(peaks.values(), default=1e11)
    for dtype in ("bf16", "fp32"):
        peaks.setdefault(dtype, best)
    largest = max((row.shape["bytes"] for row in rows if row.operation == "memory"), default=0)
    bandwidth = max(
        (largest / row.median_s for row in rows if row.operation == "memory" and row.shape["bytes"] == largest),
        default=best / 10,
    )
    plain = {"launch": 0.0, "math": 1.0, "bandwidth": 1.0, "band": BAND, "tier": "constant", "source": "own"}
    products = {dtype: {**plain, "dgrad": 1.0, "wgrad": 1.0, "peak": dtype} for dtype in peaks}
    grouped = {dtype: {op: {**plain, "peak": dtype} for op in ("fwd", "dgrad", "wgrad")} for dtype in peaks}
    core = {direction: {"causal": {"128": {**plain, "ratio": 1.0}}} for direction in ("forward", "backward")}
    memory = int(facts["memory_bytes"])
    return Accelerator(
        name,
        {
            "title": facts["label"], "vendor": "cpu" if facts["kind"] == "cpu" else "own", "arch": "", "nodes": [name],
            "nominal": memory, "visible": [memory, memory, memory], "bandwidth": bandwidth, "units": facts["units"],
            "peak": peaks, "achievable": dict(peaks), "context": [0, 0], "communicator": [0, 0],
            "rates": {
                "gemm": products, "grouped_gemm": grouped, "attention": core,
                "memory": {"elementwise": {**plain, "share": 1.0}},
            },
        },
    )  # fmt: skip


def build_node(name: str, facts: dict[str, Any], rows: list[Measurement]) -> NodeType:
    """A node of `facts["gpus_per_node"]` such devices. Without measured collectives, messages go through memory: every
    byte is written and read on both sides."""
    from primus_lint.hardware import node_data

    rate = build(name, facts, rows).memory_bytes_per_s / 4
    ops: dict[str, Any] = {
        op: {str(group): [LINK_LATENCY_S + volume(op, group) * size / rate for size in SIZES] for group in GROUPS}
        for op in OPERATIONS
    }
    ops[P2P] = {"2": [LINK_LATENCY_S + size / rate for size in SIZES]}
    data = dict(node_data(LIKE))
    gpus = int(facts["gpus_per_node"])
    data.update(
        gpus_per_node=gpus, scale_up_gpus=gpus, fabric="own", fabric_kind="pcie", fabric_rate=rate, note="measured by its user",
        curves={"ops": ops, "tier": "constant", "band": LINK_BAND, "source": "own"},
    )  # fmt: skip
    if facts["kind"] == "cpu":
        data["host_operation"] = [0.0, 0.0, 0.0]  # the device is the host
    return NodeType(name, data)


def describe(found: Accelerator) -> list[tuple[str, str, str, str]]:
    """Rows (label, value, unit, source) of a device of the user's, as `hardware.describe` gives them."""
    rows = [
        ("name", found.name, "", found.label),
        ("memory", f"{found.visible_hbm_bytes:,}", "B", "as its driver or system says"),
        ("memory bandwidth", f"{found.memory_bytes_per_s:,.0f}", "B/s", "measured"),
    ]
    best = [(f"best product {dtype}", f"{rate:,.0f}", "FLOP/s", "measured") for dtype, rate in found.peak_flops.items()]
    return [*rows, *best]
