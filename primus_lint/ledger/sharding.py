"""Who holds what of weights, gradients and optimizer state, by `sharding` of the recipe.

none               whole weights and gradients, whole states
distributed        padded weight and gradient buffers, states of the rank's slice of every bucket
fsdp2              torch FSDP2: weights, gradients and states split over the data-parallel group, unit by unit;
                   gradients in the weights' dtype, made by the backward and freed by the step
megatron-fsdp      by strategy: `optim` splits the states, `optim_grads` the gradients too, `optim_grads_params` all
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, maximum, minimum, where
from primus_lint.ledger import params, weight_copies
from primus_lint.ledger.activations.kind import kind_of, mtp_kind
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Grid, Stage


PREFETCH_ELEMENTS = 500_000_000


class Holding(NamedTuple):
    """Elements of one grid on a rank: stored weights (padding included), stored gradients, owned states."""

    weights: Any
    gradients: Any
    first: Any  # states of data-parallel index 0
    last: Any  # states of the last index


def holding(sizes: Sizes, grid: Grid) -> Holding:
    """What a rank stores of one grid."""
    optimizer = sizes.run.optimizer
    if not grid.buffers:
        return Holding(0, 0, 0, 0)
    if optimizer.sharding == "distributed":
        return Holding(grid.padded, grid.padded, grid.owned(0), grid.owned(grid.last_index))
    if optimizer.sharding == "none":
        return Holding(grid.real, grid.real, grid.real, grid.real)
    group = grid.buffers[0].group
    if optimizer.sharding == "fsdp2":
        group = maximum(group // optimizer.replicate_degree, 1)
        share = ceil_div(grid.real, group)
        return Holding(share, share, share, share)
    share = ceil_div(grid.real, group)
    strategy = optimizer.fsdp_strategy
    weights = share if strategy == "optim_grads_params" else grid.real
    gradients = share if strategy in ("optim_grads", "optim_grads_params") else grid.real
    states = grid.real if strategy == "no_shard" else share
    return Holding(weights, gradients, states, states)


def gathers_weights(sizes: Sizes) -> bool:
    """Whether weights are split, so that units are gathered for the moment of their use."""
    optimizer = sizes.run.optimizer
    whole = optimizer.sharding == "megatron-fsdp" and optimizer.fsdp_strategy != "optim_grads_params"
    return optimizer.sharding in ("fsdp2", "megatron-fsdp") and not whole


def gathered_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage) -> Any:
    """Whole units during a backward: the weights in use, those that are gathered ahead, the gradient of the unit in use,
    and that of the unit before, which is still being reduced.

    Units are the transformer layers, and embedding and output layer of their own. Primus can gather weights in FP8.
    """
    if not gathers_weights(sizes):
        return 0
    largest = largest_unit(sizes, chunks)
    in_use = largest
    for numel in end_units(stage):
        in_use = maximum(in_use, numel)
    units = in_use + largest
    gathered = 1 if sizes.run.args.get("use_fsdp2_fp8_all_gather") else sizes.act
    return maximum(units * gathered, ahead_bytes(sizes, chunks, stage)) + units * sizes.act


def largest_unit(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """Elements of the largest transformer layer of a rank."""
    run = sizes.run
    kinds = [kind_of(run, layer) for chunk in chunks for layer in chunk.layers]
    kinds += [mtp_kind(sizes) for chunk in chunks for _ in chunk.mtp]
    largest: Any = 0
    for moe in {kind.moe for kind in kinds}:
        unit: Any = 0
        for param in params.layer(sizes, moe):
            unit = unit + param.numel * param.count
        largest = maximum(largest, unit)
    return largest


def ahead_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage) -> Any:
    """Weights that Megatron-FSDP gathers ahead under `overlap_param_gather`, after each step and in the backward: the
    first unit and 500 million elements more, or all there are (`MegatronFSDP`, whose cap of a thousand million elements
    on the size of a communication is a floor)."""
    run = sizes.run
    if run.optimizer.sharding != "megatron-fsdp" or not gathers_weights(sizes):
        return 0
    whole = stage.dense.real + stage.expert.real
    ahead = PREFETCH_ELEMENTS
    for numel in end_units(stage)[:1]:
        ahead = ahead + numel
    narrow = weight_copies.fp8_elements(sizes, chunks) * (sizes.e - 1)
    return where(run.optimizer.overlap_param_gather, minimum(ahead * sizes.e, whole * sizes.e - narrow), 0)


def end_units(stage: Stage) -> list[Any]:
    """Elements of the embedding and of the output layer of a rank, where it has them."""
    segments = [segment for chunk in stage.segments for segment in chunk]
    return [segment.params[0].numel for segment in segments if segment.name in ("embedding", "output layer")]


def coming_gradients_bytes(sizes: Sizes, stored: Any) -> Any:
    """Gradients that only exist from the backward to the step: those of torch FSDP2, which has no buffer for them."""
    return stored if sizes.run.optimizer.sharding == "fsdp2" else 0
