"""Optimizer state of a rank: main parameters and moments, by optimizer and precision.

Sources: Megatron-Core `DistributedOptimizer`, `Float16OptimizerWithFloat16Params`, `LayerWiseDistributedOptimizer`,
TransformerEngine `FusedAdam`; figures of Adam held against the real objects in tests/oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

# FP8 moments take two bytes in TE 2.11: FusedAdam's quantizer allocates the data and its transpose.
MOMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
MUON = ("muon", "dist_muon")


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
    if optimizer.sharding == "fsdp2" and run.args.get("use_fsdp2_fp32_param_optimizer"):
        main = 0  # the weights themselves are fp32
    if optimizer.name == "sgd":
        second = 0
    return StateBytes(main, first, second)


def layer_wise(sizes: Sizes) -> bool:
    """Muon whose states are handed out by whole parameters: `dist_muon`, or `muon` asked to be distributed."""
    run = sizes.run
    if run.optimizer.name not in MUON:
        return False
    return run.optimizer.name == "dist_muon" or bool(run.args.get("use_layer_wise_distributed_optimizer"))


def muon_elements(sizes: Sizes, stage: Stage, last: bool) -> tuple[Any, Any]:
    """Elements with Muon state (matrices other than embedding and output layer) and with Adam state on a rank.

    `dist_muon` hands whole parameters to the ranks, sorted by size, up and down the ranks in turn; plain `muon` keeps
    everything everywhere.
    """
    distributed = layer_wise(sizes)
    totals = [0, 0]
    everything: list[tuple[Any, bool, bool, Any]] = []
    for chunk in stage.segments:
        for segment in chunk:
            for param in segment.params:
                matrix = param.gemm or param.name.endswith("router.weight") or param.name.endswith("gate_weight")
                everything.append((param.numel, matrix, param.expert, param.count * segment.repeats))
    if not distributed or not sizes.scalar:
        share = {False: 1, True: 1}
        if distributed:
            share = {False: sizes.dpcp or 1, True: sizes.edp or 1}
        found: list[Any] = [0, 0]
        for numel, matrix, expert, count in everything:
            found[0 if matrix else 1] += numel * count // share[expert]
        return found[0], found[1]
    for expert, group in ((False, sizes.dpcp or 1), (True, sizes.edp or 1)):
        mine = group - 1 if last else 0
        position = 0
        ordered = sorted((entry for entry in everything if entry[2] is expert), key=lambda entry: entry[0])
        for numel, matrix, _, count in ordered:
            for _ in range(count):
                step = position % (2 * group)
                owner = step if step < group else 2 * group - 1 - step
                if owner == mine or group == 1:
                    totals[0 if matrix else 1] += numel
                position += 1
    return totals[0], totals[1]
