"""Multi-latent attention: tensors kept for backward by one layer and micro-batch (TransformerEngine modules)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.ledger.activations.attention import core
from primus_lint.ledger.activations.norms import statistics_bytes

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def latent(sizes: Sizes) -> Tensors:
    """Input norm (a module of its own), down projections, compressed latents with their norms, up projections, core."""
    run = sizes.run
    mla = run.model.mla
    assert mla is not None
    act, S, T, h, heads = sizes.act, sizes.S, sizes.T, sizes.h, sizes.Aq
    nope, rope, dv = mla.qk_head_dim, mla.qk_pos_emb_head_dim, mla.v_head_dim
    out: Tensors = {
        "attention.x": T * h * act,
        "attention.norm_statistics": statistics_bytes(sizes, T),
        "attention.norm_out": T * h * act,
    }
    for name, rank in (("q", mla.q_lora_rank), ("kv", mla.kv_lora_rank)):
        if rank is None:
            continue
        if run.model.qk_layernorm:
            out[f"attention.{name}_compressed"] = T * rank * act
            out[f"attention.{name}_norm_statistics"] = statistics_bytes(sizes, T)
        out[f"attention.{name}_latent"] = T * rank * act
    if not run.kernels.rope_fusion:
        out["attention.rope_tables"] = 4 * (sizes.seq // sizes.cp) * rope * act
    qk = S * heads * (nope + rope) * act
    out.update(core(sizes, qk, qk, S * heads * dv * act, S * heads * dv * act))
    return out
