"""Derived symbols of experts, context parallelism and recomputation (see `namespace`)."""

from __future__ import annotations

import math
from typing import Any

from primus_lint.lower.megatron.namespace import Namespace, countable, derived, evaluate_pattern

CONTEXT_TYPES = ("p2p", "a2a", "all_gather", "a2a+p2p")


@derived("moe_layer_freq")
def moe_pattern(v: Namespace) -> Any:
    """`moe_layer_freq` as the parser reads it: a number or a list; None when it cannot be read."""
    value = v["moe_layer_freq"]
    if not isinstance(value, str):
        return value
    return evaluate_pattern(value)


@derived("num_experts", "moe_layer_freq", "hybrid_layer_pattern")
def has_expert_layer(v: Namespace) -> bool:
    """Whether some layer is a mixture of experts (`E` in the pattern of a hybrid model)."""
    if v["num_experts"] is None:
        return False
    pattern = v.get("hybrid_layer_pattern")
    if pattern is not None:
        return "E" in pattern
    layers = v["moe_layers"]
    return True if layers is None else any(layers)


@derived("moe_router_load_balancing_type")
def balancing_types(v: Namespace) -> list[Any]:
    """Load-balancing types of the router, a list even when there is one."""
    value = v["moe_router_load_balancing_type"]
    return list(value) if isinstance(value, (list, tuple)) else [value]


@derived("moe_aux_loss_coeff", "moe_router_load_balancing_type")
def has_aux_loss(v: Namespace) -> bool:
    """Whether an auxiliary loss of the router is computed (a type that has one, with a coefficient above 0)."""
    coefficients = v["moe_aux_loss_coeff"]
    types = v["balancing_types"]
    if not isinstance(coefficients, (list, tuple)):
        coefficients = [coefficients] * len(types)
    pairs = zip(types, coefficients, strict=False)
    return any(kind in ("aux_loss", "seq_aux_loss", "global_aux_loss") and (value or 0) > 0 for kind, value in pairs)


@derived("moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_enable_deepep")
def deepep(v: Namespace) -> bool:
    """Whether the flex dispatcher runs DeepEP."""
    return v["moe_token_dispatcher_type"] == "flex" and bool(
        v.get("moe_enable_deepep") or v.get("moe_flex_dispatcher_backend") == "deepep"
    )


@derived("moe_use_grouped_tensor", "use_transformer_engine_op_fuser", "moe_grouped_gemm")
def grouped_tensor(v: Namespace) -> bool:
    """Whether experts are one grouped tensor (d98e8a64): asked for, or because the op fuser runs the grouped GEMM."""
    return bool(v.get("moe_use_grouped_tensor") or (v.get("use_transformer_engine_op_fuser") and v["moe_grouped_gemm"]))


@derived("cp_comm_type")
def context_types(v: Namespace) -> list[Any]:
    """How context-parallel ranks exchange keys and values, for each layer or once for all."""
    value = v["cp_comm_type"]
    if value is None:
        return ["p2p"]
    return list(value) if isinstance(value, (list, tuple)) else [value]


@derived("window_size")
def window(v: Namespace) -> tuple[int, ...] | None:
    """The attention window (left, right); None when attention is not windowed."""
    value = v.get("window_size")
    if value is None:
        return None
    if isinstance(value, str):
        value = value.strip("() ").split(",")
    pair = tuple(int(item) for item in value)
    return None if pair in ((-1, 0), (-1, -1)) else pair


@derived("window_size", "window_attn_skip_freq", "cp_comm_type", "num_layers")
def windowed_context_types(v: Namespace) -> list[Any]:
    """The context-parallel types of the layers whose attention is windowed.

    `window_attn_skip_freq`: every n-th layer attends to everything, or a list with a 1 for each windowed layer.
    """
    if v["window"] is None:
        return []
    types, count = v["context_types"], countable(v["num_layers"])
    skip = v.get("window_attn_skip_freq")
    if isinstance(skip, str):
        skip = evaluate_pattern(skip)
    if not skip:
        windowed = [True] * count
    elif isinstance(skip, int):
        windowed = [(layer + 1) % skip != 0 for layer in range(count)]
    else:
        windowed = [bool(item) for item in skip]
    if len(types) == 1:
        return types if any(windowed) else []
    return [kind for kind, is_windowed in zip(types, windowed, strict=False) if is_windowed]


@derived("hierarchical_context_parallel_sizes")
def inner_exchange(v: Namespace) -> Any:
    """Ranks of the inner level of a two-level context-parallel exchange, which exchange attention heads."""
    sizes = v.get("hierarchical_context_parallel_sizes")
    return sizes[0] if isinstance(sizes, (list, tuple)) and sizes else 1


@derived("pipeline_model_parallel_layout", "num_layers", "pipeline_model_parallel_size")
def chunk_layers(v: Namespace) -> list[int]:
    """Decoder layers of each virtual stage of each rank. Raises TypeError when the split is illegal."""
    return [len(chunk.layers) for rank in v["stages"] for chunk in rank]


@derived("pipeline_model_parallel_layout", "num_layers", "pipeline_model_parallel_size")
def chunk_layers_gcd(v: Namespace) -> int:
    """Greatest number that divides the layers of every virtual stage; 0 when none has any."""
    return math.gcd(*v["chunk_layers"])


@derived("offload_modules", "fine_grained_activation_offloading")
def offloaded(v: Namespace) -> list[Any]:
    """Modules whose activations fine-grained offload moves to the host; [] without it."""
    if not v.get("fine_grained_activation_offloading"):
        return []
    value = v.get("offload_modules")
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


@derived("recompute_layer_ids")
def recompute_layers_listed(v: Namespace) -> bool:
    """Whether Primus recomputes a list of layers instead of a method's choice."""
    return v["framework"] == "primus-megatron" and v.get("recompute_layer_ids") is not None
