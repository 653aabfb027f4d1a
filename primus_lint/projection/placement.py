"""Where the members of a communication group sit: how many nodes a group spans, and how many members share one.

Megatron numbers global ranks with tensor parallelism fastest, then context, then data (expert groups: expert tensor,
expert, expert data), and pipeline slowest (`RankGenerator`, order "tp-cp-ep-dp-pp"). A group is therefore a stride and
a size over consecutive ranks, and a node is `gpus_per_node` consecutive ranks. When groups do not line up with nodes,
the worst placed group counts: a step waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, gcd, maximum, minimum

if TYPE_CHECKING:
    from primus_lint.ir.run import Parallel


class Group:
    """A communication group: `size` members on `nodes` nodes, `per_node` of them together, ranks `stride` apart."""

    __slots__ = ("nodes", "per_node", "size", "stride")

    def __init__(self, size: Any, nodes: Any, per_node: Any, stride: Any) -> None:
        self.size = size
        self.nodes = nodes
        self.per_node = per_node
        self.stride = stride


def group(size: Any, stride: Any, gpus_per_node: Any) -> Group:
    """The worst placed group of `size` ranks that lie `stride` apart, on nodes of `gpus_per_node` ranks.

    The group covers L = size*stride consecutive ranks and starts at a multiple of L; modulo the node that start takes
    every multiple of gcd(L, node), so that the worst one is node - gcd.
    """
    size, stride = maximum(size, 1), maximum(stride, 1)  # 0 only in a grid of recipes, where the mask rules it out
    span = size * stride
    nodes = (gpus_per_node - gcd(span, gpus_per_node) + span - 1) // gpus_per_node + 1
    nodes = minimum(nodes, size)
    return Group(size, nodes, ceil_div(size, nodes), stride)


class Placement:
    """Every group of one recipe. `data` is the sharding grid of dense weights: context and data parallel together."""

    __slots__ = ("cp", "data", "ep", "etp", "expert_data", "gpus_per_node", "pp_stride", "tp")

    def __init__(
        self,
        tp: Group,
        cp: Group,
        data: Group,
        ep: Group,
        etp: Group,
        expert_data: Group,
        pp_stride: Any,  # ranks between neighbouring stages
        gpus_per_node: Any,
    ) -> None:
        self.tp = tp
        self.cp = cp
        self.data = data
        self.ep = ep
        self.etp = etp
        self.expert_data = expert_data
        self.pp_stride = pp_stride
        self.gpus_per_node = gpus_per_node


def place(parallel: Parallel, gpus_per_node: Any) -> Placement:
    """Groups in Megatron's rank order. `parallel.dp` and `parallel.edp` must be known."""
    tp, cp, dp, ep, etp, edp = parallel.tp, parallel.cp, parallel.dp, parallel.ep, parallel.etp, parallel.edp
    assert dp is not None and edp is not None
    return Placement(
        tp=group(tp, 1, gpus_per_node),
        cp=group(cp, tp, gpus_per_node),
        data=group(cp * dp, tp, gpus_per_node),
        ep=group(ep, etp, gpus_per_node),
        etp=group(etp, 1, gpus_per_node),
        expert_data=group(edp, etp * ep, gpus_per_node),
        pp_stride=tp * cp * dp,
        gpus_per_node=gpus_per_node,
    )


def boundary_crosses_node(placement: Placement, stage: int) -> Any:
    """Whether some rank of pipeline stage `stage` sends to a rank of the next stage on another node (0 or 1).

    Stage s holds ranks [s*stride, (s+1)*stride): all pairs stay inside only when both stages lie in one node.
    """
    first = (stage * placement.pp_stride) // placement.gpus_per_node
    last = ((stage + 2) * placement.pp_stride - 1) // placement.gpus_per_node
    return minimum(last - first, 1)
