"""The optimizer step: bytes moved by the update, and what the host needs to launch it.

Adam reads gradient, main weight and both moments and writes main weight, both moments and the model weight; before it,
the gradient is read once for its norm and read and written once to be clipped, and after it the gradient buffer is
zeroed. Each rank does so for its shard only (distributed optimizer, FSDP), the buffer is zeroed whole.
Source of the order of steps: Megatron-Core `MixedPrecisionOptimizer.step`, `DistributedOptimizer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.projection.cost import OPTIMIZER, Cost

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.projection.device import Device
    from primus_lint.projection.placement import Placement

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "uint8": 1}
NEWTON_SCHULZ_STEPS = 5  # Muon's default


class Shards:
    """Elements of a rank: `held` in its model, `updated` by its share of the optimizer."""

    __slots__ = ("held", "updated")

    def __init__(self, held: Any, updated: Any) -> None:
        self.held = held
        self.updated = updated


def shards(run: Run, place: Placement, weights: Any, experts: Any) -> Shards:
    """Weights that one rank updates: all of them, or its share of the dense and the expert grid."""
    if run.optimizer.sharding == "none":
        return Shards(weights + experts, weights + experts)
    instances = run.optimizer.instances
    dense = weights * instances / place.data.size
    return Shards(weights + experts, dense + experts * instances / place.expert_data.size)


def bytes_per_element(run: Run) -> int:
    """Bytes moved per updated element by an Adam step, with its norm and clipping."""
    optimizer, precision = run.optimizer, run.precision
    grad = _BYTES[precision.grads_dtype]
    if optimizer.precision_aware:
        main, first, second = optimizer.main_params_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype
    else:
        main = first = second = "fp32"
    states = _BYTES[main] + _BYTES[first] + _BYTES[second]
    if optimizer.name == "sgd":
        states = _BYTES[main] + _BYTES[first]
    model = _BYTES[precision.params_dtype]
    return 3 * grad + grad + 2 * states + model


def step(run: Run, device: Device, place: Placement, weights: Any, experts: Any, tensors: Any) -> Cost:
    """Seconds of one optimizer step of a rank that holds `weights` dense and `experts` expert elements.

    The host goes through all `tensors` parameters one by one, several times (main gradients, norm; a sharded optimizer for the
    new weights as well: `_copy_model_grads_to_main_grads`, `get_main_grads_for_grad_norm`, `_copy_main_params_to_model_params`),
    an operation each in all; the rest is a handful of multi-tensor launches and the synchronous read of the norm.
    """
    shard = shards(run, place, weights, experts)
    measured = device.measured_optimizer(run, shard.updated)
    if measured is not None:
        return Cost({OPTIMIZER: measured})
    grad = _BYTES[run.precision.grads_dtype]
    moved = shard.updated * bytes_per_element(run) + shard.held * grad
    total = Cost({OPTIMIZER: device.memory(moved, "optimizer")})
    total.add(OPTIMIZER, device.host(20 + tensors))
    if run.optimizer.name.endswith("muon"):
        total.add(OPTIMIZER, device.newton_schulz(run, shard.updated, NEWTON_SCHULZ_STEPS))
    return total
