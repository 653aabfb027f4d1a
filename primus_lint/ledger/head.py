"""Both ends of the model: what embedding, final norm, output layer and loss keep for one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger.activations.norms import statistics_bytes

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def embedding(sizes: Sizes) -> Tensors:
    """Token ids (int64) and, over tensor ranks, the mask of foreign ids; dropout keeps a mask."""
    out: Tensors = {"embedding.ids": sizes.S * 8, "embedding.mask": where(sizes.tp > 1, sizes.S, 0)}
    if sizes.run.model.hidden_dropout:
        out["embedding.dropout_mask"] = sizes.T * sizes.h
    return out


def final_norm(sizes: Sizes) -> Tensors:
    """Input of the final norm and its row statistics; its output is kept by the output layer."""
    return {"head.norm_x": sizes.T * sizes.h * sizes.act, "head.norm_statistics": statistics_bytes(sizes, sizes.T)}


def loss_bytes_per_logit(sizes: Sizes) -> int:
    """Unfused cross entropy keeps the fp32 softmax; both fusions keep two bytes; the chunked head keeps none."""
    fusion = sizes.run.kernels.cross_entropy_fusion
    if fusion == "linear":
        return 0
    return 4 if fusion is None else sizes.act


def loss(sizes: Sizes, heads: int = 1) -> Tensors:
    """`heads` passes through output layer and loss: the main one and one per MTP depth."""
    logits = sizes.S * (sizes.V // sizes.tp)
    out: Tensors = {"head.output_in": sizes.T * sizes.h * sizes.act * heads}
    per_logit = loss_bytes_per_logit(sizes)
    out["head.softmax" if per_logit == 4 else "head.logits"] = logits * per_logit * heads
    if sizes.run.kernels.cross_entropy_fusion != "te":
        out["head.target"] = (sizes.S * 9) * heads
    return out


def mtp(sizes: Sizes) -> Tensors:
    """The parts of one MTP depth besides its transformer layer."""
    wide = sizes.T * sizes.h * sizes.act
    statistics = statistics_bytes(sizes, sizes.T)
    return {
        "mtp.ids": sizes.S * 8,
        "mtp.enorm_x": wide,
        "mtp.hnorm_x": wide,
        "mtp.norm_statistics": 3 * statistics,
        "mtp.eh_in": 2 * wide,
        "mtp.final_norm_x": wide,
    }


def logits_transient_bytes(sizes: Sizes) -> Any:
    """What coexists with the kept loss tensors at the loss: bf16 logits going in, or their bf16 gradient coming out."""
    fusion = sizes.run.kernels.cross_entropy_fusion
    logits = sizes.S * (sizes.V // sizes.tp)
    if fusion == "linear":
        return 4096 * (sizes.V // sizes.tp) * (sizes.act + 4)
    if fusion == "te":
        return 0 * logits
    return logits * (sizes.act if fusion is None else 8)
