"""Throughput facts that rules ask for: shares of the step, and the price of groups that leave their domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.ir.record import replace
from primus_lint.projection import cost, shapes
from primus_lint.projection.project import project_on

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import Run
    from primus_lint.projection.project import Projection

COMMUNICATION = (cost.TP, cost.CP, cost.EP, cost.FSDP, cost.PP, cost.DP)


def share(projection: Projection, kind: str) -> Any:
    """Share of the iteration that a class of `cost.CLASSES` takes."""
    return projection.breakdown_s[kind] / projection.iteration_s


def exposed_shares(projection: Projection) -> dict[str, Any]:
    """Share of the iteration that every kind of communication takes beyond what hides behind compute."""
    return {kind: share(projection, kind) for kind in COMMUNICATION}


def stage_imbalance(projection: Projection) -> Any:
    """Busy time of the slowest pipeline rank over the mean of all, minus 1."""
    most: Any = 0.0
    total: Any = 0.0
    for seconds in projection.per_stage_s:
        most = maximum(most, seconds)
        total = total + seconds
    return most * len(projection.per_stage_s) / total - 1


def tokens_per_local_expert(run: Run) -> Any:
    """Rows of one expert's products for one micro-batch at balanced routing; None without experts."""
    if run.model.moe is None:
        return None
    return shapes.routing(run.model.moe, run.parallel, shapes.tokens(run)).rows_per_expert


def straddling(projection: Projection) -> dict[str, Any]:
    """Scale-up domains (nodes, or NVLink racks) that each group spans beyond one: {"tp": 1} is one domain too many."""
    place = projection.place
    groups = {"tp": place.tp, "cp": place.cp, "ep": place.ep, "etp": place.etp}
    return {name: group.nodes - 1 for name, group in groups.items()}


def straddle_price_s(run: Run, projection: Projection, accelerator: Accelerator, node: NodeType | None = None) -> Any:
    """Seconds of a step that tensor, context and expert groups lose because they leave their scale-up domain: this
    recipe against the same one in a domain of the whole job."""
    from primus_lint.projection.device import Device

    device = Device(accelerator, node, run)
    device.domain_gpus = run.target.world_size
    together = project_on(run, device)
    kinds = (cost.TP, cost.CP, cost.EP)
    return sum(projection.breakdown_s[kind] - together.breakdown_s[kind] for kind in kinds)


def with_assembly_backward_s(run: Run, accelerator: Accelerator, node: NodeType | None = None) -> Any:
    """Seconds of a step if NVTE_CK_USES_BWD_V3 were 1."""
    from primus_lint.projection.device import Device

    other = replace(run, args={**run.args, "env_NVTE_CK_USES_BWD_V3": "1"})
    return project_on(other, Device(accelerator, node, other)).iteration_s
