"""One transformer layer: its kept tensors, with selective recomputation applied, and its checkpointed input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger import lora
from primus_lint.ledger.activations.attention import dropout_masks, grouped_query
from primus_lint.ledger.activations.experts import dispatch, experts
from primus_lint.ledger.activations.mla import latent
from primus_lint.ledger.activations.mlp import dense, shared_experts
from primus_lint.ledger.activations.norms import input_bytes, statistics_bytes
from primus_lint.ledger.activations.recompute import selective
from primus_lint.ledger.activations.router import router
from primus_lint.ledger.activations.tensors import total
from primus_lint.ledger.primus import mega_moe, mega_moe_tensors
from primus_lint.ledger.weight_copies import pinned

if TYPE_CHECKING:
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def mixture(sizes: Sizes, kind: Kind) -> Tensors:
    """Mixture of experts: pre-MLP norm (a module of its own), shared experts, router, dispatch, experts."""
    out: Tensors = {
        "mlp.x": input_bytes(sizes, sizes.T, sizes.h),
        "mlp.norm_statistics": statistics_bytes(sizes, sizes.T),
        "mlp.norm_out": sizes.T * sizes.h * sizes.act,
    }
    out.update(shared_experts(sizes, kind))
    out.update(router(sizes))
    if mega_moe(sizes.run):
        out.update(mega_moe_tensors(sizes))
        return out
    out.update(dispatch(sizes))
    out.update(experts(sizes, kind))
    return out


def kept(sizes: Sizes, kind: Kind) -> Tensors:
    """Tensors kept by a layer without recomputation."""
    out: Tensors = latent(sizes, kind) if sizes.run.model.mla is not None else grouped_query(sizes, kind)
    out.update(mixture(sizes, kind) if kind.moe else dense(sizes, kind))
    out.update(dropout_masks(sizes))
    if lora.enabled(sizes.run):
        out = lora.keep(sizes, kind, out)
    out.update(pinned(sizes, kind))
    return out


def kept_selective(sizes: Sizes, kind: Kind) -> Tensors:
    """Tensors kept by a layer that is not fully recomputed, with the modules of selective recomputation applied."""
    tensors = kept(sizes, kind)
    if sizes.run.recompute.granularity == "selective":
        tensors = selective(sizes, kind, tensors, sizes.run.recompute.modules)
    return tensors


def layer_bytes(sizes: Sizes, kind: Kind) -> Any:
    """Bytes kept by one layer and micro-batch outside full recomputation."""
    return total(kept_selective(sizes, kind))


def checkpoint_bytes(sizes: Sizes) -> Any:
    """The input of a fully recomputed unit; split over tensor ranks by `distribute_saved_activations`."""
    saved = sizes.T * sizes.h * (4 if sizes.run.precision.fp32_residual else sizes.act)
    if sizes.run.recompute.distribute_saved_activations:
        return where(sizes.sp, saved, saved // sizes.tp)
    return saved
