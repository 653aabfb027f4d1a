"""Derived symbols of Primus's own switches: Primus-Turbo kernels, its pipeline runtimes, per-layer recomputation.

Source: shared notes on byte accounting of the AMD stack (Primus fd1eeabb, Primus-Turbo a6a16cd), section 1.
"""

from __future__ import annotations

from typing import Any

from primus_lint.lower.megatron.namespace import Namespace, derived

PIPELINE_ALGORITHMS = (
    "1f1b", "1f1b-interleaved", "zero-bubble", "zero-bubble-heuristic", "zbv-formatted", "v-half", "v-min",
)  # fmt: skip
V_ALGORITHMS = ("zbv-formatted", "v-half", "v-min")
SPLIT_ALGORITHMS = ("zero-bubble", "zero-bubble-heuristic", *V_ALGORITHMS)  # weight gradients are a step of their own
DEEPEP_SIZES = (2, 4, 8, 16, 24, 32, 64, 128, 144, 160)  # ranks for which Turbo's DeepEP has a tuned configuration

# Switches that Primus reads only where enable_primus_turbo is on: without it they change nothing.
TURBO_SWITCHES = (
    "use_turbo_attention", "use_turbo_gemm", "use_turbo_grouped_gemm", "use_turbo_rms_norm", "use_turbo_norm_te_linear",
    "use_turbo_mega_moe", "moe_use_fused_router_with_aux_score", "enable_turbo_attention_float8",
)  # fmt: skip


@derived("enable_primus_turbo")
def turbo(v: Namespace) -> bool:
    """Whether Primus-Turbo's kernels can be chosen at all."""
    return v["framework"] == "primus-megatron" and bool(v.get("enable_primus_turbo"))


@derived("use_turbo_attention", "enable_primus_turbo")
def turbo_attention(v: Namespace) -> bool:
    return v["turbo"] and bool(v.get("use_turbo_attention"))


@derived("use_turbo_gemm", "enable_primus_turbo")
def turbo_gemm(v: Namespace) -> bool:
    """Whether the dense linear layers are Turbo's."""
    return v["turbo"] and bool(v.get("use_turbo_gemm"))


@derived("use_turbo_grouped_gemm", "moe_grouped_gemm", "enable_primus_turbo")
def turbo_experts(v: Namespace) -> bool:
    """Whether the experts run on Turbo's grouped GEMM."""
    return v["turbo"] and v["is_moe"] and bool(v.get("use_turbo_grouped_gemm") and v.get("moe_grouped_gemm"))


@derived("use_turbo_deepep", "enable_primus_turbo")
def turbo_deepep(v: Namespace) -> bool:
    """Whether tokens are dispatched by Turbo's DeepEP."""
    return v["turbo"] and v["is_moe"] and bool(v.get("use_turbo_deepep"))


@derived("use_turbo_mega_moe", "enable_primus_turbo")
def mega_moe(v: Namespace) -> bool:
    """Whether whole MoE layers are replaced by Turbo's MegaMoE."""
    return v["turbo"] and v["is_moe"] and bool(v.get("use_turbo_mega_moe"))


@derived("enable_primus_turbo")
def turbo_switches_on(v: Namespace) -> list[str]:
    """The switches that are on and wait for enable_primus_turbo."""
    return [key for key in TURBO_SWITCHES if v.get(key)]


@derived("pp_algorithm", "patch_primus_pipeline", "enable_zero_bubble", "patch_zero_bubble")
def split_wgrad(v: Namespace) -> bool:
    """Whether the pipeline schedule runs weight gradients as steps of their own."""
    if v.get("patch_primus_pipeline"):
        return v.get("pp_algorithm") in SPLIT_ALGORITHMS
    return bool(v.get("patch_zero_bubble") and v.get("enable_zero_bubble"))


@derived("zero_bubble_v_schedule", "enable_1f1b_v", "patch_zero_bubble")
def zero_bubble_v(v: Namespace) -> bool:
    """Whether the zero-bubble runtime folds the pipeline into a V."""
    return bool(v.get("patch_zero_bubble") and (v.get("zero_bubble_v_schedule") or v.get("enable_1f1b_v")))


@derived("recompute_layer_ids")
def recomputed_layers(v: Namespace) -> list[int] | None:
    """The listed layers as numbers; None when no list is given. Raises ValueError for what is no number."""
    ids: Any = v.get("recompute_layer_ids")
    if ids is None:
        return None
    if isinstance(ids, str):
        return [int(item) for item in ids.split(",") if item.strip()]
    return [int(item) for item in ids]


@derived("offload_ops", "offload")
def offloaded_gemms(v: Namespace) -> list[str]:
    """GEMMs among the operations whose activations are offloaded."""
    ops = v.get("offload_ops") if v.get("offload") else None
    words = ops.replace(",", " ").split() if isinstance(ops, str) else list(ops or ())
    return [word for word in words if word.endswith("gemm") or word == "grouped_linear"]
