"""Times that no device can reach are not kept: more FLOP/s than the peak, more bytes/s than the memory or the links.

The limits are those of hardware_db; of a device that it does not know there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.measure.records import COLLECTIVES, LAYERS, PRODUCTS

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.measure.records import Measurement

CLOCK = 1.02  # boost clocks and rounded data sheets


def why_not(measurement: Measurement, accelerator: Accelerator | None, node: NodeType | None) -> str | None:
    """Why a measurement cannot be true; None when nothing speaks against it."""
    if accelerator is None:
        return None
    operation, shape, seconds = measurement.operation, measurement.shape, measurement.median_s
    if operation in PRODUCTS:
        flops = 2.0 * shape["m"] * shape["n"] * shape["k"] * shape.get("groups", 1)
        return _too_fast(flops / seconds, accelerator.peak_flops.get(measurement.dtype), "FLOP/s", "the dense peak")
    if operation == "attention":
        flops = shape["batch"] * shape["heads"] * shape["seq"] ** 2 * (shape["dim_qk"] + shape["dim_v"])
        flops *= (0.5 if "causal" in measurement.layout else 1.0) * 2 * (2.5 if "backward" in measurement.layout else 1)
        return _too_fast(flops / seconds, accelerator.peak_flops.get("bf16"), "FLOP/s", "the dense peak")
    if operation == "memory":
        if shape["bytes"] < 2**27:  # may stay in a cache
            return None
        return _too_fast(shape["bytes"] / seconds, accelerator.memory_bytes_per_s, "B/s", "the memory bandwidth")
    if operation in COLLECTIVES:
        return _collective(operation, shape, seconds, node)
    if operation in LAYERS:
        return _layer(measurement, accelerator)
    return None


def _too_fast(rate: float, limit: float | None, unit: str, name: str) -> str | None:
    if limit is None or rate <= limit * CLOCK:
        return None
    return f"{rate:.3g} {unit} is above {name} of {limit:.3g} {unit}"


def _collective(operation: str, shape: dict[str, Any], seconds: float, node: NodeType | None) -> str | None:
    """Bytes over a GPU's links against their rate inside a node, or against the node's network."""
    from primus_lint.hardware.curves import P2P, volume

    if node is None or shape["ranks"] < 2:
        return None
    ranks, nodes = shape["ranks"], shape["nodes"]
    crossing = shape["bytes"] * (1.0 if operation == P2P else volume(operation, ranks))
    if nodes == 1:
        peers = ranks - 1 if node.fabric_kind == "mesh" else 1
        # a switch that reduces (NVLS) sends every byte once where a ring counts it 2(n-1)/n times
        reduced = 2.0 if operation == "all_reduce" and node.fabric_kind == "switch" else 1.0
        return _too_fast(crossing / seconds, node.fabric_bytes_per_s * peers * reduced, "B/s", "the links' rate")
    here = -(-ranks // nodes)
    rate = min(here * node.network_bytes_per_s_per_gpu, node.nics * node.nic_bytes_per_s)
    return _too_fast(crossing / seconds, 2 * rate, "B/s", "twice the network's rate")


def _layer(measurement: Measurement, accelerator: Accelerator) -> str | None:
    """The products of a layer alone, at the peak of its dtype."""
    shape, layout = measurement.shape, measurement.layout
    peak = accelerator.peak_flops.get(measurement.dtype)
    if peak is None or measurement.operation not in ("dense_layer", "head"):
        return None
    tokens = shape["micro_batch_size"] * shape["seq_length"] / shape["cp"]
    if measurement.operation == "head":
        weights = shape["hidden_size"] * shape["vocab_size"] / shape["tp"]
    else:
        gated = 3 if str(shape["activation"]).startswith("gated") else 2
        weights = gated * shape["hidden_size"] * shape["ffn_hidden_size"] / shape["tp"]
    flops = 2 * tokens * weights * (2 if layout == "backward" else 1)
    return _too_fast(flops / measurement.median_s, peak, "FLOP/s", "the dense peak")
