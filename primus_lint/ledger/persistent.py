"""Small things that a rank holds for the whole run: workspaces, tables, buffers of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.sizes import Sizes

CUBLAS_WORKSPACE_BYTES = 33_554_432 + 1024  # TransformerEngine on Hopper and later
HIPBLASLT_WORKSPACE_BYTES = {"gfx942": 33_554_432, "gfx950": 67_108_864}


def workspace_bytes(sizes: Sizes, has_experts: bool) -> Any:
    """GEMM workspaces of TransformerEngine: one, and one more per stream of grouped GEMMs (4)."""
    run = sizes.run
    if run.kernels.implementation == "local":
        return 0
    grouped = has_experts and run.model.moe is not None and run.model.moe.grouped_gemm
    if run.kernels.vendor == "rocm":
        arch = "gfx950" if (run.target.gpu or "").lower().startswith("mi35") else "gfx942"
        each = HIPBLASLT_WORKSPACE_BYTES[arch]
    else:
        each = CUBLAS_WORKSPACE_BYTES
    return each * (5 if grouped else 1)


def rope_table_bytes(sizes: Sizes) -> Any:
    """The rotary table in fp32: seq x head dim (the rotated part for MLA, in each layer's own module)."""
    model = sizes.run.model
    if model.mla is not None:
        return sizes.seq // sizes.cp * model.mla.qk_pos_emb_head_dim * 4
    if model.position_embedding in ("rope", "yarn"):
        return sizes.seq // sizes.cp * sizes.d * 4
    return 0


def gather_buffer_bytes(sizes: Sizes) -> Any:
    """Megatron's global buffer for gathered inputs of a non-TE column-parallel linear: the output layer under SP."""
    from primus_lint.formula import where

    return where(sizes.sp, sizes.S * sizes.h * sizes.act, 0)


def router_buffer_bytes(sizes: Sizes, layers: int) -> Any:
    """Expert bias and token counters of the routers, fp32 once training runs (counters stay bf16)."""
    moe = sizes.run.model.moe
    if moe is None or not moe.expert_bias:
        return 0
    return layers * sizes.E * (4 + 2)


def moe_layers(sizes: Sizes, chunks: tuple[Chunk, ...]) -> int:
    """MoE layers of a rank, MTP depths included."""
    model = sizes.run.model
    count = 0
    for chunk in chunks:
        count += sum(model.is_moe_layer(layer) for layer in chunk.layers)
        if chunk.mtp and model.moe is not None and model.moe.layer_is_moe[-1]:
            count += len(chunk.mtp)
    return count
