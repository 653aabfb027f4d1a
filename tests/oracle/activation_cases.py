"""Recipes whose kept activations are compared with the real modules, one variation at a time."""

from __future__ import annotations

from typing import Any

from tests.oracle.recipes import MODELS

Case = tuple[dict[str, Any], int, str]  # arguments, world size, extra command line


def case(model: str, world: int, extra: str = "", **changes: Any) -> Case:
    args = {**MODELS[model], **changes}
    args["sequence_parallel"] = changes.get("sequence_parallel", args["tensor_model_parallel_size"] > 1)
    layers = args["num_layers"]
    if isinstance(args.get("moe_layer_freq"), list) and "moe_layer_freq" not in changes:
        dense = min(3, layers - 1)
        args["moe_layer_freq"] = [0] * dense + [1] * (layers - dense)
    return args, world, extra


def tp(size: int) -> dict[str, int]:
    return {"tensor_model_parallel_size": size}


def selective(*modules: str) -> dict[str, Any]:
    return {"recompute_granularity": "selective", "recompute_modules": list(modules)}


def full(method: str, number: int) -> dict[str, Any]:
    return {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": number}


def dense_cases() -> dict[str, Case]:
    llama, two = "llama3.1-8b", {"num_layers": 2}
    gelu = {"swiglu": False}
    variants: dict[str, dict[str, Any]] = {
        "tp2": {}, "layernorm": {"normalization": "LayerNorm"}, "bias": {"add_bias_linear": True},
        "bias unfused": {"add_bias_linear": True, "bias_swiglu_fusion": False}, "qkv bias": {"add_qkv_bias": True},
        "gelu bias": {**gelu, "add_bias_linear": True, "bias_gelu_fusion": True},
        "gelu bias unfused": {**gelu, "add_bias_linear": True, "bias_gelu_fusion": False}, "gelu": gelu,
        "squared relu": {**gelu, "squared_relu": True},
        "squared relu bias": {**gelu, "squared_relu": True, "add_bias_linear": True},
        "dropout": {"hidden_dropout": 0.1}, "dropout unfused": {"hidden_dropout": 0.1, "bias_dropout_fusion": False},
        "attention dropout": {"attention_dropout": 0.1}, "qk norm": {"qk_layernorm": True},
        "qk layernorm": {"qk_layernorm": True, "normalization": "LayerNorm"},
        "unfused rope": {"apply_rope_fusion": False},
        "unfused rope mbs 2": {"apply_rope_fusion": False, "micro_batch_size": 2},
        "learned positions": {"apply_rope_fusion": False, "position_embedding_type": "learned_absolute"},
        "learned positions core_attn": {
            "apply_rope_fusion": False, "position_embedding_type": "learned_absolute", **selective("core_attn"),
        },
        "heads core_attn": {"num_query_groups": 32, **selective("core_attn")},
        "heads learned core_attn": {
            "num_query_groups": 32, "apply_rope_fusion": False, "position_embedding_type": "learned_absolute",
            **selective("core_attn"),
        },
        "te cross entropy": {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
        "native cross entropy": {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"},
        "mtp": {"mtp_num_layers": 2}, "output gate": {"attention_output_gate": True},
        "mtp dropout": {"mtp_num_layers": 2, "hidden_dropout": 0.1},
        "output gate core_attn": {"attention_output_gate": True, **selective("core_attn")},
        "mtp te": {"mtp_num_layers": 2, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    }  # fmt: skip
    out = {f"8b {name}": case(llama, 2, **two, **tp(2), **change) for name, change in variants.items()}
    out["8b tp1"] = case(llama, 1, **two)
    out["8b mbs 2"] = case(llama, 1, **two, micro_batch_size=2, seq_length=4096)
    out["8b tied"] = case(llama, 1, **two, untie_embeddings_and_output_weights=False)
    out["8b tp8"] = case(llama, 8, **two, **tp(8))
    out["8b tp8 no sp"] = case(llama, 8, **two, **tp(8), sequence_parallel=False)
    out["8b tp8 unfused"] = case(llama, 8, **two, **tp(8), bias_swiglu_fusion=False)
    for comm in ("p2p", "a2a", "all_gather"):
        out[f"8b cp2 {comm}"] = case(llama, 4, **two, **tp(2), context_parallel_size=2, cp_comm_type=comm)
    for modules in (("core_attn",), ("layernorm",), ("mlp",), ("core_attn", "mlp")):
        out[f"8b selective {' '.join(modules)}"] = case(llama, 8, **two, **tp(8), **selective(*modules))
    for method, number in (("uniform", 1), ("uniform", 2), ("uniform", 4), ("block", 1), ("block", 3)):
        out[f"8b full {method} {number}"] = case(llama, 8, num_layers=4, **tp(8), **full(method, number))
    out["8b full mtp"] = case(llama, 8, num_layers=4, **tp(8), **full("uniform", 1), mtp_num_layers=1)
    out["8b full distributed"] = case(
        llama, 8, num_layers=4, **tp(8), **full("uniform", 1), distribute_saved_activations=True,
        sequence_parallel=False,
    )  # fmt: skip
    return out


def local_cases() -> dict[str, Case]:
    llama = "llama3.1-8b"
    local = {"num_layers": 2, "transformer_impl": "local", "apply_rope_fusion": False, "seq_length": 2048}
    gelu = {"normalization": "LayerNorm", "add_bias_linear": True, "swiglu": False, "bias_gelu_fusion": True}
    out = {
        "local": case(llama, 1, **local), "local tp8": case(llama, 8, **local, **tp(8)),
        "local gelu": case(llama, 2, **local, **tp(2), **gelu),
        "local qk norm": case(llama, 2, **local, **tp(2), qk_layernorm=True),
        "local dropout": case(llama, 2, **local, **tp(2), hidden_dropout=0.1, attention_dropout=0.1),
        "local core": case(llama, 8, **local, **tp(8), **selective("core_attn")),
        "local mlp": case(llama, 8, **local, **tp(8), **selective("mlp")),
        "local mbs 2": case(llama, 2, **local, **tp(2), micro_batch_size=2),
        "local heads": case(llama, 8, **local, **tp(8), num_query_groups=32),
        "local heads qk norm": case(llama, 8, **local, **tp(8), num_query_groups=32, qk_layernorm=True),
        "local heads core": case(llama, 8, **local, **tp(8), num_query_groups=32, **selective("core_attn")),
    }  # fmt: skip
    out["local moe"] = case(
        "mixtral-8x22b", 8, **local, **tp(2), expert_model_parallel_size=4, expert_tensor_parallel_size=1,
        moe_grouped_gemm=False,
    )  # fmt: skip
    return out


def moe_cases() -> dict[str, Case]:
    base: dict[str, Any] = {
        "num_layers": 2, "seq_length": 4096, "tensor_model_parallel_size": 2, "expert_model_parallel_size": 4,
        "expert_tensor_parallel_size": 1,
    }  # fmt: skip
    sigmoid = {"moe_router_score_function": "sigmoid"}
    shared = {"moe_shared_expert_intermediate_size": 4096}
    variants: dict[str, dict[str, Any]] = {
        "base": {}, "etp2": {"expert_tensor_parallel_size": 2}, "ep1": {"expert_model_parallel_size": 1},
        "mbs 2": {"micro_batch_size": 2}, "allgather": {"moe_token_dispatcher_type": "allgather"},
        "allgather etp2": {"moe_token_dispatcher_type": "allgather", "expert_tensor_parallel_size": 2},
        "fp32 router": {"moe_router_dtype": "fp32"}, "fp64 router": {"moe_router_dtype": "fp64"},
        "fused permute": {"moe_permute_fusion": True},
        "fused permute etp2": {"moe_permute_fusion": True, "expert_tensor_parallel_size": 2},
        "fused permute, one expert": {"moe_permute_fusion": True, "expert_model_parallel_size": 8},
        "fused router": {"moe_router_fusion": True},
        "fused router fp32": {"moe_router_fusion": True, "moe_router_dtype": "fp32"},
        "z loss": {"moe_z_loss_coeff": 1e-3}, "no auxiliary loss": {"moe_aux_loss_coeff": 0.0},
        "no balancing": {"moe_router_load_balancing_type": "none"},
        "sequence loss": {"moe_router_load_balancing_type": "seq_aux_loss"},
        "sequence loss mbs 2": {"moe_router_load_balancing_type": "seq_aux_loss", "micro_batch_size": 2},
        "softmax first": {"moe_router_pre_softmax": True}, "sigmoid": sigmoid,
        "sigmoid bias": {**sigmoid, "moe_router_enable_expert_bias": True},
        "sigmoid fp32": {**sigmoid, "moe_router_dtype": "fp32"},
        "sigmoid bias fp32": {**sigmoid, "moe_router_enable_expert_bias": True, "moe_router_dtype": "fp32"},
        "sigmoid bias fp64": {**sigmoid, "moe_router_enable_expert_bias": True, "moe_router_dtype": "fp64"},
        "groups": {"moe_router_num_groups": 4, "moe_router_group_topk": 2, "moe_router_pre_softmax": True},
        "sequential": {"moe_grouped_gemm": False}, "unfused": {"bias_swiglu_fusion": False},
        "gelu": {"swiglu": False}, "squared relu": {"swiglu": False, "squared_relu": True}, "shared": shared,
        "sequential bias": {"moe_grouped_gemm": False, "add_bias_linear": True, "swiglu": False, "bias_gelu_fusion": False},
        "shared gate": {**shared, "moe_shared_expert_gate": True},
        "shared overlap": {**shared, "moe_shared_expert_overlap": True},
        "shared unfused": {**shared, "bias_swiglu_fusion": False}, "latent": {"moe_latent_size": 1024},
        "layernorm": {"normalization": "LayerNorm"}, "fp8 store": {"activation_func_fp8_input_store": True},
        "full": full("uniform", 1), "selective shared": {**shared, **selective("shared_experts")},
        "selective moe shared": {**shared, **selective("moe")},
        "selective layernorm shared": {**shared, **selective("layernorm")},
    }  # fmt: skip
    for modules in (("moe_act",), ("moe",), ("layernorm",), ("core_attn",), ("mlp",), ("layernorm", "moe_act")):
        variants[f"selective {' '.join(modules)}"] = selective(*modules)
    out = {f"mixtral {name}": case("mixtral-8x22b", 16, **{**base, **change}) for name, change in variants.items()}
    out["mixtral tp1 ep8"] = case(
        "mixtral-8x22b", 8, num_layers=2, expert_model_parallel_size=8, expert_tensor_parallel_size=1
    )
    out["qwen tp2 ep8"] = case(
        "qwen3-235b", 16, num_layers=2, **tp(2), expert_model_parallel_size=8, expert_tensor_parallel_size=1
    )
    return out


def latent_cases() -> dict[str, Case]:
    base = {
        "num_layers": 4, "seq_length": 4096, "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1,
    }  # fmt: skip
    fusion = {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}
    variants: dict[str, dict[str, Any]] = {
        "base": {}, "tp2": tp(2), "tp2 cp2": {**tp(2), "context_parallel_size": 2},
        "mbs 2": {"micro_batch_size": 2, "seq_length": 2048}, "fp32 router": {"moe_router_dtype": "fp32"},
        "no qk norm": {"qk_layernorm": False}, "no mtp": {"mtp_num_layers": None}, "te loss": {**tp(2), **fusion},
        "full": full("uniform", 1), "full block": full("block", 2),
    }  # fmt: skip
    all_of_them = ("mla_up_proj", "layernorm", "moe_act", "mlp")
    for modules in (
        ("mla_up_proj",), ("shared_experts",), all_of_them, ("core_attn",), ("moe",), ("layernorm",),
    ):  # fmt: skip
        name = "selective " + " ".join(modules)
        variants[name] = selective(*modules)
        variants["tp2 " + name] = {**selective(*modules), **tp(2)}
    return {f"deepseek {name}": case("deepseek-v3", 16, **{**base, **change}) for name, change in variants.items()}


def fp8_cases() -> dict[str, Case]:
    out: dict[str, Case] = {}
    two = {"num_layers": 2}
    moe = {
        **two, "seq_length": 4096, **tp(2), "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1,
    }  # fmt: skip
    mla = {"num_layers": 4, "seq_length": 4096, "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1}
    for recipe in ("delayed", "tensorwise", "blockwise", "mxfp8"):
        low = {"fp8": "hybrid" if recipe in ("delayed", "tensorwise") else "e4m3", "fp8_recipe": recipe}
        extra = "--sm 100" if recipe == "mxfp8" else ""
        for name, change in {
            "tp1": {}, "tp2": tp(2), "qk norm": {**tp(2), "qk_layernorm": True},
            "unfused": {**tp(2), "bias_swiglu_fusion": False}, "core_attn": {**tp(2), **selective("core_attn")},
            "output gate": {**tp(2), "attention_output_gate": True},
            "gelu": {**tp(2), "swiglu": False, "add_bias_linear": True, "bias_gelu_fusion": True},
        }.items():  # fmt: skip
            out[f"{recipe} 8b {name}"] = case("llama3.1-8b", 2, extra, **two, **change, **low)
        variants: dict[str, dict[str, Any]] = {
            "base": {}, "shared": {"moe_shared_expert_intermediate_size": 4096}, "latent": {"moe_latent_size": 1024},
        }  # fmt: skip
        if recipe != "delayed":
            variants |= {"moe_act": selective("moe_act"), "layernorm": selective("layernorm")}
        for name, change in variants.items():
            out[f"{recipe} mixtral {name}"] = case("mixtral-8x22b", 8, extra, **{**moe, **change}, **low)
        out[f"{recipe} deepseek"] = case("deepseek-v3", 8, extra, **mla, **low)
        out[f"{recipe} deepseek tp2"] = case("deepseek-v3", 16, extra, **mla, **tp(2), **low)
    return out


def all_cases() -> dict[str, Case]:
    return {**dense_cases(), **local_cases(), **moe_cases(), **latent_cases(), **fp8_cases()}
