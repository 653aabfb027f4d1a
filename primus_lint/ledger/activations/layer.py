"""One transformer layer: its kept tensors, with selective and full recomputation applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger.activations.attention import dropout_masks, grouped_query
from primus_lint.ledger.activations.mla import latent
from primus_lint.ledger.activations.mlp import dense
from primus_lint.ledger.activations.moe import mixture
from primus_lint.ledger.activations.recompute import selective
from primus_lint.ledger.activations.tensors import total

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def kept(sizes: Sizes, moe: bool) -> Tensors:
    """Tensors kept by a layer without recomputation."""
    out: Tensors = latent(sizes) if sizes.run.model.mla is not None else grouped_query(sizes)
    out.update(mixture(sizes) if moe else dense(sizes))
    out.update(dropout_masks(sizes))
    return out


def kept_selective(sizes: Sizes, moe: bool) -> Tensors:
    """Tensors kept by a layer that is not fully recomputed, with the modules of selective recomputation applied."""
    tensors = kept(sizes, moe)
    recompute = sizes.run.recompute
    if recompute.granularity == "selective":
        tensors = selective(sizes, moe, tensors)
    return tensors


def layer_bytes(sizes: Sizes, moe: bool) -> Any:
    return total(kept_selective(sizes, moe))


def checkpoint_bytes(sizes: Sizes) -> Any:
    """The input of a fully recomputed unit; split over tensor ranks by `distribute_saved_activations`."""
    saved = sizes.T * sizes.h * sizes.act
    if sizes.run.recompute.distribute_saved_activations:
        return where(sizes.sp, saved, saved // sizes.tp)
    return saved
