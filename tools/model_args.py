"""Public architectures as Megatron arguments: from the catalogue's own field names to argparse dest names."""

from __future__ import annotations

import re
from typing import Any

# The catalogue's field -> the argument of the same meaning and value.
SAME = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "ffn": "ffn_hidden_size",
    "heads": "num_attention_heads",
    "head_dim": "kv_channels",
    "norm": "normalization",
    "norm_eps": "layernorm_epsilon",
    "qk_norm": "qk_layernorm",
    "qkv_bias": "add_qkv_bias",
    "linear_bias": "add_bias_linear",
    "rope_pct": "rotary_percent",
    "experts": "num_experts",
    "topk": "moe_router_topk",
    "moe_ffn": "moe_ffn_hidden_size",
    "shared_ffn": "moe_shared_expert_intermediate_size",
    "q_lora": "q_lora_rank",
    "kv_lora": "kv_lora_rank",
    "nope_dim": "qk_head_dim",
    "rope_dim": "qk_pos_emb_head_dim",
    "v_dim": "v_head_dim",
    "vocab": "vocab_size",
    "max_pos": "max_position_embeddings",
}
PROVIDER_FIELDS = (
    "hybrid_override_pattern", "mamba_state_dim", "mamba_head_dim", "mamba_num_groups", "mamba_num_heads",
    "window_size", "window_attn_skip_freq", "softmax_type",
)  # fmt: skip
ATTENTION = ("num_attention_heads", "kv_channels", "num_query_groups", "group_query_attention", "qk_layernorm")
# What these architectures have that no Megatron argument of the pin says; a name in the catalogue's own words.
OWN_KINDS = {
    "deepseek-v4-flash": "compressed and windowed attention of its own kind; sqrtsoftplus router",
    "deepseek-v4-pro": "compressed and windowed attention of its own kind; sqrtsoftplus router",
    "gemma2-27b": "local and global layers in turn, norms behind the blocks",
    "gemma2-2b": "local and global layers in turn, norms behind the blocks",
    "gemma2-9b": "local and global layers in turn, norms behind the blocks",
    "gemma3-1b": "two RoPE bases, local and global layers, norms behind the blocks, QK norm not stated",
    "gemma4-26b": "two head sizes, keys shared in global layers",
    "gemma4-31b": "two head sizes",
    "glm-5": "sparse attention with an indexer",
    "kimi-k3": "linear attention in most layers, latent experts",
    "lfm2-8b-a1b": "short convolutions instead of attention in 18 layers",
    "minimax-m2.5": "QK norm over the whole projection",
    "qwen3-next-80b-a3b": "gated delta net in three of four layers, gated attention output",
    "qwen3.5-35b-a3b": "gated delta net in three of four layers, gated attention output",
}
# Facts that the catalogue leaves open and Megatron's default would get wrong; from the models' public configuration.
_NO_BIAS = {"add_bias_linear": False, "add_qkv_bias": False}
ADDED: dict[str, dict[str, Any]] = {
    "gemma4-31b": {"normalization": "RMSNorm", **_NO_BIAS},
    "grok-1": _NO_BIAS,
    "grok-2": _NO_BIAS,
    "lfm2-8b-a1b": _NO_BIAS,
    "mistral-7b": {"normalization": "RMSNorm", "swiglu": True, "qk_layernorm": False, **_NO_BIAS},
}


