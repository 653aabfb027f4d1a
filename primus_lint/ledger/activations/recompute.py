"""Selective recomputation: which tensors each module of `recompute_modules` drops, and what it keeps instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.formula import where
from primus_lint.ledger.activations.attention import queries_are_copies

if TYPE_CHECKING:
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def drop(tensors: Tensors, *prefixes: str) -> None:
    for name in [name for name in tensors if name.startswith(prefixes)]:
        del tensors[name]


def selective(sizes: Sizes, kind: Kind, tensors: Tensors, modules: tuple[str, ...]) -> Tensors:
    """The kept tensors of a layer under `recompute_granularity: selective`."""
    run = sizes.run
    out = dict(tensors)
    local = run.kernels.implementation == "local"
    mla = run.model.mla
    if "core_attn" in modules:
        _core(sizes, out)
    if "mla_up_proj" in modules and mla is not None:
        drop(out, "latent.", "attention.q", "attention.k", "attention.v")
        if mla.q_lora_rank is not None:
            out["latent.q_compressed"] = sizes.T * mla.q_lora_rank * sizes.act
        out["latent.kv_combined"] = sizes.T * (mla.kv_lora_rank + mla.qk_pos_emb_head_dim) * sizes.act
        gathered = sizes.S * mla.qk_pos_emb_head_dim * sizes.act
        out["latent.k_positions"] = where(sizes.sp, gathered, 0)
    if "layernorm" in modules:
        if mla is not None or local:
            _norm(sizes, "attention", out)
        if kind.moe or local:
            _norm(sizes, "mlp", out)
    if kind.moe:
        if "moe" in modules:
            drop(out, "router.", "dispatch.", "experts.", "latent_experts.", "shared.")
            out["mlp.norm_out"] = sizes.T * sizes.h * sizes.act
        else:
            if "moe_act" in modules:
                drop(out, "experts.fc2_in", "experts.activated", "experts.linear", "experts.product")
            if "shared_experts" in modules:
                drop(out, "shared.")
    elif "mlp" in modules:
        drop(out, "mlp.fc1_out", "mlp.fc2_in", "mlp.activated", "mlp.linear")
        if not local:
            drop(out, "mlp.norm_out", "mlp.norm_statistics")
    return out


def _core(sizes: Sizes, out: Tensors) -> None:
    """Core attention keeps its inputs. v is a view of the packed QKV output, whose whole storage survives; so are q and k where
    nothing was done to them.

    Its output is kept by what reads it: linear_proj, unless that keeps a one-byte copy, or the output gate.
    """
    drop(
        out, "attention.lse", "attention.rng", "attention.softmax", "attention.probs", "attention.causal_mask",
        "attention.sequence_ends", "attention.packed",
    )  # fmt: skip
    if "attention.proj_in" in out and not sizes.run.model.attention_output_gate:
        drop(out, "attention.out")
    if sizes.run.model.mla is None:
        out["attention.q"] = sizes.S * sizes.Aq * sizes.d * sizes.act
        out["attention.k"] = sizes.S * sizes.kq * sizes.d * sizes.act
        queries = sizes.Aq * (1 + bool(sizes.run.model.attention_output_gate))  # the gate is packed with q, k and v
        out["attention.v"] = sizes.S * (queries + 2 * sizes.kq) * sizes.d * sizes.act
        if not queries_are_copies(sizes):
            out["attention.q"] = where(
                sizes.Aq == sizes.kq, 0, out["attention.q"]
            )  # of several queries a group: a copy
            drop(out, "attention.k")


def _norm(sizes: Sizes, module: str, out: Tensors) -> None:
    """A recomputed norm keeps its input alone; its output is made again, in FP8 from the original tensor."""
    drop(out, f"{module}.norm_out", f"{module}.norm_statistics")
    out[f"{module}.x"] = sizes.T * sizes.h * (4 if sizes.run.precision.fp32_residual else sizes.act)
