"""Multi-latent attention: tensors kept for backward by one layer and micro-batch.

The input norm is a module of its own. In bf16 both down projections share its output; in FP8 each keeps a one-byte
copy. The up projections are LayerNormLinears over the compressed latents (with `qk_layernorm`), else plain linears.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.ledger.activations.attention import core, projection_copy, rope_tables
from primus_lint.ledger.activations.norms import input_bytes, statistics_bytes
from primus_lint.ledger.activations.quantize import linear_input, quantized

if TYPE_CHECKING:
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def latent(sizes: Sizes, kind: Kind) -> Tensors:
    """Input norm, down projections, compressed latents with their norms, up projections, core attention."""
    run = sizes.run
    mla = run.model.mla
    assert mla is not None
    act, S, T, h, heads = sizes.act, sizes.S, sizes.T, sizes.h, sizes.Aq
    nope, rope, dv = mla.qk_head_dim, mla.qk_pos_emb_head_dim, mla.v_head_dim
    out: Tensors = {
        "attention.x": input_bytes(sizes, T, h),
        "attention.norm_statistics": statistics_bytes(sizes, T),
    }
    if kind.low:
        out["attention.norm_out_q"] = quantized(sizes, T, h)
        out["attention.norm_out_kv"] = quantized(sizes, T, h)
    else:
        out["attention.norm_out"] = T * h * act
    for name, rank in (("q", mla.q_lora_rank), ("kv", mla.kv_lora_rank)):
        if rank is None:
            continue
        if run.model.qk_layernorm:
            out[f"latent.{name}_compressed"] = input_bytes(sizes, T, rank)
            out[f"latent.{name}_norm_statistics"] = statistics_bytes(sizes, T)
        out[f"latent.{name}"] = linear_input(sizes, kind.low, T, rank)
    if not run.kernels.rope_fusion:
        out["latent.rope_tables"] = rope_tables(sizes, rope)
    qk = S * heads * (nope + rope) * act
    out.update(core(sizes, qk, qk, S * heads * dv * act, S * heads * dv * act))
    projection_copy(sizes, kind, out)
    return out
