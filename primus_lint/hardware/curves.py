"""Seconds of a collective by message size, for every node type: measured, or carried over from another node.

A curve is a list of seconds at the message sizes 2**9 ... 2**29 bytes. `volume` turns message bytes into the bytes that
cross a GPU's links (NCCL's bus bandwidth convention).
"""

from __future__ import annotations

from typing import Any

from primus_lint.hardware.compiled import base

FIRST_LOG2, LAST_LOG2 = 9, 29
SIZES = [2**exponent for exponent in range(FIRST_LOG2, LAST_LOG2 + 1)]
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
GROUPS = (2, 4, 8)
P2P = "p2p"
# steps of a ring, in which the first byte makes its way
STEPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def volume(operation: str, group: Any) -> Any:
    """Bytes over a GPU's links per message byte: 2(n-1)/n for all-reduce, (n-1)/n for the others."""
    return STEPS[operation] * (group - 1) / group


def resolve_nodes(raw: dict[str, Any]) -> dict[str, Any]:
    """Node types in base units with their curves and the constants of their network."""
    found = {}
    for name, node in raw["nodes"].items():
        fabric, network = raw["fabrics"][node["fabric"]], raw["fabrics"][node["network"]]
        memory = node.get("host_memory")
        host = raw["rates"]["host_operation"]
        operation = host.get(name, host["default"])
        vendor = "amd" if fabric["name"].startswith("xgmi") else "nvidia"
        found[name] = {
            "gpus_per_node": node["gpus_per_node"],
            "scale_up_gpus": node["scale_up_gpus"],
            "fabric": fabric["name"],
            "fabric_kind": fabric["kind"],
            "fabric_rate": base(fabric["rate"]),
            "network": network["name"],
            "nic_rate": base(network["rate"]),
            "nics": node["nics"],
            "host_memory": None if memory is None else base(memory),
            "host_operation": [base(operation), base(operation, "low"), base(operation, "high")],
            "note": node.get("note", ""),
            "curves": _curves(raw, name),
            "inter": _inter(raw["collectives"], vendor),
        }
    return found


def _inter(collectives: dict[str, Any], vendor: str) -> dict[str, Any]:
    """Seconds of hops, per operation [share, time low, time high], and per algorithm its protocols, each [start, hop
    inside, hop between (s), share, cap of its rate between domains (B/s)]."""
    found: dict[str, Any] = {}
    for name, fact in collectives["inter_node"][vendor].items():
        share = base(fact)
        if fact["unit"] == "us":
            found[name] = share
        else:
            found[name] = [share, share / base(fact, "high"), share / base(fact, "low")]
    cap = base(collectives["low_latency_cap"])
    for algorithm in ("ring", "tree"):
        found[algorithm] = [
            [start * 1e-6, inside * 1e-6, between * 1e-6, share, cap if name == "ll" else 1e15]
            for name, (start, inside, between, share) in collectives["protocols"][vendor][algorithm].items()
        ]
    return found


def _curves(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """{"ops": {operation: {group size as text: seconds}}, "tier", "band", "source"} of a node type."""
    rule = raw["collectives"]["curves"].get(name, {})
    bands = raw["collectives"]["bands"]
    measured = raw["fits"]["curves"].get(name)
    if measured is not None:
        ops = {operation: dict(groups) for operation, groups in measured["ops"].items()}
        if "extend" in rule:
            other = raw["fits"]["curves"][rule["extend"]]["ops"]
            for operation in OPERATIONS:
                ops[operation] = {**other[operation], **ops[operation]}
        _add_p2p(ops)
        return _result(ops, "measured", bands["measured"], measured["source"])
    if "like" in rule:
        other = _curves(raw, rule["like"])
        ratio = _rate(raw, rule["like"]) / _rate(raw, name)
        ops = {
            operation: {group: _stretched(seconds, ratio) for group, seconds in groups.items()}
            for operation, groups in other["ops"].items()
        }
        return _result(ops, "transferred", bands["like"], other["source"])
    if "mesh" in rule:
        return _result(
            _mesh(raw, name, rule["mesh"]), "transferred", bands["mesh"], _fabric(raw, name)["achievable"]["source"]
        )
    linear = raw["collectives"]["linear"][rule["linear"]]
    ops = _linear(linear, rule.get("rate_ratio", 1.0))
    _add_p2p(ops)
    tier = "measured" if "rate_ratio" not in rule else "transferred"
    return _result(ops, tier, bands["linear"], linear["source"])


def _result(ops: dict[str, Any], tier: str, band: dict[str, Any], source: str) -> dict[str, Any]:
    rounded = {
        operation: {group: [float(f"{value:.5g}") for value in seconds] for group, seconds in groups.items()}
        for operation, groups in ops.items()
    }
    return {"ops": rounded, "tier": tier, "band": [band["low"], band["high"]], "source": source}


def _fabric(raw: dict[str, Any], name: str) -> dict[str, Any]:
    fabric: dict[str, Any] = raw["fabrics"][raw["nodes"][name]["fabric"]]
    return fabric


def _rate(raw: dict[str, Any], name: str) -> float:
    return float(base(_fabric(raw, name)["rate"]))


def _stretched(seconds: list[float], ratio: float) -> list[float]:
    """The same latency, `ratio` times the time on the wire."""
    return [seconds[0] + (value - seconds[0]) * ratio for value in seconds]


def _mesh(raw: dict[str, Any], name: str, ramp: str) -> dict[str, Any]:
    """A mesh of n GPUs: every GPU has n - 1 direct links. Latency from the tuner's hop constants, the asymptote from
    the links, the ramp towards it from the node `ramp`."""
    fabric, latency = _fabric(raw, name), raw["collectives"]["mesh_latency"]
    link = base(fabric["rate"]) * base(fabric["achievable"])
    source = raw["fits"]["curves"][ramp]["ops"]
    ops: dict[str, Any] = {}
    for operation in OPERATIONS:
        ops[operation] = {}
        for group in GROUPS:
            shape = source[operation][str(group)]
            wire = shape[-1] - shape[0]
            asymptote = volume(operation, group) * SIZES[-1] / (link * (group - 1))
            first = base(latency["base"]) + STEPS[operation] * (group - 1) * base(latency["hop"])
            ops[operation][str(group)] = [first + (value - shape[0]) * asymptote / wire for value in shape]
    _add_p2p(ops)
    return ops


def _linear(table: dict[str, Any], rate_ratio: float) -> dict[str, Any]:
    """Latency plus bytes over a constant bus bandwidth."""
    ops: dict[str, Any] = {}
    for operation in OPERATIONS:
        ops[operation] = {}
        for group, (bus_gb_per_s, latency_us) in table[operation].items():
            rate = bus_gb_per_s * 1e9 * rate_ratio
            ops[operation][str(group)] = [latency_us * 1e-6 + volume(operation, group) * size / rate for size in SIZES]
    return ops


def _add_p2p(ops: dict[str, Any]) -> None:
    """A message to a peer: a pair's all-to-all sends half of its buffer, so a message takes as long as twice it."""
    pair = ops["all_to_all"]["2"]
    doubled = [*pair[1:], pair[-1] * 2]
    ops[P2P] = {"2": doubled}
