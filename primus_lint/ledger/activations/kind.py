"""The kinds of layers that keep different tensors: dense or mixture of experts, in high precision or FP8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.ledger.sizes import Sizes


class Kind(NamedTuple):
    """`moe`: the MLP is a mixture of experts. `low`: linear layers run in FP8 or FP4."""

    moe: bool
    low: bool


def kind_of(run: Run, layer: int) -> Kind:
    """The kind of a decoder layer (0-based); `first_last_layers_bf16` keeps both ends in bf16."""
    return Kind(run.model.is_moe_layer(layer), is_low(run, layer))


def recipe(run: Run) -> str | None:
    """How low-precision layers are scaled: delayed, tensorwise, blockwise, mxfp8, nvfp4, mxfp4; None in bf16 runs."""
    if run.precision.fp4 is not None:
        return run.precision.fp4_recipe
    return None if run.precision.fp8 is None else run.precision.fp8_recipe


def is_low(run: Run, layer: int) -> bool:
    precision = run.precision
    if recipe(run) is None:
        return False
    if precision.first_last_layers_bf16:
        last = run.model.num_layers - precision.bf16_layers_at_end
        return precision.bf16_layers_at_start <= layer < last
    return True


def mtp_kind(sizes: Sizes) -> Kind:
    """An MTP depth holds a layer of the last decoder layer's kind, and always runs in the global precision."""
    run = sizes.run
    moe = run.model.moe is not None and run.model.moe.layer_is_moe[-1]
    return Kind(bool(moe), recipe(run) is not None)


def separate_norm(sizes: Sizes, kind: Kind) -> bool:
    """Whether the pre-MLP norm is a module of its own (local spec, and every MoE layer)."""
    return kind.moe or sizes.run.kernels.implementation == "local"
