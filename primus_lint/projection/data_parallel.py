"""Gradient reduction, parameter gathering and FSDP, exposed or hidden.

Volumes are those of one pipeline rank: dense weights over the data grid (context and data parallel together), experts
over the expert data grid. With overlap, buckets are reduced while the last micro-batch's backward still runs, so that
only what outlasts it, and the last bucket, stays exposed; gathered parameters hide behind the first forward in the
same way. Source: Megatron-Core `DistributedDataParallel`, `_ParamAndGradBucketGroup`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, is_scalar, maximum, where
from primus_lint.projection.cost import CONTENTION, DP, FSDP, ZERO, Cost, plus
from primus_lint.projection.placement import group

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.device import Device
    from primus_lint.projection.placement import Group, Placement

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def buckets(run: Run, elements: Any) -> Any:
    """Number of buckets of one buffer, in which its gradients are reduced and its parameters gathered (overlapped or not):
    `ddp_bucket_size` elements each, by default max(40 M, 1 M times the data size); one without overlapped reduction."""
    size = run.optimizer.bucket_size
    if size is None:
        dp = run.parallel.dp if run.parallel.dp is not None else 1
        size = maximum(40_000_000, 1_000_000 * dp * run.parallel.cp)
    return where(run.optimizer.overlap_grad_reduce, maximum(ceil_div(elements, maximum(size, 1)), 1), 1)


def behind(device: Device, transfer: Pair, window_s: Any, parts: Any) -> Cost:
    """`transfer` in `parts` equal pieces behind `window_s` of compute; the last piece can never hide."""
    hidden_at_most = transfer[0] * (parts - 1) / parts
    together = hidden_at_most - maximum(hidden_at_most - window_s, 0.0)
    slowed = together * device.contention
    share = 1 - together / maximum(transfer[0], 1e-12)
    total = Cost({DP: (transfer[0] - together, transfer[1] * maximum(share, 0.25))})
    total.add(CONTENTION, (slowed, slowed))
    return total


def gradient_bytes(run: Run, elements: Any) -> Any:
    return elements * _BYTES[run.precision.grads_dtype]


def copies(run: Run) -> Any:
    """Shards of the data grid that hold the same: optimizer instances, or replicas under FSDP (HSDP)."""
    return run.optimizer.replicate_degree if _is_fsdp(run) else run.optimizer.instances


def summed(run: Run, device: Device, grid: Group, elements: Any, parts: Any, kind: str) -> Pair:
    """Seconds to reduce the gradients of `elements` weights over a data grid in `parts` equal messages: all-reduce, or
    (sharded) reduce-scatter inside every copy of the shards, and an all-reduce of the shard over the copies."""
    if is_scalar(elements) and elements == 0:
        return ZERO
    each = gradient_bytes(run, elements) / parts
    if run.optimizer.sharding == "none":
        return device.collective("all_reduce", each, grid, kind, parts)
    number = copies(run)
    inner = device.collective("reduce_scatter", each, within(grid, number, device), kind, parts)
    outer = device.collective("all_reduce", each * number / grid.size, across(grid, number, device), kind, parts)
    return plus(inner, outer)


def gathered(run: Run, device: Device, grid: Group, elements: Any, parts: Any, kind: str) -> Pair:
    """Seconds to gather `elements` weights over the ranks that hold one copy of the shards, in `parts` equal messages."""
    if is_scalar(elements) and elements == 0:
        return ZERO
    size = 1 if run.precision.fp8_param else _BYTES[run.precision.params_dtype]
    group_ = within(grid, copies(run), device)
    return device.collective("all_gather", elements * size / parts, group_, kind, parts)


def within(grid: Group, number: Any, device: Device) -> Group:
    """One of `number` copies: neighbours in the grid."""
    if is_scalar(number) and number == 1:
        return grid
    return group(grid.size // number, grid.stride, device.domain_gpus)


def across(grid: Group, number: Any, device: Device) -> Group:
    """The ranks that hold the same shard in `number` copies."""
    return group(number, grid.stride * grid.size // number, device.domain_gpus)


def reduce_transfer(run: Run, device: Device, place: Placement, weights: Any, experts: Any) -> Pair:
    """Seconds of the gradient collectives of a rank: dense weights and experts lie in buffers of their own."""
    dense = summed(run, device, place.data, weights, buckets(run, weights), DP)
    return plus(dense, summed(run, device, place.expert_data, experts, buckets(run, experts), DP))


def gather_transfer(run: Run, device: Device, place: Placement, weights: Any, experts: Any) -> Pair:
    """Seconds to gather updated parameters; nothing without a sharded optimizer."""
    if run.optimizer.sharding == "none":
        return ZERO
    dense = gathered(run, device, place.data, weights, buckets(run, weights), DP)
    return plus(dense, gathered(run, device, place.expert_data, experts, buckets(run, experts), DP))


def step(
    run: Run, device: Device, place: Placement, weights: Any, experts: Any, backward_s: Any, forward_s: Any
) -> Cost:
    """Exposed data-parallel seconds of one step. `backward_s`, `forward_s`: the compute that can hide them."""
    total = Cost()
    if _is_fsdp(run):
        return total  # charged inside every micro-batch, see `fsdp`
    parts = maximum(buckets(run, weights), buckets(run, experts))
    moves = [(run.optimizer.overlap_param_gather, gather_transfer, forward_s)]
    if not _scatters(run):  # else charged inside every micro-batch, too
        moves.insert(0, (run.optimizer.overlap_grad_reduce, reduce_transfer, backward_s))
    for overlapped, transfer, window_s in moves:
        moved = transfer(run, device, place, weights, experts)
        total.merge(behind(device, moved, window_s * overlapped, parts))
    return total


def _is_fsdp(run: Run) -> bool:
    """Whether weights themselves are sharded, and gathered for every use."""
    sharding = run.optimizer.sharding
    return sharding in ("fsdp1", "fsdp2") or (
        sharding == "megatron-fsdp" and run.optimizer.fsdp_strategy == "optim_grads_params"
    )


def _scatters(run: Run) -> bool:
    """Whether gradients are sharded, and so reduced in every micro-batch (`MegatronFSDP`: `grad_reduce_every_bprop`)."""
    optimizer = run.optimizer
    return _is_fsdp(run) or (optimizer.sharding == "megatron-fsdp" and optimizer.fsdp_strategy == "optim_grads")


def fsdp(
    run: Run, device: Device, place: Placement, weights: Any, experts: Any, forward_s: Any, backward_s: Any, layers: int
) -> Cost:
    """Exposed seconds per micro-batch of sharded weights and gradients (overlapped whatever the flags say, as in
    `MegatronFSDP.__init__`): weights gathered before the forward and again
    before the backward, gradients scatter-reduced after it, one layer ahead of (behind) the compute. With replicas (HSDP)
    shards are gathered inside a replica and gradients all-reduced over the replicas on top.

    Nothing when neither is sharded. The first gather and the last reduction of `layers` cannot hide.
    """
    total = Cost()
    if not _scatters(run):
        return total
    parts = max(layers, 1)
    gather = both = ZERO
    for grid, elements in ((place.data, weights), (place.expert_data, experts)):
        one = gathered(run, device, grid, elements, parts, FSDP) if _is_fsdp(run) else ZERO
        gather = plus(gather, one)
        both = plus(both, plus(one, summed(run, device, grid, elements, parts, FSDP)))
    for transfer, window in ((gather, forward_s), (both, backward_s)):
        part = behind(device, transfer, window, parts)
        total.add(FSDP, part.parts[DP])
        total.add(CONTENTION, part.parts[CONTENTION])
    return total
