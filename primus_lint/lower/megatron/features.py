"""Derived symbols of numerics, CUDA graphs, optimizer sharding and checkpoints (see `namespace`).

The names that two Megatron versions spell differently (`cuda_graph_scope` and `cuda_graph_modules`, `fp4_param` and
`fp4_param_gather`, `enable_gloo_process_groups` and `use_gloo_process_groups`) meet here in one symbol each.
"""

from __future__ import annotations

from typing import Any

from primus_lint.formula import where
from primus_lint.lower.megatron.namespace import Namespace, derived

_GRAPH_MODULES = ("cuda_graph_scope", "cuda_graph_modules")
_GRAPHS = ("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
EMERGING_OPTIMIZERS = ("muon", "dist_muon", "adaptive_muon", "lion", "soap")

# The first TransformerEngine (major*1000 + minor) that knows a recipe: megatron/core/fp8_utils.py.
_RECIPE_SINCE_TE = {"delayed": 0, "mxfp8": 2001, "tensorwise": 2002, "blockwise": 2003, "custom": 2001}


@derived(*_GRAPH_MODULES)
def graph_modules_set(v: Namespace) -> list[Any]:
    """Captured modules as the recipe names them, whatever the implementation."""
    value = v.get("cuda_graph_scope") or v.get("cuda_graph_modules")
    if value is None or value == []:
        return []
    return value.replace(",", " ").split() if isinstance(value, str) else list(value)


@derived(*_GRAPHS, *_GRAPH_MODULES)
def graph_impl(v: Namespace) -> str:
    """How CUDA graphs are captured: none, local, transformer_engine or full_iteration.

    The newer Megatron turns the module full_iteration, with a local graph or none, into the implementation full_iteration.
    """
    value = v["cuda_graph_impl"] or "none"
    if v["version"] == "d98e8a64" and value in ("none", "local") and "full_iteration" in v["graph_modules_set"]:
        return "full_iteration"
    return str(value)


@derived(*_GRAPH_MODULES, *_GRAPHS)
def graph_modules(v: Namespace) -> list[Any]:
    """Parts of a layer that are captured; empty: the whole layer. The old name "full" means empty.

    The local implementation captures moe_router and moe_preprocess together.
    """
    modules: list[Any] = v["graph_modules_set"]
    if modules == ["full"] or v["graph_impl"] == "none":
        return []
    if v["graph_impl"] == "full_iteration" and v["cuda_graph_impl"] != "full_iteration":
        return [item for item in modules if item != "full_iteration"]
    if v["graph_impl"] == "local":
        pair = ("moe_router", "moe_preprocess")
        if any(item in modules for item in pair):
            modules = modules + [item for item in pair if item not in modules]
    return modules


@derived(*_GRAPH_MODULES, "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap")
def graphed_wgrad(v: Namespace) -> bool:
    """Whether linear layers whose weight gradient can be delayed lie in a captured module."""
    shared = v.get("moe_shared_expert_intermediate_size") is not None and not v.get("moe_shared_expert_overlap")
    return "attn" in v["graph_modules_set"] or ("moe_router" in v["graph_modules_set"] and shared)


@derived(*_GRAPHS, *_GRAPH_MODULES)
def graph_full_iteration(v: Namespace) -> bool:
    """Whether one graph holds the whole iteration."""
    return v["graph_impl"] == "full_iteration" or (v["graph_impl"] != "none" and "full_iteration" in v["graph_modules"])


@derived(*_GRAPHS, *_GRAPH_MODULES)
def graph_whole_layer(v: Namespace) -> bool:
    """Whether whole layers (or more) are captured, so that everything inside a layer is."""
    return v["graph_impl"] != "none" and (not v["graph_modules"] or v["graph_full_iteration"])


@derived("moe_layer_freq", "num_experts")
def moe_every_layer(v: Namespace) -> bool:
    """Whether the pattern leaves no dense layer (an int pattern of 1, or a list without a 0)."""
    pattern = v["moe_layer_freq"]
    if isinstance(pattern, str):
        from primus_lint.lower.megatron.namespace import evaluate_pattern

        pattern = evaluate_pattern(pattern)
    return pattern == 1 or (isinstance(pattern, list) and 0 not in pattern)


@derived("fp4_param", "fp4_param_gather")
def fp4_params(v: Namespace) -> bool:
    """Whether parameters are kept and gathered in FP4."""
    return bool(v.get("fp4_param") or v.get("fp4_param_gather"))


@derived("fp8_recipe")
def fp8_recipe_te(v: Namespace) -> int:
    """The first TransformerEngine (major*1000 + minor) that has the FP8 recipe."""
    return _RECIPE_SINCE_TE[v["fp8_recipe"] or "delayed"]


@derived("fp8", "fp8_recipe", "fp4")
def precision_arch(v: Namespace) -> int:
    """The lowest NVIDIA compute capability (major) that runs the low-precision format; 0 without one."""
    if v.get("fp4") or (v.get("fp8") and v["fp8_recipe"] == "mxfp8"):
        return 10
    return 9 if v.get("fp8") else 0


@derived("fp8_recipe", "fp8", "sequence_parallel")
def fp8_multiple(v: Namespace) -> Any:
    """What tokens and widths of an FP8 GEMM input must be a multiple of.

    8 tokens for tensor scaling, 32 for MXFP8; 128 when block-scaled input is gathered over tensor ranks.
    Source: TransformerEngine 2.11, `assert_dim_for_fp8_exec`, `assert_dim_for_all_gather` and the quantizers.
    """
    if v["fp8_recipe"] == "mxfp8":
        return 32
    return where(v["sequence_parallel"], 128, 8) if v["fp8_recipe"] == "blockwise" else 8


@derived("transformer_impl", "hybrid_layer_pattern")
def te_layers(v: Namespace) -> bool:
    """Whether all linear layers are TransformerEngine's (not local, no Mamba layers, no Primus-Turbo GEMM)."""
    hybrid = v.get("hybrid_layer_pattern") or v.get("hybrid_override_pattern") or v.get("is_hybrid_model")
    turbo = v.get("enable_primus_turbo") and v.get("use_turbo_gemm")
    return v["transformer_impl"] == "transformer_engine" and not hybrid and not turbo


@derived("swiglu", "squared_relu", "quick_geglu")
def activation(v: Namespace) -> str:
    """The activation of the MLP by the name of its function: silu, squared_relu, quick_gelu or gelu."""
    if v.get("squared_relu"):
        return "squared_relu"
    if v.get("quick_geglu"):
        return "quick_gelu"
    return "silu" if v["swiglu"] else "gelu"


@derived("swiglu", "bias_swiglu_fusion", "bias_gelu_fusion")
def activation_fusion(v: Namespace) -> bool:
    """Whether bias and activation are one kernel."""
    return bool(v["bias_swiglu_fusion"] if v["swiglu"] else v["bias_gelu_fusion"])


@derived("use_gloo_process_groups", "enable_gloo_process_groups")
def gloo(v: Namespace) -> bool:
    """Whether CPU (Gloo) process groups are made."""
    for key in ("use_gloo_process_groups", "enable_gloo_process_groups"):
        if v.get(key) is not None:
            return bool(v[key])
    return True


@derived("ckpt_format")
def distributed_checkpoint(v: Namespace) -> bool:
    """Whether checkpoints are written by the distributed formats (anything but torch)."""
    return bool(v["ckpt_format"] != "torch")


@derived("optimizer")
def emerging_optimizer(v: Namespace) -> bool:
    """Whether the optimizer is one of the emerging ones (Muon and its relatives, Lion, SOAP)."""
    return v["optimizer"] in EMERGING_OPTIMIZERS


@derived("optimizer", "use_distributed_optimizer")
def layer_wise_optimizer(v: Namespace) -> bool:
    """Whether an emerging optimizer is sharded by whole layers (d98e8a64 only)."""
    return bool(v.get("use_layer_wise_distributed_optimizer"))


@derived("cpu_offloading_num_layers", "cpu_offloading")
def layer_offload(v: Namespace) -> bool:
    """Whether activations of whole layers are offloaded to the host."""
    return bool(v.get("cpu_offloading") or (v.get("cpu_offloading_num_layers") or 0) > 0)


@derived("fp8", "fp8_recipe")
def mxfp8(v: Namespace) -> bool:
    return bool(v.get("fp8")) and v["fp8_recipe"] == "mxfp8"


@derived("recompute_modules", "recompute_granularity", "moe_layer_recompute")
def recomputed(v: Namespace) -> list[Any]:
    """Modules that selective recomputation runs again; [] without it (or with full recomputation)."""
    if v["recompute_granularity"] not in ("selective", None):
        return []
    listed = v.get("recompute_modules")
    modules = ["core_attn"] if listed is None else list(listed)
    if v.get("moe_layer_recompute"):
        return modules if "moe" in modules else [*modules, "moe"]
    return modules if v["recompute_granularity"] == "selective" else []
