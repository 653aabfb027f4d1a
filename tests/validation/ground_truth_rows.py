"""A row of a ground-truth table -> the recipe it states, or the reason why it cannot be scored.

What a row leaves out is never filled with a default in silence: `Row.missing` names it. What its source settles (a
framework's fixed behaviour, a model's public shape) is listed here with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

# Names of the tables -> names of the model table, or the shape where the table has no such model (public model cards,
# Megatron-LM papers). Dimensions in `other` (hidden=, layers=, ...) win.
MODELS: dict[str, str | dict[str, Any]] = {
    "LLAMA3_70B": "llama3-70b", "LLAMA3-70B": "llama3-70b", "Llama-3-70B": "llama3-70b", "llama3_70B": "llama3-70b",
    "LLAMA3_8B": "llama3-8b", "LLAMA3-8B": "llama3-8b", "Llama3-8B": "llama3-8b", "Llama-3-8B": "llama3-8b",
    "llama3_8B": "llama3-8b", "Llama-3.1-8B": "llama3.1-8b", "Llama-3.1-70B": "llama3.1-70b",
    "LLAMA3.1_405B": "llama3.1-405b", "Llama-3.1-405B": "llama3.1-405b", "Llama-3.2-1B": "llama3.2-1b",
    "llama3.3_70B": "llama3.3-70b", "GPT OSS 120B": "gpt-oss-120b", "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_30B_a3B (tokendrop)": "qwen3-30b-a3b", "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Qwen3_235B_a22B (tokendrop)": "qwen3-235b-a22b", "GPT3-175B": "gpt3-175b", "GPT 175B": "gpt3-175b",
    "LLAMA2-7B": "llama2-7b", "Llama2-7B": "llama2-7b", "llama2_7B": "llama2-7b", "Llama-2 7B": "llama2-7b",
    "LLAMA2-13B": "llama2-13b", "Llama2-13B": "llama2-13b", "Llama-2-13B": "llama2-13b",
    "LLAMA2-70B": "llama2-70b", "Llama2-70B": "llama2-70b", "Llama-2-70B": "llama2-70b", "llama2_70B": "llama2-70b",
    "llama3-70b truncated to 12 layers": "llama3-70b", "DeepSeek-V2-Lite 16B": "deepseek-v2-lite",
    "Nemotron-340B": "nemotron4-340b", "qwen3_14B": "qwen3-14b",
    "Llama-7B": {"like": "llama2-7b", "vocab_size": 32004}, "Llama-65B": {"like": "llama2-7b", "vocab_size": 32004},
    "InternLM-7B": {"like": "llama2-7b", "vocab_size": 103168},  # InternLM-7B model card: Llama shape, vocabulary 103,168
    "Yi-34B-200K": {"like": "llama2-7b", "num_layers": 60, "hidden_size": 7168, "num_attention_heads": 56,
                    "group_query_attention": True, "num_query_groups": 8, "ffn_hidden_size": 20480, "vocab_size": 64000},
}  # fmt: skip
MPT = {  # MPT model cards (llm-foundry scripts/train/yamls/pretrain): d_model, heads, layers
    "MPT-125m": (768, 12, 12), "MPT-350m": (1024, 16, 24), "MPT-760m": (1536, 12, 24), "MPT-1b": (2048, 16, 24),
    "MPT-3b": (2560, 20, 32), "MPT-7b": (4096, 32, 32), "MPT-13b": (5120, 40, 40), "MPT-30b": (7168, 56, 48),
    "MPT-70b": (8192, 64, 80),
}  # fmt: skip
GPT = {  # the GPT of Megatron-LM: learned positions, LayerNorm, GELU 4h, biases, tied head, vocabulary 50,257 -> 51,200
    "vocab_size": 50257, "hidden_dropout": 0.1, "attention_dropout": 0.1, "add_bias_linear": True,
    "position_embedding_type": "learned_absolute", "normalization": "LayerNorm",
}  # fmt: skip
PRE_FLASH = {"transformer_impl": "local", "attention_backend": "local", "masked_softmax_fusion": True}
FSDP = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "ckpt_format": "torch_dist"}
OVERLAP = {"overlap_grad_reduce": True, "overlap_param_gather": True, "use_distributed_optimizer": True}

# Start of the source's name -> what its software does, beyond what a row says. Each with its reason.
SOURCES: dict[str, dict[str, Any]] = {
    # Megatron-LM of 2021/22: no flash attention, no overlap of gradients, DDP with fp32 main gradients
    "Narayanan 2021": {**GPT, **PRE_FLASH},
    "Korthikanti 2022": {**GPT, **PRE_FLASH},
    "BigScience BLOOM": {**GPT, **PRE_FLASH, "hidden_dropout": 0.0, "attention_dropout": 0.0, "use_distributed_optimizer": True,
                         "vocab_size": 250680, "position_embedding_type": "none"},  # alibi; ZeRO-1; BLOOM's vocabulary
    "vTrain": {**GPT, **PRE_FLASH},
    "VocabularyParallelism": {**GPT},
    # TransformerEngine, flash attention, distributed optimizer, overlapped gradients and parameters: the defaults of the
    # published recipes; TP overlap is on in NeMo's and Megatron-Bridge's performance recipes
    "NVIDIA": {**OVERLAP, "tp_comm_overlap": True, "sequence_parallel": True, "cross_entropy_loss_fusion": True,
               "cross_entropy_fusion_impl": "te", "moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True,
               "moe_permute_fusion": True, "apply_rope_fusion": True},
    "Kwai Megatron": {**OVERLAP, "tp_comm_overlap": True, "sequence_parallel": True},
    "SimuMax": {"use_distributed_optimizer": True, "overlap_grad_reduce": False, "overlap_param_gather": False,
                "sequence_parallel": True, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te",
                "apply_rope_fusion": True},
    "HF Ultra-Scale": {"sequence_parallel": True, "overlap_grad_reduce": True, "accumulate_allreduce_grads_in_fp32": True},
    "MosaicML": {**FSDP, "grad_reduce_in_bf16": True},
    "torchtitan": dict(FSDP),
    "fms-fsdp": dict(FSDP),
    "InternEvo": dict(OVERLAP),
    "Primus": {**OVERLAP, "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "apply_rope_fusion": True},
    "Megatron-LM": {**OVERLAP, "sequence_parallel": True},
    "MLPerf": dict(OVERLAP),
    "Sailor": {**GPT, **PRE_FLASH, "vocab_size": 50272},
    "XTuner": {},
}  # fmt: skip
# Sources whose software has no tensor or pipeline parallelism, so that a blank is 1
NO_MODEL_PARALLELISM = ("MosaicML", "torchtitan docs", "fms-fsdp", "Primus MaxText")
NO_PIPELINE = ("InternEvo", "torchtitan asyncTP")
GPUS = {"H100 96GB HBM2e 500W": "h100-96gb", "A100": "a100-80gb", "A100-SXM4-80GB": "a100-80gb", "H800-80GB": "h800"}
PRECISIONS = {
    "fp16": {"fp16": True}, "bf16": {"bf16": True}, "amp_bf16": {"bf16": True}, "te bf16": {"bf16": True},
    "fp8": {"fp8": "hybrid", "fp8_recipe": "delayed"}, "fp8-cs": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, "fp8-mx": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "fp8 (block-scaled / subchannel variant)": {"fp8": "e4m3", "fp8_recipe": "blockwise"},
    "nvfp4": {"fp4": "e2m1"}, "bf16+fp8-hybrid": {"fp8": "hybrid"}, "bf16+fp8-e4m3": {"fp8": "e4m3"},
    "bf16+float8 tensorwise": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "bf16+float8 rowwise": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
}  # fmt: skip
RECOMPUTE: dict[str, dict[str, Any]] = {
    "none": {}, "none (full/block with 0 layers)": {}, "selective": {"recompute_granularity": "selective"},
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    "selective + sequence parallel": {"recompute_granularity": "selective"},
}  # fmt: skip
RECOMPUTE["full(activation checkpointing)"] = RECOMPUTE["full"]
DEGREES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "mbs": "micro_batch_size", "gbs": "global_batch_size", "seq_len": "seq_length",
}  # fmt: skip
# Start of the source's name -> accelerator -> factors on the seconds of a class: kernels of an older generation than the
# database's. FlashAttention-2 is about twice its predecessor (arXiv 2307.08691); llm-foundry's table of mid-2023 ran the
# Triton form of the first. FlashAttention-3 is 1.5 to 2 times the second on Hopper (arXiv 2407.08608); Kwai's is of 2023.
KERNELS: dict[str, dict[str, dict[str, float]]] = {
    "MosaicML": {"A100-80GB": {"attention": 2.0}, "A100-40GB": {"attention": 2.0}},
    "Kwai": {"H800-80GB": {"attention": 1.75}},
}
# Frameworks with states of their own (fp16 gradients, XLA, FSDP1): the ledger is Megatron's, so their memory is not scored
OTHER_MEMORY = ("DeepSpeed", "nanotron", "MaxText", "FSDP", "InternEvo", "torchtune", "torchtitan", "XTuner")
LAYERS = {"LLAMA3.1_405B": 126, "Qwen3_235B_a22B": 94}
SKIPPED = (
    ("LoRA", "LoRA fine-tuning"), ("mamba", "hybrid model"), ("zebra", "hybrid model"), ("hylo", "hybrid model"),
)  # fmt: skip


@dataclass
class Row:
    """One scored row: the request for the linter, what the row does not state, and what it measured."""

    id: str
    source: str
    group: tuple[str, ...]  # (source, model, gpu, gpus): rankings are compared inside it
    raw: dict[str, str]
    request: dict[str, Any] | None = None
    missing: list[str] = field(default_factory=list)
    reason: str | None = None  # why it is not scored
    speed_reason: str | None = None  # why its speed is not scored
    factors: dict[str, float] = field(default_factory=dict)  # see KERNELS

    @property
    def complete(self) -> bool:
        """Every field of design 4.5 stated (recompute: stated or settled)."""
        return self.request is not None and not self.missing and self.reason is None


def _start(source: str, table: Any) -> Any:
    return next((table[key] for key in table if source.startswith(key)), None)


def build(raw: dict[str, str]) -> Row:
    """The row as a batch request (see design 4.3)."""
    source = raw["source"]
    row = Row(raw["id"], source, (source, raw["model"], raw["gpu"], raw["num_gpus"]), raw)
    profile = _start(source, SOURCES)
    if profile is None:
        row.reason = "source without a profile"
        return row
    for word, reason in SKIPPED:
        if word in raw["model"] or word in raw["other"]:
            row.reason = reason
            return row
    if "offload" in raw["other"] and "alpha=0.000" not in raw["other"] and "act_cpu_offload=False" not in raw["other"]:
        row.reason = "offloading"
        return row
    row.factors = (_start(source, KERNELS) or {}).get(raw["gpu"], {})
    args: dict[str, Any] = {"max_position_embeddings": 1 << 20, **profile}
    model = _model(raw, args)
    if model is None and "num_layers" not in args:
        row.reason = f"model {raw['model']!r} has no known shape"
        return row
    if any(name not in args for name in ("num_layers", "hidden_size", "num_attention_heads")) and model is None:
        row.reason = "layers, hidden size or heads are not stated"
        return row
    _degrees(raw, args, row, source)
    if args.get("position_embedding_type") == "learned_absolute" and "seq_length" in args:
        args["max_position_embeddings"] = args["seq_length"]  # the table of positions is a parameter
    _precision(raw, args, row)
    _recompute(raw, args, row)
    _features(raw, args)
    gpus = raw["num_gpus"]
    if not gpus:
        row.missing.append("num_gpus")
    if not (raw["measured_tokens_per_s_per_gpu"] or raw["measured_iter_s"]):
        row.speed_reason = "no measured speed"
    if row.reason is None and gpus:
        row.request = {
            "id": row.id, "framework": "megatron", "version": None, "model": model, "args": args,
            "target": {"gpu": GPUS.get(raw["gpu"], raw["gpu"]), "world_size": int(gpus),
                       "gpus_per_node": int(raw["gpus_per_node"] or 8)},
        }  # fmt: skip
    return row


def _model(raw: dict[str, str], args: dict[str, Any]) -> str | None:
    """Name of the model table; shapes that it lacks go into `args`."""
    name = raw["model"]
    known = MODELS.get(name)
    text = raw["other"].replace("=", "")
    for pattern, key in (
        (r"\b(?:L|layers)(\d+)\b", "num_layers"), (r"\b(?:h|hidden)(\d+)\b", "hidden_size"),
        (r"\bheads(\d+)\b", "num_attention_heads"), (r"\bffn(\d+)\b", "ffn_hidden_size"), (r"\bvocab(\d+)\b", "vocab_size"),
    ):  # fmt: skip
        found = re.search(pattern, text) or (re.search(pattern, name) if key != "vocab_size" else None)
        if found:
            args[key] = int(found.group(1))
    if isinstance(known, dict):
        args.update({key: value for key, value in known.items() if key not in args or key == "vocab_size"})
        if "heads=h/128" in raw["other"]:
            args["num_attention_heads"] = args["hidden_size"] // 128
        return str(args.pop("like"))
    if name in MPT:
        hidden, heads, layers = MPT[name]
        args.update(
            num_layers=layers, hidden_size=hidden, num_attention_heads=heads, vocab_size=50368, add_bias_linear=False,
            normalization="LayerNorm", position_embedding_type="learned_absolute", hidden_dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        return None
    if name.startswith("Llama-arch"):  # the playbook's models: multi-head attention, the 1B with a tied head
        args.update(
            swiglu=True, normalization="RMSNorm", position_embedding_type="rope", add_bias_linear=False,
            untie_embeddings_and_output_weights="8B" in name, hidden_dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        return None
    return known


def _degrees(raw: dict[str, str], args: dict[str, Any], row: Row, source: str) -> None:
    for column, key in DEGREES.items():
        text = raw[column]
        settled = (column in ("tp", "pp") and source.startswith(NO_MODEL_PARALLELISM)) or (
            column == "pp" and source.startswith(NO_PIPELINE)
        )
        if text:
            args[key] = int(text)
        elif settled or column in ("cp", "ep"):
            args[key] = 1
        else:
            row.missing.append(column)
    if raw["etp"]:
        args["expert_tensor_parallel_size"] = int(raw["etp"])
    elif raw["ep"] not in ("", "1"):
        args["expert_tensor_parallel_size"] = 1
    vpp = int(raw["vpp"] or 1)
    if vpp > 1 and args.get("pipeline_model_parallel_size", 1) > 1:
        args["num_virtual_stages_per_pipeline_rank"] = vpp
    layers, chunks = LAYERS.get(raw["model"].partition(" (")[0]), vpp * int(raw["pp"] or 1)
    if source.startswith("NVIDIA") and layers and layers % chunks and (layers + 2) % chunks == 0:
        # the only split that these recipes can have: embedding and loss count as a layer each (405B, Qwen3-235B)
        args.update(account_for_embedding_in_pipeline_split=True, account_for_loss_in_pipeline_split=True)
    tp = args.get("tensor_model_parallel_size", 1)
    if raw["seq_parallel"] == "yes":
        args["sequence_parallel"] = True
    elif raw["seq_parallel"] == "no" or tp == 1:
        args["sequence_parallel"] = False
    if source.startswith("InternEvo") and "gbs" in row.missing and "micro_num" in raw["other"]:
        count = int(re.search(r"micro_num=(\d+)", raw["other"]).group(1))  # type: ignore[union-attr]
        args["global_batch_size"] = count * int(raw["mbs"]) * int(raw["num_gpus"]) // tp
        row.missing.remove("gbs")
    if not raw["gpu"]:
        row.missing.append("gpu")


def _precision(raw: dict[str, str], args: dict[str, Any], row: Row) -> None:
    found = PRECISIONS.get(raw["precision"].lower())
    if not raw["precision"]:
        row.missing.append("precision")
        args["bf16"] = True  # a 16-bit run either way, when it is scored outside the complete rows
    elif found is None:
        row.reason = f"precision {raw['precision']!r} is not modelled"
    else:
        args.update(found)
        args.setdefault("bf16", not args.get("fp16"))
    sharding = raw["dp_shard"].lower()
    if sharding.startswith(("zero1", "fsdp1 ")) or raw["dist_opt"] == "yes":
        args["use_distributed_optimizer"] = True
    elif sharding.startswith("zero0"):
        args["use_distributed_optimizer"] = False
    elif sharding.startswith(("fsdp", "full_shard", "zero3", "hsdp")):
        args.update(FSDP)


def _recompute(raw: dict[str, str], args: dict[str, Any], row: Row) -> None:
    stated = RECOMPUTE.get(raw["recompute"])
    if stated is not None:
        args.update(stated)
    else:
        row.missing.append("recompute" if not raw["recompute"] else f"recompute ({raw['recompute']})")


def _features(raw: dict[str, str], args: dict[str, Any]) -> None:
    """Features that `other` names."""
    text = raw["other"]
    if "LossFusion" in text or "DeepEP" in text or "SyncFree" in text or "launch opt" in text or "MBS14" in text:
        args.update(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te")  # cumulative list of the blog
    if any(word in text for word in ("DeepEP", "SyncFree", "launch opt", "MBS14")):
        args.update(moe_token_dispatcher_type="flex", moe_enable_deepep=True)
    if any(word in text for word in ("SyncFree", "launch opt", "MBS14")):
        args.update(moe_permute_fusion=True)
