"""Optimizer state of a rank: main parameters and moments, by sharding and precision.

Sources: Megatron-Core `DistributedOptimizer`, `Float16OptimizerWithFloat16Params`, TransformerEngine `FusedAdam`;
figures held against the real objects in tests/oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes

# FP8 moments take two bytes in TE 2.11: FusedAdam's quantizer allocates the data and its transpose.
MOMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}


class StateBytes(NamedTuple):
    """Bytes per owned element: main parameter, first and second moment."""

    main: int
    exp_avg: int
    exp_avg_sq: int

    @property
    def total(self) -> int:
        return self.main + self.exp_avg + self.exp_avg_sq


def state_bytes(sizes: Sizes) -> StateBytes:
    """Bytes of optimizer state per owned parameter element.

    Parameters in fp32 are their own main copy. With the precision-aware optimizer and fp32 main parameters TE keeps a
    2-byte remainder beside the bf16 parameter instead of a copy.
    """
    run = sizes.run
    optimizer = run.optimizer
    main = 0 if run.precision.params_dtype == "fp32" else 4
    first, second = 4, 4
    if optimizer.precision_aware:
        if run.precision.params_dtype != "fp32":
            remainders = run.args.get("store_param_remainders")
            if optimizer.main_params_dtype == "fp32":
                main = 2 if run.precision.params_dtype == "bf16" and remainders is not False else 4
            else:
                main = 2
        first, second = MOMENT_BYTES[optimizer.exp_avg_dtype], MOMENT_BYTES[optimizer.exp_avg_sq_dtype]
    if optimizer.name == "sgd":
        second = 0
    return StateBytes(main, first, second)
