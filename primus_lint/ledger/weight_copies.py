"""Low-precision copies of GEMM weights beside the bf16 weights, in FP8 and FP4 runs.

TransformerEngine keeps them from one micro-batch to the next: data and transpose where the FP8 GEMM needs both layouts
(Hopper, and every AMD device), data alone on Blackwell with per-tensor scaling. Primus-Turbo keeps them for a step of
several micro-batches; what the autograd nodes hold besides counts with the activations (`pinned`). Under torch FSDP2 the
copies are of the gathered weights and stay whole (`_fp8_workspaces` of the modules, ROCm's TransformerEngine included).
Source: TE `get_weight_workspace`; ../shared/reference/byte-accounting-amd.md sections 2.3 and 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger import params
from primus_lint.ledger.activations.kind import kind_of, mtp_kind, recipe
from primus_lint.ledger.activations.quantize import FP4_BLOCK, MX_BLOCK
from primus_lint.ledger.architecture import architecture
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.sizes import Sizes

PER_TENSOR = ("delayed", "tensorwise")


class Weights(NamedTuple):
    """Elements of the GEMM weights of a layer on a rank: attention, other linear layers, grouped experts."""

    attention: Any
    mlp: Any
    grouped: Any


def weights(sizes: Sizes, moe: bool) -> Weights:
    """Of a transformer layer."""
    attention: Any = 0
    mlp: Any = 0
    grouped: Any = 0
    for param in params.layer(sizes, moe):
        if not param.gemm:
            continue
        numel = param.numel * param.count
        if param.name.startswith(("experts.linear_", "experts.weight")):
            grouped = grouped + numel
        elif param.name.startswith("linear_") and not param.name.startswith("linear_fc"):
            attention = attention + numel
        else:
            mlp = mlp + numel
    return Weights(attention, mlp, grouped)


def with_scales(sizes: Sizes, copies: int, numel: Any) -> Any:
    """Bytes of so many copies, one byte (FP4: half a byte) an element: mxfp8 and mxfp4 have a scale byte per 32
    elements, nvfp4 one per 16, blockwise 4 B per 128 x 128."""
    how = recipe(sizes.run)
    total = copies * numel
    if how in FP4_BLOCK:
        return total // 2 + total // FP4_BLOCK[how]
    if how == "mxfp8":
        return total + total // MX_BLOCK
    if how == "blockwise":
        return total + 4 * (total // 16384)
    return total


def linear_copies(sizes: Sizes) -> int:
    """Copies of a linear layer's weight that stay between micro-batches."""
    run = sizes.run
    how = recipe(run)
    if run.kernels.turbo_gemm:
        if how == "tensorwise" or (how == "blockwise" and run.args.get("disable_parameter_transpose_cache")):
            return 1
        return 2
    return 1 if run.args.get("no_fp8_weight_transpose_cache") else _te_copies(sizes)


def grouped_copies(sizes: Sizes) -> int:
    """Of a grouped linear layer: none where it runs in bf16."""
    run = sizes.run
    if run.experts_in_16_bits:
        return 0
    if run.kernels.turbo_grouped_gemm:
        return 1 if recipe(run) == "tensorwise" else 2
    return _te_copies(sizes)


def _te_copies(sizes: Sizes) -> int:
    run = sizes.run
    sm100 = architecture(run.target.gpu, run.kernels.vendor) == "sm100"
    return 1 if sm100 and recipe(run) in PER_TENSOR else 2


def kept_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """What stays between micro-batches on a rank."""
    run = sizes.run
    if recipe(run) is None or run.precision.fp8_param:
        return 0
    several = sizes.m is None or sizes.m > 1  # Turbo caches for the other micro-batches of a step
    total: Any = 0
    for chunk in chunks:
        kinds = [kind_of(run, layer) for layer in chunk.layers] + [mtp_kind(sizes)] * len(chunk.mtp)
        for kind in dict.fromkeys(kinds):
            if not kind.low:
                continue
            attention, mlp, grouped = weights(sizes, kind.moe)
            linear = with_scales(sizes, linear_copies(sizes), attention + mlp)
            experts = with_scales(sizes, grouped_copies(sizes), grouped)
            linear = where(several, linear, 0) if run.kernels.turbo_gemm else linear
            experts = where(several, experts, 0) if run.kernels.turbo_grouped_gemm else experts
            total = total + kinds.count(kind) * (linear + experts)
    return total


def primary_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """What FP8 primary weights (`fp8_param_gather`) change: one byte an element with its scales, and the transpose where
    the products need both layouts, instead of a bf16 weight. Embedding, output layer, router and norms stay in bf16.

    Source: TE `Float8Tensor` in `quantized_model_init`, Megatron's parameter buffer of `torch.uint8`.
    """
    optimizer = sizes.run.optimizer
    split = optimizer.sharding == "megatron-fsdp" and optimizer.fsdp_strategy == "optim_grads_params"
    stored = 1 if split else _te_copies(sizes)  # a shard has no transpose
    elements = fp8_elements(sizes, chunks, split)
    # fp32 weights are their own main parameters, those in FP8 are not; Megatron-FSDP has main parameters in any case
    main = 4 if sizes.e == 4 and optimizer.sharding != "megatron-fsdp" else 0
    return with_scales(sizes, stored, elements) + elements * (main - sizes.e)


def fp8_elements(sizes: Sizes, chunks: tuple[Chunk, ...], split: bool = False) -> Any:
    """Elements of the FP8 primary weights of a rank, whole or (`split`) its shard of them."""
    run = sizes.run
    total: Any = 0
    if recipe(run) is None or not run.precision.fp8_param:
        return total
    for chunk in chunks:
        for kind in [kind_of(run, layer) for layer in chunk.layers] + [mtp_kind(sizes)] * len(chunk.mtp):
            if kind.low:
                attention, mlp, grouped = weights(sizes, kind.moe)
                dense = (attention + mlp) // (sizes.dpcp if split else 1)
                total = total + dense + grouped // (sizes.edp if split else 1)
    return total


def pinned(sizes: Sizes, kind: Kind) -> dict[str, Any]:
    """What a micro-batch holds of a layer's weights until its backward, under Turbo.

    With one micro-batch a step there is no cache, the nodes hold the copy. On gfx950 per-tensor scaling makes a fresh
    transposed copy for every call.
    """
    run = sizes.run
    if not kind.low or run.precision.fp8_param or not (run.kernels.turbo_gemm or run.kernels.turbo_grouped_gemm):
        return {}
    once = False if sizes.m is None else sizes.m == 1
    attention, mlp, grouped = weights(sizes, kind.moe)
    out: dict[str, Any] = {}
    if run.kernels.turbo_gemm:
        fresh = recipe(run) == "tensorwise" and architecture(run.target.gpu, run.kernels.vendor) == "gfx950"
        for name, numel in (("attention", attention), ("mlp", mlp)):
            one = with_scales(sizes, 1, numel)
            out[f"{name}.fp8_weights"] = one if fresh else where(once, one, 0)
    if run.kernels.turbo_grouped_gemm and grouped_copies(sizes):
        out["experts.fp8_weights"] = where(once, with_scales(sizes, 1, grouped), 0)
    return out
