"""Optimizer state of a rank: main parameters and moments, by optimizer and precision.

Sources: Megatron-Core `DistributedOptimizer`, `Float16OptimizerWithFloat16Params`, `HybridDeviceOptimizer`,
TransformerEngine `FusedAdam`; figures of Adam held against the real objects in tests/oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import as_int, ceil_div, maximum
from primus_lint.ledger import buffers
from primus_lint.ledger.muon import MUON, muon_elements
from primus_lint.ledger.primus import variable
from primus_lint.ledger.result import HOST, STATIC, Item
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

# FP8 moments take two bytes in TE 2.11: FusedAdam's quantizer allocates the data and its transpose.
MOMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
# Single fp32 numbers beside each tensor of a moment (TE's `FusedAdam._initialize_state`): the optimizer's scale; of FP8 the
# inverse scale inside the tensor, and scale and largest value in its quantizer too. `_scale_inv` belongs to the tensor.
MOMENT_SCALES = {"fp32": 0, "bf16": 1, "fp16": 1, "fp8": 4}


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
    if narrow_states(run):
        if run.precision.params_dtype != "fp32":
            remainders = run.args.get("store_param_remainders")
            if optimizer.main_params_dtype == "fp32":
                main = 2 if run.precision.params_dtype == "bf16" and remainders is not False else 4
            else:
                main = 2
        first, second = MOMENT_BYTES[optimizer.exp_avg_dtype], MOMENT_BYTES[optimizer.exp_avg_sq_dtype]
    if optimizer.sharding == "megatron-fsdp":  # a buffer of its own, whatever the weights are
        main = {"bf16": 2, "fp16": 2, "auto": 0}.get(run.args.get("megatron_fsdp_main_params_dtype") or "fp32", 4)
    if optimizer.sharding == "fsdp2" and sizes.e == 4:
        main = 0  # the weights themselves are fp32
    if optimizer.name == "sgd":
        second = 0
    return StateBytes(main, first, second)


def narrow_states(run: Run) -> bool:
    """Whether TE's `FusedAdam` keeps the states in the dtypes asked for. Offloading to the host keeps everything in fp32,
    and so does PyTorch's own Adam, which Primus takes for `PRIMUS_TORCH_OPTIM=1`."""
    torch_adam = run.framework == "primus-megatron" and variable(run, "PRIMUS_TORCH_OPTIM") == "1"
    return run.optimizer.precision_aware and not run.optimizer.cpu_offload and not torch_adam


def scales(run: Run) -> int:
    """Single fp32 numbers that FusedAdam keeps beside each of its tensors that is not fp32."""
    optimizer = run.optimizer
    if optimizer.name != "adam" or not narrow_states(run):
        return 0
    main = run.precision.params_dtype != "fp32" and optimizer.main_params_dtype != "fp32"
    return main + MOMENT_SCALES[optimizer.exp_avg_dtype] + MOMENT_SCALES[optimizer.exp_avg_sq_dtype]


def owned_tensors(sizes: Sizes, stage: Stage, dense: int, expert: int) -> Any:
    """Tensors of the optimizer on a rank with these positions in its sharding groups: the pieces of parameters in its slices;
    for a grid of recipes the share of them."""
    sharding = sizes.run.optimizer.sharding
    total: Any = 0
    for grid, index, is_expert in zip(stage.grids, (dense, expert), (False, True), strict=True):
        if not grid.buffers:
            continue
        chunks = [
            chunk for chunk in stage.segments if any(p.expert is is_expert for part in chunk for p in part.params)
        ]
        if sharding == "distributed" and sizes.scalar:
            for buffer, chunk in zip(grid.buffers, chunks, strict=True):
                total += len(buffers.shards(chunk, is_expert, buffer, index))
            continue
        count: Any = sum(
            param.count * part.repeats
            for chunk in chunks for part in chunk for param in part.params if param.expert is is_expert
        )  # fmt: skip
        total = total + (
            ceil_div(count * grid.owned(index), maximum(grid.real, 1)) if sharding == "distributed" else count
        )
    return total


def items(sizes: Sizes, state: StateBytes, stage: Stage, dense: Any, expert: Any, last: bool) -> dict[str, Item]:
    """Main parameters and moments of a rank that owns so many elements of both grids."""
    run = sizes.run
    source = "Megatron-Core DistributedOptimizer, TransformerEngine FusedAdam"
    out: dict[str, Item] = {}
    if run.optimizer.name in MUON:
        matrices, others = muon_elements(sizes, stage, last)
        counts = {"m": matrices, "o": others}
        out["optimizer main parameters"] = Item(
            (matrices + others) * 4, STATIC, "({m} Muon + {o} Adam) owned elements x 4 B", counts, source
        )
        out["optimizer moments"] = Item(
            matrices * 4 + others * 8, STATIC, "{m} Muon elements x 4 B + {o} Adam elements x 8 B", counts, source
        )
        return out
    here, text = dense + expert, "({dense} dense + {expert} expert) owned elements x {each} B"
    if run.optimizer.cpu_offload:
        away = offloaded(sizes, here)
        here, text = here - away, text + " less the offloaded {away}"
        out["host optimizer state"] = Item(
            away * (state.total + 4), HOST, "{away} offloaded elements x ({each} B + 4 B of gradients)",
            {"away": away, "each": state.total}, "Megatron-Core HybridDeviceOptimizer",
        )  # fmt: skip
    else:
        away = 0
    parts = [("main parameters", state.main), ("moment 1", state.exp_avg), ("moment 2", state.exp_avg_sq)]
    if run.optimizer.sharding == "fsdp2" and run.args.get("use_fsdp2_bf16_master_weight_optimizer"):
        parts.append(("gradient twins", 4))
    if run.args.get("patch_zero_bubble") and run.args.get("enable_optimizer_post_validation"):
        parts.append(("roll-back copies", 12))  # of parameter and moments, in fp32
    for name, each in parts:
        if each:
            numbers = {"dense": dense, "expert": expert, "each": each, "away": away}
            out[f"optimizer {name}"] = Item(here * each, STATIC, text, numbers, source)
    return out


def offloaded(sizes: Sizes, owned: Any) -> Any:
    """Owned elements whose state is on the host: whole tensors up to the fraction, so at least this many."""
    return as_int(owned * sizes.run.optimizer.offload_fraction)
