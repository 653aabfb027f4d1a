"""Saving a checkpoint: what it needs on the device for the moment, and what it stages in host memory.

Sources: Megatron-LM `_build_sharded_state_dict_metadata` (which form the optimizer's states take), Megatron-Core 0.16.1
`DistributedOptimizer.get_parameter_state_dp_reshardable` and `get_parameter_state_dp_zero`,
`FileSystemWriterAsync.preload_tensors`, TransformerEngine `FusedAdam.get_unscaled_state`. Read, and the copies of
`get_unscaled_state` held against TransformerEngine in tests/oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, maximum
from primus_lint.ledger.result import HOST_SAVE, HOST_SAVE_FIRST, Item

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.ledger.optimizer import StateBytes
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

SOURCE = "Megatron-Core checkpointing"
# Forms of the optimizer's states: each rank writes its own shard; all are gathered on every rank over the device, or on
# the first data-parallel rank over the host; nothing is saved.
SHARDS, EVERYWHERE, FIRST_RANK, NONE = "shards", "everywhere", "first rank", "none"


def saves(run: Run) -> bool:
    """Whether the job writes a checkpoint. Primus always has a folder for it, and saves at the end unless told not to."""
    args = run.args
    if run.framework != "primus-megatron":
        return bool(args.get("save"))
    interval, last = args.get("save_interval"), args.get("train_iters")
    # anything but a number: the key rules report it
    if isinstance(interval, int) and isinstance(last, int) and 0 < interval <= last:
        return True
    return not args.get("disable_last_saving")


def form(run: Run) -> str:
    """How the states of the optimizer get into the checkpoint."""
    args = run.args
    if args.get("no_save_optim"):
        return NONE
    if run.optimizer.sharding != "distributed":
        return SHARDS
    if args.get("ckpt_format") == "torch":
        return FIRST_RANK
    if args.get("dist_ckpt_optim_fully_reshardable"):
        return FIRST_RANK if args.get("distrib_optim_fully_reshardable_mem_efficient") else EVERYWHERE
    return SHARDS


def low_states(sizes: Sizes) -> int:
    """States of the precision-aware optimizer that are raised to fp32 to be saved: moments and main parameters that are
    neither fp32 nor the 2-byte remainders."""
    optimizer = sizes.run.optimizer
    if not optimizer.precision_aware or optimizer.cpu_offload:
        return 0
    kinds = (optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype, optimizer.main_params_dtype)
    return sum(kind != "fp32" for kind in kinds)


def device_bytes(sizes: Sizes, stage: Stage, owned: Any) -> Any:
    """Device bytes above the steady state while a checkpoint is collected.

    Shards: fp32 copies of low states, all alive until they are written. Gathered over the device: one bucket of every
    rank in fp32, and the rank's own part of it.
    """
    how = form(sizes.run)
    if how == SHARDS:
        return 4 * low_states(sizes) * owned
    if how != EVERYWHERE:
        return 0 * owned
    largest: Any = 0
    for grid in stage.grids:
        for buffer in grid.buffers:
            start = 0
            for end in buffer.ends or (buffer.numel,):
                largest = maximum(largest, 4 * (end - start) + 4 * ceil_div(end - start, buffer.group))
                start = end
    return largest


def host_items(sizes: Sizes, stage: Stage, state: StateBytes, owned: Any) -> dict[str, Item]:
    """What a save keeps in host memory until it is written: on every rank, and besides on the first data-parallel rank.

    `torch_dist` (and its like) stages whatever a rank writes, states and its part of the weights, also when the save is
    not asynchronous. Gathered forms make one fp32 array for each state of all parameters of the model-parallel rank.
    """
    run = sizes.run
    how = form(run)
    elements = stage.dense.real + stage.expert.real
    out: dict[str, Item] = {}
    if how in (EVERYWHERE, FIRST_RANK):
        group = HOST_SAVE if how == EVERYWHERE else HOST_SAVE_FIRST
        out["host checkpoint gather"] = Item(
            12 * elements, group, "{n} elements x 3 fp32 states", {"n": elements}, SOURCE
        )
    if run.args.get("ckpt_format") == "torch":  # torch.save copies tensor by tensor
        return out
    parallel = bool(run.args.get("ckpt_fully_parallel_save", True))
    weights = stage.dense.real * sizes.e, stage.expert.real * sizes.e
    if run.optimizer.sharding in ("fsdp2", "megatron-fsdp") or parallel:
        share = ceil_div(weights[0], sizes.dpcp or 1) + ceil_div(weights[1], sizes.edp or 1)
        out["host checkpoint weights"] = Item(
            share, HOST_SAVE, "{d} dense B / {dp} + {x} expert B / {edp} ranks",
            {"d": weights[0], "dp": sizes.dpcp, "x": weights[1], "edp": sizes.edp}, SOURCE,
        )  # fmt: skip
    else:
        out["host checkpoint weights"] = Item(
            weights[0] + weights[1], HOST_SAVE_FIRST, "{n} elements x {e} B", {"n": elements, "e": sizes.e}, SOURCE
        )
    if how == SHARDS and not run.optimizer.cpu_offload:
        each = state.total + 2 * low_states(sizes)  # low states are written in fp32
        out["host checkpoint states"] = Item(
            owned * each, HOST_SAVE, "{n} owned elements x {each} B", {"n": owned, "each": each}, SOURCE
        )
    return out
