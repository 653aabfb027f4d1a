"""Derived symbols of which layers have which attention and MLP (see `namespace`)."""

from __future__ import annotations

from typing import Any

from primus_lint.lower.megatron.namespace import Namespace, derived, evaluate_pattern


@derived("num_experts", "moe_layer_freq", "hybrid_layer_pattern")
def has_dense_mlp(v: Namespace) -> bool:
    """Whether some decoder layer of a GPT model has a dense MLP."""
    return v["hybrid_segments"] is None and not all(v["moe_layers"])


@derived("experimental_attention_variant")
def is_delta_net(v: Namespace) -> bool:
    """Whether some layers are gated delta nets (linear attention)."""
    return v.get("experimental_attention_variant") in ("gated_delta_net", "gdn", "gdn2")


@derived("experimental_attention_variant")
def is_dsa(v: Namespace) -> bool:
    """Whether attention is sparse (DSA)."""
    return v.get("experimental_attention_variant") == "dsa"


@derived("linear_attention_freq")
def linear_attention_list(v: Namespace) -> Any:
    """Which layers are linear attention: a number or a list, as the parser reads it."""
    return _pattern(v["linear_attention_freq"])


@derived("no_rope_freq")
def no_rope_list(v: Namespace) -> Any:
    """Which layers go without rotary embedding: a number or a list, as the parser reads it; None when all have it."""
    return _pattern(v["no_rope_freq"]) or None


def _pattern(value: Any) -> Any:
    if isinstance(value, str):
        return evaluate_pattern(value) if "[" in value else int(value)
    return value
