"""What Megatron-Bridge's performance recipes set beyond the columns of its summary tables.

Read from scripts/performance/configs (NVIDIA-NeMo/Megatron-Bridge, commits 0fa501a for 25.09 and 25.11, 01b2977, 00919dc,
0013c9a and 07eea52 for 26.02): recomputation, dispatcher, graphs, overlap. No speed was read.
"""

from __future__ import annotations

from typing import Any

SOURCE = "NVIDIA Megatron-Bridge performance summary"
SELECTIVE = {"recompute_granularity": "selective", "recompute_modules": ["layernorm", "moe_act"]}
FIVE_LAYERS = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 5}
HYBRID_EP = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}
OVERLAPPED = {"overlap_moe_expert_parallel_comm": True}
WHOLE_GRAPH = {"cuda_graph_impl": "local"}
PARTIAL_GRAPH = {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["attn", "moe_router", "moe_preprocess"]}
CAPACITY = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}


def settle(raw: dict[str, str], args: dict[str, Any]) -> bool:
    """Add what the recipe of a row sets; True: recomputation is settled (none, unless it is added here)."""
    if not raw["source"].startswith(SOURCE) or raw["recompute"]:
        return False
    model, gpu, precision = raw["model"], raw["gpu"], raw["precision"].upper()
    newest = raw["source"].startswith(f"{SOURCE} 26")
    if precision == "NVFP4":
        args["tp_comm_overlap"] = False
    if raw["dp_shard"].startswith("FSDP"):
        args["gradient_accumulation_fusion"] = False
    if model == "LLAMA3_8B":
        args.update(FIVE_LAYERS if gpu == "H100" and "FP8" in precision else {} if gpu == "H100" else WHOLE_GRAPH)
    elif model.startswith("GPT OSS"):
        args.update(PARTIAL_GRAPH if gpu in ("GB300", "B300") else SELECTIVE)
        if newest and gpu == "B300":
            args.update(HYBRID_EP)
        if newest and gpu == "GB200":
            args.update(OVERLAPPED)
    elif "tokendrop" in model:
        args.update(CAPACITY)
        if gpu != "H100":
            args.update(WHOLE_GRAPH)
    elif model.startswith("Qwen3_30B") and newest and gpu != "H100":
        args.update({**HYBRID_EP, **PARTIAL_GRAPH})
    elif model.startswith("Qwen3_235B") and newest:
        args.update(OVERLAPPED if gpu == "H100" else {**HYBRID_EP, **PARTIAL_GRAPH} if gpu.startswith("GB") else {})
    return True
