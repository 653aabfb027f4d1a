"""Gradient reduction, parameter gathering and FSDP, exposed or hidden.

Volumes are those of one pipeline rank: dense weights over the data grid (context and data parallel together), experts
over the expert data grid. With overlap, buckets are reduced while the last micro-batch's backward still runs, so that
only what outlasts it, and the last bucket, stays exposed; gathered parameters hide behind the first forward in the
same way. Source: Megatron-Core `DistributedDataParallel`, `_ParamAndGradBucketGroup`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, maximum
from primus_lint.projection.cost import CONTENTION, DP, FSDP, Cost

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.device import Device
    from primus_lint.projection.placement import Placement

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def buckets(run: Run, elements: Any) -> Any:
    """Number of gradient buckets: `ddp_bucket_size` elements each, by default max(40 M, 1 M times the data size)."""
    size = run.optimizer.bucket_size
    if size is None:
        dp = run.parallel.dp if run.parallel.dp is not None else 1
        size = maximum(40_000_000, 1_000_000 * dp * run.parallel.cp)
    return maximum(ceil_div(elements, maximum(size, 1)), 1)


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


def reduce_transfer(run: Run, device: Device, place: Placement, weights: Any, experts: Any) -> Pair:
    """Seconds of the gradient collectives of a rank: reduce-scatter with a sharded optimizer, else all-reduce."""
    operation = "all_reduce" if run.optimizer.sharding == "none" else "reduce_scatter"
    dense = device.collective(operation, gradient_bytes(run, weights), place.data, DP)
    expert = device.collective(operation, gradient_bytes(run, experts), place.expert_data, DP)
    return dense[0] + expert[0], dense[1] + expert[1]


def gather_transfer(run: Run, device: Device, place: Placement, weights: Any, experts: Any) -> Pair:
    """Seconds to gather updated parameters; nothing without a sharded optimizer."""
    if run.optimizer.sharding == "none":
        return 0.0, 0.0
    size = 1 if run.precision.fp8_param else _BYTES[run.precision.params_dtype]
    dense = device.collective("all_gather", weights * size, place.data, DP)
    expert = device.collective("all_gather", experts * size, place.expert_data, DP)
    return dense[0] + expert[0], dense[1] + expert[1]


def step(
    run: Run, device: Device, place: Placement, weights: Any, experts: Any, backward_s: Any, forward_s: Any
) -> Cost:
    """Exposed data-parallel seconds of one step. `backward_s`, `forward_s`: the compute that can hide them."""
    total = Cost()
    if run.optimizer.sharding == "fsdp2" or _fully_sharded(run):
        return total  # charged inside every micro-batch, see `fsdp`
    parts = buckets(run, weights + experts)
    reduce = reduce_transfer(run, device, place, weights, experts)
    total.merge(behind(device, reduce, backward_s * run.optimizer.overlap_grad_reduce, parts))
    gather = gather_transfer(run, device, place, weights, experts)
    total.merge(behind(device, gather, forward_s * run.optimizer.overlap_param_gather, parts))
    return total


def _fully_sharded(run: Run) -> bool:
    return run.optimizer.sharding == "megatron-fsdp" and run.optimizer.fsdp_strategy == "optim_grads_params"


def fsdp(
    run: Run, device: Device, place: Placement, weights: Any, experts: Any, forward_s: Any, backward_s: Any, layers: int
) -> Cost:
    """Exposed seconds per micro-batch of fully sharded weights: gathered before the forward and again before the
    backward, gradients scatter-reduced after it, each one layer ahead of (behind) the compute.

    Nothing when weights are not sharded. The first gather and the last reduction of `layers` cannot hide.
    """
    total = Cost()
    if run.optimizer.sharding != "fsdp2" and not _fully_sharded(run):
        return total
    size = _BYTES[run.precision.params_dtype]
    dense = device.collective("all_gather", weights * size, place.data, FSDP)
    expert = device.collective("all_gather", experts * size, place.expert_data, FSDP)
    gather = dense[0] + expert[0], dense[1] + expert[1]
    dense = device.collective("reduce_scatter", gradient_bytes(run, weights), place.data, FSDP)
    expert = device.collective("reduce_scatter", gradient_bytes(run, experts), place.expert_data, FSDP)
    both = gather[0] + dense[0] + expert[0], gather[1] + dense[1] + expert[1]
    parts = max(layers, 1)
    for transfer, window in ((gather, forward_s), (both, backward_s)):
        part = behind(device, transfer, window, parts)
        total.add(FSDP, part.parts[DP])
        total.add(CONTENTION, part.parts[CONTENTION])
    return total