def model_args(name: str, model: dict[str, Any], providers: dict[str, Any]) -> dict[str, Any]:
    """The arguments of one model; a fact that the catalogue does not state gives no argument."""
    args: dict[str, Any] = {SAME[field]: model[field] for field in SAME if model.get(field) is not None}
    if "tied" in model:
        args["untie_embeddings_and_output_weights"] = not model["tied"]
    heads, groups = model.get("heads"), model.get("kv_groups")
    if heads and groups:
        args["group_query_attention"] = groups != heads
        if groups != heads:
            args["num_query_groups"] = groups
    if "kv_lora" in model:
        args["multi_latent_attention"] = True
        args["qk_layernorm"] = True  # MLA normalises both compressed projections
    args.update(_activation(model))
    base = model.get("rope_base")
    if "learned positions" in model.get("note", ""):
        args["position_embedding_type"] = "learned_absolute"
    elif base is not None or name.startswith(("grok", "kimi")):
        args["position_embedding_type"] = "rope"
        if base is not None:
            args["rotary_base"] = max(base) if isinstance(base, list) else base
    if model.get("experts"):
        args["moe_layer_freq"] = _layer_freq(model)
        if model.get("router") in ("softmax", "sigmoid"):
            args["moe_router_score_function"] = model["router"]
    if model.get("mtp"):
        args["mtp_num_layers"] = model["mtp"]
    args.update(_provider(model, providers))
    args.update(ADDED.get(name, {}))
    if args.get("hybrid_override_pattern") or "heads" not in model:
        args["position_embedding_type"] = "none"
        args.pop("rotary_base", None)
    if "heads" not in model:  # pure Mamba: the provider's attention sizes mean nothing
        for key in (*ATTENTION, "ffn_hidden_size"):
            args.pop(key, None)
    return dict(sorted(args.items()))


def _activation(model: dict[str, Any]) -> dict[str, Any]:
    act, gated = model.get("act"), model.get("gated")
    if any("GPTOSS" in source for source in model["source"]):
        return {"quick_geglu": True, "swiglu": False}  # as Megatron-Bridge's provider builds it
    if act == "squared_relu":
        return {"squared_relu": True, "swiglu": False}
    if gated is None or (act is None and not gated and any("hf-config" in source for source in model["source"])):
        return {}
    return {"swiglu": gated}  # gated GELU has no argument of its own: the same shapes as SwiGLU


def _layer_freq(model: dict[str, Any]) -> int | list[int]:
    layers, dense, every = model["layers"], model["dense_first"], model["moe_every"]
    if every > 1:  # the last layer of each group is the expert layer
        return [int((index + 1) % every == 0) for index in range(layers)]
    return [0] * dense + [1] * (layers - dense) if dense else 1


def _provider(model: dict[str, Any], providers: dict[str, Any]) -> dict[str, Any]:
    for source in model["source"]:
        fields = providers.get(source.removeprefix("Megatron-Bridge "))
        if fields is not None and ("GPTOSS" in source or "Mamba" in source or "Nemotron" in source):
            found = {key: fields[key] for key in PROVIDER_FIELDS if fields.get(key) is not None}
            if "<'M'" in str(found.get("hybrid_override_pattern")):  # the catalogue keeps the expression
                found["hybrid_override_pattern"] = "M" * model["layers"]
            return found
    return {}


def _words(value: Any) -> Any:
    """Texts of the catalogue without the mark of how they were looked up."""
    if isinstance(value, str):
        return re.sub(r"\s*\(\)", "", re.sub(r"\b[a-z]+_string\b(?:, )?", "", value)).strip()
    if isinstance(value, list):
        return [_words(item) for item in value]
    if isinstance(value, dict):
        return {key: _words(item) for key, item in value.items() if key != "off_pct"}
    return value


def model_table(catalogue: dict[str, Any], providers: dict[str, Any]) -> dict[str, Any]:
    models = {}
    for name, model in catalogue["models"].items():
        entry: dict[str, Any] = {"args": model_args(name, model, providers)}
        for key in ("published", "counted", "counted_active", "source", "note"):
            if key in model:
                entry[key] = _words(model[key])
        unlike = OWN_KINDS.get(name)
        if name.startswith("mamba"):
            unlike = "Mamba layers only"
        elif unlike is None and entry["args"].get("hybrid_override_pattern"):
            unlike = "Mamba, attention and MLP layers in a pattern"
        if unlike is not None:
            entry["unlike"] = unlike
        models[name] = entry
    aliases = {preset: [facts["public"]] for preset, facts in catalogue["presets"].items() if facts.get("public")}
    for flavor, facts in catalogue["torchtitan_flavors"].items():
        aliases[flavor] = [facts["public"]]
    return {
        "what": "public models as Megatron arguments; `unlike`: what these arguments do not say of the model; counts "
        "leave MTP layers out",
        "sources": catalogue["commits"],
        "models": models,
        "aliases": {alias: target[0] for alias, target in aliases.items()},
    }
