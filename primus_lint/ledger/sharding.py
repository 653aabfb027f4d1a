"""Who holds what of weights, gradients and optimizer state, by `sharding` of the recipe.

none               whole weights and gradients, whole states
distributed        padded weight and gradient buffers, states of the rank's slice of every bucket
fsdp2              torch FSDP2: weights, gradients and states split over the data-parallel group, unit by unit;
                   gradients in the weights' dtype, made by the backward and freed by the step
megatron-fsdp      by strategy: `optim` splits the states, `optim_grads` the gradients too, `optim_grads_params` all
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, maximum, minimum
from primus_lint.ledger import params, weight_copies
from primus_lint.ledger.activations.kind import kind_of, mtp_kind
from primus_lint.ledger.activations.router import of_2026
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


class Whole(NamedTuple):
    """Bytes of whole weights and gradients beside the shards: in a forward, and at both ends of the layers' backward."""

    forward: Any
    first: Any
    last: Any


def whole_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage) -> Whole:
    """What is whole while a chunk runs. Units are the transformer layers.

    torch FSDP2: the unit in use and the one gathered ahead, the gradient of the unit in use and that of the unit before,
    which is still being reduced; embedding and output layer are units too. Primus can gather weights in FP8.

    Megatron-FSDP: `whole_elements`. Held against the real one in tests/oracle.
    """
    if not gathers_weights(sizes):
        return Whole(0, 0, 0)
    unit = largest_unit(sizes, chunks)
    if sizes.run.optimizer.sharding == "fsdp2":
        in_use = unit
        for numel in end_units(stage):
            in_use = maximum(in_use, numel)
        units = in_use + unit
        gathered = 1 if sizes.run.args.get("use_fsdp2_fp8_all_gather") else sizes.act
        both = units * (gathered + sizes.act)
        return Whole(both, both, both)
    found = _whole_elements(stage, unit)
    weights = weight_bytes(sizes, chunks, stage, found.weights)
    return Whole(
        weights,
        weights + gradient_bytes(sizes, chunks, stage, found.first_gradients),
        weight_bytes(sizes, chunks, stage, outside_units(stage) + unit)
        + gradient_bytes(sizes, chunks, stage, found.last_gradients),
    )


class WholeElements(NamedTuple):
    """Elements that Megatron-FSDP has whole: weights after a step and at most, gradients of the first and last unit to run
    backward."""

    after_step: Any
    weights: Any
    first_gradients: Any
    last_gradients: Any


def whole_elements(ends: Any, units: Any, unit: Any, ahead: Any) -> WholeElements:
    """Of `units` elements in layers of `unit` each and `ends` outside them, gathering `ahead` elements ahead.

    What lies outside the units is whole from its first use on, weights and gradients. Of the units the one in use is, and
    as many as hold `ahead` more, in either direction (`AllGatherPipeline`); gradients from their unit's backward until the
    reduction of more than twice as many is under way, and one more (`GradReducePipeline`): small models keep them all.
    """
    further = ceil_div(ahead, unit) * unit
    return WholeElements(
        ends + minimum(units, further),
        ends + minimum(units, unit + further),
        ends + minimum(units, unit),
        ends + minimum(units, (2 * ahead // unit + 2) * unit),
    )


def _whole_elements(stage: Stage, unit: Any) -> WholeElements:
    """`whole_elements` of a rank whose largest layer has `unit` elements."""
    ends = outside_units(stage)
    return whole_elements(ends, stage.dense.real + stage.expert.real - ends, unit, ahead_elements(unit))


def ahead_elements(unit: Any) -> Any:
    """Elements that Megatron-FSDP gathers beyond those asked for: by default the size of a unit, at least 500 million
    (`MegatronFSDP`, whose cap of a thousand million on the size of a communication is a floor)."""
    return maximum(PREFETCH_ELEMENTS, unit)


def weight_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage, elements: Any) -> Any:
    """Bytes of so many elements of whole weights, and no more than all of them have: those in FP8 one byte each."""
    whole = stage.dense.real + stage.expert.real
    narrow = weight_copies.fp8_elements(sizes, chunks) * (sizes.e - 1)
    return minimum(elements * sizes.e, whole * sizes.e - narrow)


def gradient_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage, elements: Any) -> Any:
    """Bytes of so many elements of whole gradients, and no more than all of them have."""
    whole = stage.dense.real + stage.expert.real
    narrow = weight_copies.fp8_elements(sizes, chunks) * 2 if fp8_gradients_are_narrow(sizes) else 0
    return minimum(elements * sizes.grad, whole * sizes.grad - narrow)


def fp8_gradients_are_narrow(sizes: Sizes) -> bool:
    """Whether Megatron-FSDP keeps the gradients of FP8 weights in bf16 beside others in fp32: where it takes the dtype of the
    weights and these are fp32 (`_resolve_group_grad_dtype`)."""
    run = sizes.run
    asked = run.args.get("megatron_fsdp_main_grads_dtype")
    return run.optimizer.sharding == "megatron-fsdp" and run.precision.fp8_param and sizes.grad == 4 and asked == "auto"


def fp8_gradient_shift(sizes: Sizes, chunks: tuple[Chunk, ...]) -> tuple[Any, Any]:
    """Bytes that the stored gradients lack for it, and those of the fp32 copies that the optimizer makes of its share."""
    if not fp8_gradients_are_narrow(sizes):
        return 0, 0
    strategy = sizes.run.optimizer.fsdp_strategy
    stored = weight_copies.fp8_elements(sizes, chunks, strategy in ("optim_grads", "optim_grads_params"))
    if sizes.run.optimizer.precision_aware:  # takes them as they are
        return stored * 2, 0
    return stored * 2, weight_copies.fp8_elements(sizes, chunks, strategy != "no_shard") * 4


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


def stays_whole_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], stage: Stage) -> Any:
    """Weights that are whole between the steps of Megatron-FSDP.

    After each step it gathers ahead, from the first parameter on. `log_params_norm` stops that again
    (`stop_communication`): then what is outside the units stays alone, and before Megatron-LM of May 2026 (its #4717)
    not even that.
    """
    run = sizes.run
    if run.optimizer.sharding != "megatron-fsdp" or not gathers_weights(sizes):
        return 0
    if run.args.get("log_params_norm"):
        return weight_bytes(sizes, chunks, stage, outside_units(stage)) if of_2026(sizes) else 0
    return weight_bytes(sizes, chunks, stage, _whole_elements(stage, largest_unit(sizes, chunks)).after_step)


def outside_units(stage: Stage) -> Any:
    """Elements of a rank that belong to no transformer layer."""
    total: Any = 0
    for chunk in stage.segments:
        for segment in chunk:
            if segment.name in ("embedding", "final norm", "output layer"):
                for param in segment.params:
                    total = total + param.numel * param.count
    return total


def end_units(stage: Stage) -> list[Any]:
    """Elements of the embedding and of the output layer of a rank, where it has them."""
    segments = [segment for chunk in stage.segments for segment in chunk]
    return [segment.params[0].numel for segment in segments if segment.name in ("embedding", "output layer")]


def coming_gradients_bytes(sizes: Sizes, stored: Any) -> Any:
    """Gradients that only exist from the backward to the step: those of torch FSDP2, which has no buffer for them."""
    return stored if sizes.run.optimizer.sharding == "fsdp2" else 0
