"""Throughput facts that rules ask for: shares of the step, and what a single change of the recipe would buy.

Shares are fractions of the iteration. Gains are seconds of one step, this recipe minus the changed one (positive: the
change pays), projected with the same formulas; they say nothing about memory or legality.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.ir.record import replace
from primus_lint.projection import cost, shapes
from primus_lint.projection.project import project, project_on

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


def gain_s(
    run: Run, projection: Projection, changed: Run, accelerator: Accelerator, node: NodeType | None = None
) -> Any:
    """Seconds of a step that `changed` saves; None when it cannot be projected."""
    other = project(changed, accelerator, node)
    return None if other is None else projection.iteration_s - other.iteration_s


def without_recompute(run: Run) -> Run:
    """The recipe with no recomputation at all."""
    return replace(
        run,
        recompute=replace(run.recompute, granularity=None, method=None, num_layers=None, modules=(), layer_ids=None),
    )


def with_overlapped_gradients(run: Run) -> Run:
    """The recipe with `overlap_grad_reduce`, and with `overlap_param_gather` where the optimizer is sharded."""
    gather = run.optimizer.sharding == "distributed" or run.optimizer.overlap_param_gather
    return replace(run, optimizer=replace(run.optimizer, overlap_grad_reduce=True, overlap_param_gather=gather))


def with_overlapped_tensor_parallel(run: Run) -> Run:
    """The recipe with `tp_comm_overlap`."""
    return replace(run, kernels=replace(run.kernels, tp_comm_overlap=True))


def with_overlapped_experts(run: Run) -> Run:
    """The recipe with `overlap_moe_expert_parallel_comm`."""
    return replace(run, schedule=replace(run.schedule, overlap_moe_ep=True))


def with_dispatcher(run: Run, dispatcher: str) -> Run:
    """The recipe with another token dispatcher ("allgather", "alltoall", "flex")."""
    experts = run.model.moe
    assert experts is not None
    backend = "deepep" if dispatcher == "flex" else ""
    return replace(run, model=replace(run.model, moe=replace(experts, dispatcher=dispatcher, flex_backend=backend)))


def in_fp8(run: Run) -> Run:
    """The recipe with its products in FP8 (hybrid, delayed scaling)."""
    return replace(run, precision=replace(run.precision, fp8="hybrid", fp8_recipe="delayed"))
