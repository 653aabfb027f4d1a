"""Self-attention: tensors kept for backward by one layer and micro-batch.

TransformerEngine modules: LayerNormLinear keeps its input x, the norm's output and the row statistics; the fused
kernel keeps q, k, v, its output, the fp32 log-sum-exp and 16 bytes of RNG state; linear_proj keeps that output.
Source: TE 2.11 python modules run on fake tensors (../shared/oracle), byte-accounting rule 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.formula import where
from primus_lint.ledger.activations.norms import statistics_bytes

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes

RNG_BYTES = 16


def grouped_query(sizes: Sizes) -> Tensors:
    """Attention with key/value groups, input norm included."""
    run = sizes.run
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    q = S * sizes.Aq * sizes.d * act
    kv = S * sizes.kq * sizes.d * act
    out: Tensors = {
        "attention.x": T * h * act,
        "attention.norm_out": T * h * act,
        "attention.norm_statistics": statistics_bytes(sizes, T),
    }
    if run.model.qk_layernorm:
        out["attention.q_before_norm"] = q
        out["attention.k_before_norm"] = kv
        out["attention.qk_norm_statistics"] = statistics_bytes(sizes, S * (sizes.Aq + sizes.kq))
    if run.model.position_embedding in ("rope", "yarn", "mrope") and not run.kernels.rope_fusion:
        rotated = sizes.d * run.args.get("rotary_percent", 1.0)
        out["attention.rope_tables"] = 4 * (sizes.seq // sizes.cp) * int(rotated) * act
    out.update(core(sizes, q, kv, kv, S * sizes.Aq * sizes.dv * act))
    return out


def core(sizes: Sizes, q: object, k: object, v: object, output: object) -> Tensors:
    """Fused or flash attention, with its context-parallel variants."""
    run = sizes.run
    lse = sizes.S * sizes.Aq * 4
    out: Tensors = {
        "attention.q": q,
        "attention.k": k,
        "attention.v": v,
        "attention.out": output,
        "attention.lse": lse,
        "attention.rng": RNG_BYTES * where(sizes.cp > 1, 2, 1),
    }
    if run.parallel.cp_comm_type in ("a2a", "all_gather", "a2a+p2p"):
        out["attention.out_copy"] = where(sizes.cp > 1, output, 0)
    return out


def dropout_masks(sizes: Sizes) -> Tensors:
    """Bias-dropout-add keeps a byte mask per element when hidden dropout is on (twice a layer)."""
    if sizes.run.model.hidden_dropout == 0.0:
        return {}
    mask = sizes.T * sizes.h
    return {"attention.dropout_mask": mask, "mlp.dropout_mask": mask}
