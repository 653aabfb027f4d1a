"""Selective recomputation: which tensors each module of `recompute_modules` drops, and what it keeps instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def drop(tensors: Tensors, *prefixes: str) -> None:
    for name in [name for name in tensors if name.startswith(prefixes)]:
        del tensors[name]


def selective(sizes: Sizes, moe: bool, tensors: Tensors) -> Tensors:
    """The kept tensors of a layer under `recompute_granularity: selective`."""
    run = sizes.run
    modules = run.recompute.modules
    act = sizes.act
    mla = run.model.mla
    out = dict(tensors)
    if "core_attn" in modules:
        out.pop("attention.lse", None)
        out.pop("attention.rng", None)
        if mla is None:
            # v is a view of the packed QKV output, whose whole storage survives; the output is linear_proj's input
            out["attention.v"] = sizes.S * (sizes.Aq + 2 * sizes.kq) * sizes.d * act
    if "mla_up_proj" in modules and mla is not None:
        drop(out, "attention.q", "attention.k", "attention.v")
    if "layernorm" in modules:
        if mla is not None:
            out.pop("attention.norm_out", None)
        if moe:
            out.pop("mlp.norm_out", None)
    if moe:
        if "moe" in modules:
            drop(out, "router.", "dispatch.", "experts.", "shared.")
        else:
            if "moe_act" in modules:
                out.pop("experts.fc2_in", None)
            if "shared_experts" in modules:
                drop(out, "shared.")
    elif "mlp" in modules:
        drop(out, "mlp.fc1_out", "mlp.fc2_in", "mlp.activated", "mlp.linear", "mlp.norm_out", "mlp.norm_statistics")
    return out
