"""Seconds of a collective, inside a scale-up domain (measured or carried-over curves) and across domains.

Bytes: the whole tensor for all_reduce, all_gather and reduce_scatter; what one rank sends in all for all_to_all.
Across domains NCCL's own model holds (its tuner, graph/tuning.cc): start + hops + bytes over a bandwidth, the fastest of
its algorithms and protocols. A ring of n ranks in N domains takes 2(n-1) steps for an all-reduce and n-1 for the others,
2(N-1) and N-1 of them over the network; a tree goes up and down, over the ranks of a domain and log2(N) domains. The
bandwidth is the smaller of the links inside and the NICs of all members: ranks_per_node * NIC share, which is what RCCL
reaches on 2 x 8 MI300X (330-350 of 400 GB/s) and NCCL on 4 x 8 B200 (382 of 400). Sizes and placements may be arrays;
operation and node are structure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, is_scalar, log2, maximum, minimum, where
from primus_lint.hardware.curves import FIRST_LOG2, GROUPS, LAST_LOG2, P2P, STEPS, volume
from primus_lint.hardware.rates import Seconds

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator, NodeType

_LAST_BYTES = float(2**LAST_LOG2)
_FIRST_BYTES = float(2**FIRST_LOG2)


def node_of(acc: Accelerator, node: NodeType | None) -> NodeType:
    """The given node type, else the accelerator's usual one."""
    from primus_lint.hardware import node_type

    found = node if node is not None else node_type(acc.node_type)
    assert found is not None
    return found


def time_s(
    acc: Accelerator, node: NodeType | None, op: str, message_bytes: Any, group_size: Any, ranks_per_node: Any
) -> Seconds:
    """Seconds of `op` (all_reduce, all_gather, reduce_scatter, all_to_all) over `group_size` ranks, `ranks_per_node` of
    them in one scale-up domain (count domains, not trays, in an NVL72 rack). A group of one takes no time."""
    kind = node_of(acc, node)
    inter = kind.inter
    size = maximum(group_size, 1)
    here = minimum(maximum(ranks_per_node, 1), size)
    domains = ceil_div(size, here)
    share, low, high = inter[op]
    nic = kind.network_bytes_per_s_per_gpu * share
    inside = in_domain_s(kind, op, message_bytes * (here / size) if op == "all_to_all" else message_bytes, here)
    band = kind.curves["band"]
    if is_scalar(domains) and domains == 1:
        return Seconds(where(size > 1, inside, 0.0), band[0], band[1], kind.curves["tier"])
    if op == "all_to_all":
        outside = message_bytes * ((size - here) / size) / nic
        hops = inter["network_hop"] + (size - here) * inter["peer"]
        across = inter["base"] + hops + maximum(inside, outside)
    else:
        across = across_s(kind, op, message_bytes, size, here, domains)
    seconds = where(size > 1, where(domains > 1, across, inside), 0.0)
    return Seconds(seconds, where(domains > 1, low, band[0]), where(domains > 1, high, band[1]), _tier(kind, domains))


def across_s(node: NodeType, op: str, message_bytes: Any, size: Any, here: Any, domains: Any) -> Any:
    """Seconds of a collective over `size` ranks in `domains` domains of `here` ranks: the fastest algorithm and protocol."""
    steps, between = STEPS[op] * (size - 1), STEPS[op] * (domains - 1)
    wire = volume(op, size) * message_bytes
    rate = minimum(here * (node.network_bytes_per_s_per_gpu * node.inter[op][0]), in_domain_rate(node, op, here))
    best: Any = None
    for start, inside_s, network_s, share, cap in node.inter["ring"]:
        latency = start + (steps - between) * inside_s + between * network_s
        seconds = latency + wire / minimum(rate * share, cap)
        best = seconds if best is None else minimum(best, seconds)
    if op == "all_reduce":
        for start, inside_s, network_s, share, cap in node.inter["tree"]:
            latency = start + 2 * ((here - 1) * inside_s + log2(domains) * network_s)
            best = minimum(best, latency + wire / minimum(rate * share, cap))
    return best


def in_domain_rate(node: NodeType, op: str, here: Any) -> Any:
    """Bus bandwidth (bytes/s) of large messages inside a domain; unlimited for one rank, which sends nothing inside."""
    curves = node.curves["ops"][op]
    result: Any = 1e15
    for group in reversed(GROUPS):
        rate = volume(op, group) * _LAST_BYTES / curves[str(group)][-1]
        result = (
            where(here > 1, rate, result) if group == GROUPS[-1] else where((here > 1) & (here <= group), rate, result)
        )
    return result


def send_time_s(acc: Accelerator, node: NodeType | None, message_bytes: Any, crosses: Any) -> Seconds:
    """Seconds of a message to one peer; `crosses` (0, 1 or an array): whether it leaves the scale-up domain."""
    kind = node_of(acc, node)
    share, low, high = kind.inter[P2P]
    inside = interpolated(kind.curves["ops"][P2P]["2"], message_bytes)
    across = kind.inter["base"] + kind.inter["network_hop"] + message_bytes / (kind.network_bytes_per_s_per_gpu * share)
    band = kind.curves["band"]
    domains = 1 + (crosses if not isinstance(crosses, bool) else int(crosses))
    return Seconds(
        where(domains > 1, across, inside),
        where(domains > 1, low, band[0]),
        where(domains > 1, high, band[1]),
        _tier(kind, domains),
    )


def in_domain_s(node: NodeType, op: str, message_bytes: Any, group_size: Any) -> Any:
    """Seconds inside one scale-up domain: the curve of the next tabulated group size (2, 4, 8), at the message whose
    volume over the links is the same. A group of one takes no time."""
    curves = node.curves["ops"][op]
    result: Any = 0.0
    for group in reversed(GROUPS):
        scaled = message_bytes * volume(op, maximum(group_size, 2)) / volume(op, group)
        seconds = interpolated(curves[str(group)], scaled)
        result = seconds if group == GROUPS[-1] else where(group_size <= group, seconds, result)
    return where(group_size > 1, result, 0.0)


def interpolated(curve: list[float], message_bytes: Any) -> Any:
    """Seconds at a message size: linear in log-log inside the curve, constant below it, proportional above."""
    if is_scalar(message_bytes):
        clamped = min(max(float(message_bytes), _FIRST_BYTES), _LAST_BYTES)
        position = math.log2(clamped) - FIRST_LOG2
        index = min(int(position), len(curve) - 2)
        left, right = math.log2(curve[index]), math.log2(curve[index + 1])
        beyond = max(message_bytes / _LAST_BYTES, 1.0)
        return beyond * 2.0 ** (left + (right - left) * (position - index))
    import numpy as np

    sizes = np.asarray(message_bytes, dtype=float)
    positions = np.log2(np.clip(sizes, _FIRST_BYTES, _LAST_BYTES)) - FIRST_LOG2
    inside = np.exp2(np.interp(positions, np.arange(len(curve)), np.log2(curve)))
    return inside * np.maximum(sizes / _LAST_BYTES, 1.0)


def _tier(node: NodeType, domains: Any) -> str:
    inside: str = node.curves["tier"]
    if is_scalar(domains):
        return "constant" if domains > 1 else inside
    return f"{inside} or constant"
