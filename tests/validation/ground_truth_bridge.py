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


# Micro-batches of the recipes that use HybridEP and partial graphs: a row with another one ran an earlier recipe
HYBRID_MICRO_BATCHES = {"GB300": "8", "B300": "8", "GB200": "4", "B200": "4"}
# Virtual stages of recipes whose rows leave the column blank
VIRTUAL = {("LLAMA3_70B", "4"): 5, ("LLAMA3_70B", "8"): 5, ("Qwen3_235B_a22B", "4"): 12}


def settle(raw: dict[str, str], args: dict[str, Any]) -> bool:
    """Add what the recipe of a row sets; True: recomputation is settled (none, unless it is added here)."""
    if not raw["source"].startswith(SOURCE) or raw["recompute"]:
        return False
    model, gpu, precision = raw["model"], raw["gpu"], raw["precision"].upper()
    newest = raw["source"].startswith(f"{SOURCE} 26")
    if precision == "FP8":
        args["fp8_recipe"] = "tensorwise"  # current scaling is what the summary calls FP8
    if precision == "NVFP4":
        args["tp_comm_overlap"] = False
    if raw["dp_shard"].startswith("FSDP"):
        args["gradient_accumulation_fusion"] = False
    if not raw["vpp"] and (model, raw["pp"]) in VIRTUAL:
        args["num_virtual_stages_per_pipeline_rank"] = VIRTUAL[model, raw["pp"]]
    if model == "LLAMA3_8B":
        args.update(FIVE_LAYERS if gpu == "H100" and "FP8" in precision else {} if gpu == "H100" else WHOLE_GRAPH)
    elif model.startswith("GPT OSS"):
        args.update(PARTIAL_GRAPH if gpu in ("GB300", "B300") else SELECTIVE)
        if newest and gpu == "B300" and raw["ep"] == "8":
            args.update(HYBRID_EP)
    elif "tokendrop" in model:
        args.update(CAPACITY)
        if gpu != "H100":
            args.update(WHOLE_GRAPH)
    elif model.startswith("Qwen3_30B") and newest and raw["mbs"] == HYBRID_MICRO_BATCHES.get(gpu):
        args.update({**HYBRID_EP, **PARTIAL_GRAPH})
    elif model == "Qwen3_235B_a22B" and (newest or gpu == "H100"):  # H100: the degrees of the first recipe since 25.11
        args.update(OVERLAPPED if gpu == "H100" else {**HYBRID_EP, **PARTIAL_GRAPH} if gpu.startswith("GB") else {})
    return True
