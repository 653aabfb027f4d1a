"""What a source of published runs settles beyond its rows: shapes of models, what its software does, its machines.

Every entry is a fact about a framework, a public model card or a cluster, with the reason beside it; none is a speed.
"""

from __future__ import annotations

from typing import Any

# Names of the tables -> names of the model table, or the shape where the table has no such model (public model cards,
# papers). Dimensions in `other` (hidden=, layers=, ...) win.
MODELS: dict[str, str | dict[str, Any]] = {
    "LLAMA3_70B": "llama3-70b", "LLAMA3-70B": "llama3-70b", "Llama-3-70B": "llama3-70b", "llama3_70B": "llama3-70b",
    "LLAMA3_8B": "llama3-8b", "LLAMA3-8B": "llama3-8b", "Llama3-8B": "llama3-8b", "Llama-3-8B": "llama3-8b",
    "llama3_8B": "llama3-8b", "Llama-3.1-8B": "llama3.1-8b", "Llama-3.1-70B": "llama3.1-70b",
    "LLAMA3.1_405B": "llama3.1-405b", "Llama-3.1-405B": "llama3.1-405b", "Llama-3.2-1B": "llama3.2-1b",
    "llama3.3_70B": "llama3.3-70b",
    "GPT OSS 120B": {"like": "gpt-oss-120b", "window_attn_skip_freq": 2},  # every other layer has the window
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_30B_a3B (tokendrop)": "qwen3-30b-a3b", "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Qwen3_235B_a22B (tokendrop)": "qwen3-235b-a22b", "GPT3-175B": "gpt3-175b", "GPT 175B": "gpt3-175b",
    "LLAMA2-7B": "llama2-7b", "Llama2-7B": "llama2-7b", "llama2_7B": "llama2-7b", "Llama-2 7B": "llama2-7b",
    "LLAMA2-13B": "llama2-13b", "Llama2-13B": "llama2-13b", "Llama-2-13B": "llama2-13b",
    "LLAMA2-70B": "llama2-70b", "Llama2-70B": "llama2-70b", "Llama-2-70B": "llama2-70b", "llama2_70B": "llama2-70b",
    "llama3-70b truncated to 12 layers": "llama3-70b", "DeepSeek-V2-Lite 16B": "deepseek-v2-lite",
    "Nemotron-340B": "nemotron4-340b", "qwen3_14B": "qwen3-14b", "DeepSeek V3": "deepseek-v3", "DeepSeek-V3": "deepseek-v3",
    "Mixtral-8x7B": "mixtral-8x7b", "Mixtral 8x7B": "mixtral-8x7b", "Mixtral 8x22B": "mixtral-8x22b",
    "Mixtral-8x22B": "mixtral-8x22b", "Llama-3.3-70B": "llama3.3-70b", "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Llama-7B": {"like": "llama2-7b", "vocab_size": 32004}, "Llama-65B": {"like": "llama2-7b", "vocab_size": 32004},
    "InternLM-7B": {"like": "llama2-7b", "vocab_size": 103168},  # InternLM-7B model card: Llama shape, vocabulary 103,168
    "Yi-34B-200K": {"like": "llama2-7b", "num_layers": 60, "hidden_size": 7168, "num_attention_heads": 56,
                    "group_query_attention": True, "num_query_groups": 8, "ffn_hidden_size": 20480, "vocab_size": 64000},
    "Llama2-34B": {"like": "llama2-7b", "num_layers": 48, "hidden_size": 8192, "num_attention_heads": 64,  # Code Llama 34B
                   "group_query_attention": True, "num_query_groups": 8, "ffn_hidden_size": 22016, "vocab_size": 32000},
    # NeMo launcher, conf/training/gpt3 and nemotron: layers, hidden size, heads; 4h; vocabularies of 51,200 and 256,000
    "GPT3-5B": {"like": "gpt3-175b", "num_layers": 24, "hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 16384},
    "GPT3-20B": {"like": "gpt3-175b", "num_layers": 44, "hidden_size": 6144, "num_attention_heads": 48, "ffn_hidden_size": 24576},
    "Nemotron-8B": {"like": "nemotron4-340b", "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                    "ffn_hidden_size": 16384, "group_query_attention": False, "num_query_groups": 32, "kv_channels": 128},
    "Nemotron-22B": {"like": "nemotron4-340b", "num_layers": 40, "hidden_size": 6144, "num_attention_heads": 48,
                     "ffn_hidden_size": 24576, "group_query_attention": False, "num_query_groups": 48, "kv_channels": 128},
    # Paxml's GPT configurations (GPT-3 paper, table 2.1; 5B as NeMo's)
    "GPT 126M": {"like": "gpt3-175b", "num_layers": 12, "hidden_size": 768, "num_attention_heads": 12,
                 "ffn_hidden_size": 3072, "num_query_groups": 12, "kv_channels": 64},
    "GPT 5B": {"like": "gpt3-175b", "num_layers": 24, "hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 16384},
}  # fmt: skip
MPT = {  # MPT model cards (llm-foundry scripts/train/yamls/pretrain): d_model, heads, layers
    "MPT-125m": (768, 12, 12), "MPT-350m": (1024, 16, 24), "MPT-760m": (1536, 12, 24), "MPT-1b": (2048, 16, 24),
    "MPT-3b": (2560, 20, 32), "MPT-7b": (4096, 32, 32), "MPT-13b": (5120, 40, 40), "MPT-30b": (7168, 56, 48),
    "MPT-70b": (8192, 64, 80),
}  # fmt: skip
LAYERS = {"LLAMA3.1_405B": 126, "Qwen3_235B_a22B": 94}
GPT = {  # the GPT of Megatron-LM: learned positions, LayerNorm, GELU 4h, biases, tied head, vocabulary 50,257 -> 51,200
    "vocab_size": 50257, "hidden_dropout": 0.1, "attention_dropout": 0.1, "add_bias_linear": True,
    "position_embedding_type": "learned_absolute", "normalization": "LayerNorm",
}  # fmt: skip
PRE_FLASH = {"transformer_impl": "local", "attention_backend": "local", "masked_softmax_fusion": True}
FSDP = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "ckpt_format": "torch_dist"}
OVERLAP = {"overlap_grad_reduce": True, "overlap_param_gather": True, "use_distributed_optimizer": True}
APART = {"gradient_accumulation_fusion": False}  # no kernel that accumulates into the gradient buffer
EAGER = {"bias_swiglu_fusion": False, "disable_jit_fuser": True}  # activation and product are kernels of their own

# Start of the source's name -> what its software does, beyond what a row says. Each with its reason.
SOURCES: dict[str, dict[str, Any]] = {
    # Megatron-LM of 2021/22: no flash attention, no overlap of gradients, DDP with fp32 main gradients
    "Narayanan 2021": {**GPT, **PRE_FLASH, **APART},
    "Korthikanti 2022": {**GPT, **PRE_FLASH},
    "BigScience BLOOM": {**GPT, **PRE_FLASH, **APART, "hidden_dropout": 0.0, "attention_dropout": 0.0,
                         "use_distributed_optimizer": True, "vocab_size": 250680,
                         "position_embedding_type": "none"},  # alibi; ZeRO-1; BLOOM's vocabulary
    # vTrain: gradients of two bytes (src/predictor.py, `ParamInfo.elem_size`; src/model in float16)
    "vTrain": {**GPT, **PRE_FLASH, **APART, "grad_reduce_in_bf16": True},
    "VocabularyParallelism": {**GPT},
    # TransformerEngine, flash attention, distributed optimizer, overlapped gradients and parameters: the defaults of the
    # published recipes; TP overlap is on in NeMo's and Megatron-Bridge's performance recipes
    "NVIDIA Ne": {**OVERLAP, "tp_comm_overlap": True, "sequence_parallel": True, "cross_entropy_loss_fusion": True,
                  "cross_entropy_fusion_impl": "te", "apply_rope_fusion": True, "grad_reduce_in_bf16": True},
    "NVIDIA Me": {**OVERLAP, "tp_comm_overlap": True, "sequence_parallel": True, "cross_entropy_loss_fusion": True,
                  "cross_entropy_fusion_impl": "te", "moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True,
                  "moe_permute_fusion": True, "moe_router_fusion": True, "apply_rope_fusion": True,
                  "grad_reduce_in_bf16": True},  # grad_reduce_in_fp32 = False in scripts/performance
    "NVIDIA JAX": {**OVERLAP, "grad_reduce_in_bf16": True, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    "Kwai Megatron": {**OVERLAP, "tp_comm_overlap": True, "sequence_parallel": True},
    "SimuMax": {"use_distributed_optimizer": True, "overlap_grad_reduce": False, "overlap_param_gather": False,
                "sequence_parallel": True, "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te",
                "apply_rope_fusion": True},
    # nanotron: gradients in torch's DistributedDataParallel with its buckets of 25 MB, 12.5 M values of two bytes
    "HF Ultra-Scale": {**APART, "ddp_bucket_size": 12_500_000, "sequence_parallel": True, "overlap_grad_reduce": True,
                       "accumulate_allreduce_grads_in_fp32": True, "apply_rope_fusion": True, **EAGER},
    "MosaicML": {**FSDP, "grad_reduce_in_bf16": True},
    # eager in 2024, compiled (rotation and activation are fused) in the asyncTP runs
    "torchtitan docs": {**FSDP, "sequence_parallel": True, **EAGER},
    "torchtitan": {**FSDP, "sequence_parallel": True, "apply_rope_fusion": True},
    "fms-fsdp": {**FSDP, "grad_reduce_in_bf16": True},
    "InternEvo": {**OVERLAP, **APART, "grad_reduce_in_bf16": True, "cross_entropy_loss_fusion": True,  # flash-attn's kernels
                  "cross_entropy_fusion_impl": "te", "apply_rope_fusion": True},
    "Primus Max": {**FSDP, "grad_reduce_in_bf16": True, "apply_rope_fusion": True},
    "Primus": {**OVERLAP, "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "apply_rope_fusion": True},
    "Megatron-LM": {**OVERLAP, "sequence_parallel": True},
    "MLPerf": {**OVERLAP},
    "Sailor": {**GPT, **PRE_FLASH, **APART, "vocab_size": 50272},
    "XTuner": {},
}  # fmt: skip
# Start of the framework's name -> the source whose software stands for it, for sources that are not listed themselves
FRAMEWORKS = {
    "Megatron-Bridge": "NVIDIA Megatron-Bridge", "NeMo": "NVIDIA NeMo", "Megatron-LM": "Megatron-LM", "Megatron-Core": "Megatron-LM",
    "Primus MaxText": "Primus MaxText", "Primus": "Primus", "torchtitan": "torchtitan", "nanotron": "HF Ultra-Scale",
    "llm-foundry": "MosaicML", "InternEvo": "InternEvo", "Paxml": "NVIDIA JAX", "MaxText": "NVIDIA JAX", "fms-fsdp": "fms-fsdp",
}  # fmt: skip
# Sources whose software has no tensor or pipeline parallelism, so that a blank is 1
NO_MODEL_PARALLELISM = ("MosaicML", "torchtitan docs", "fms-fsdp", "Primus MaxText")
NO_PIPELINE = ("InternEvo", "torchtitan asyncTP")
# Start of the source's name -> what it does otherwise than Megatron-LM with the same arguments, by part of the run. torchtitan
# reduces in fp32 (`mixed_precision_reduce`), wraps blocks in torch's checkpoints without re-entry, which end early, and keeps
# the inputs that tensor parallelism gathers (as `lower/torchtitan/timed.py` says of recipes); in 2024 its RMSNorm was a chain of operations (`norm_type = "rmsnorm"` in train_configs/llama3_8b.toml, torchtitan/models/norms.py).
TITAN: dict[str, dict[str, Any]] = {
    "precision": {"grads_dtype": "fp32"}, "recompute": {"early_stop": True}, "kernels": {"gathers_again": False},
}  # fmt: skip
REPLACED: dict[str, dict[str, dict[str, Any]]] = {
    "torchtitan docs": {**TITAN, "kernels": {"gathers_again": False, "norm_fusion": False}},
    "torchtitan": TITAN,
}
# Sources that shard weights without torch's FSDP2: llm-foundry and fms-fsdp wrap in FSDP1, Megatron-Bridge in Megatron-FSDP,
# whose buffers hold the parameters, XLA gathers a weight as a whole.
FLAT_PARAMETERS = ("MosaicML", "fms-fsdp", "NVIDIA", "Primus Max")
BY_OPERATION = {"granularity": "selective", "modules": ("torchtitan_op",)}
# Sources without gradient accumulation: the global batch is the micro-batch of every data-parallel rank. torchtitan had
# none before July 2025; fms-fsdp has none.
ONE_MICRO_BATCH = ("torchtitan", "fms-fsdp")
# torchtitan's llama3_8b.toml and llama3_70b.toml of June 2025: seq_len 8192
SEQUENCES = {"torchtitan asyncTP": 8192}
# Start of the source's name -> accelerator -> the attention library that it ran, where it is older than the database's.
# llm-foundry pinned flash-attn 1.0.3 in mid-2023 (setup.py), and 2 by the time of its H100 runs; Kwai's is of 2023. nanotron
# calls flash_attn_varlen_func (2.5 in its benchmark's requirements); torchtitan and fms-fsdp call torch's
# scaled_dot_product_attention, whose flash kernel is FlashAttention-2. InternEvo's installation and images name v1.0.5.
FLASH_ATTENTION: dict[str, dict[str, str]] = {
    "MosaicML": {"A100-80GB": "1.0.3", "A100-40GB": "1.0.3", "H100-80GB": "2.3", "H100": "2.3"},
    "Kwai": {"H800-80GB": "2.3"},
    "InternEvo": {"A100-80GB": "1.0.5"},
    "HF Ultra-Scale": {"H100-80GB": "2.5"},
    "torchtitan": {"H100 96GB HBM2e 500W": "2.5"},
    "fms-fsdp": {"H100": "2.3"},
}
# Start of the source's name -> (network cards of a node, bytes/s of each), where the source's machine is another than the
# usual one: InternEvo states 4 x 100 Gb/s RoCE; Jean Zay (BLOOM's model card) has 4 Omni-Path links of 100 Gb/s a node.
NETWORKS = {"InternEvo": (4, 12.5e9), "BigScience": (4, 12.5e9)}
# Sources whose software issues tensor-parallel collectives in line, not beside products: Megatron-LM before asynchronous
# all-reduces (November 2021) and the DeepSpeed forks of that time; scored without CUDA_DEVICE_MAX_CONNECTIONS
IN_LINE = ("Narayanan 2021", "BigScience", "vTrain", "Sailor")
# BLOOM's launch scripts export CUDA_LAUNCH_BLOCKING=1 ("do not remove or the training will hang", tr11-176B-ml.slurm)
ENVIRONMENTS: dict[str, dict[str, str]] = {"BigScience": {"CUDA_LAUNCH_BLOCKING": "1"}}
GPUS = {"H100 96GB HBM2e 500W": "h100-96gb", "A100": "a100-80gb", "A100-SXM4-80GB": "a100-80gb", "H800-80GB": "h800"}
PRECISIONS = {
    "fp16": {"fp16": True}, "bf16": {"bf16": True}, "amp_bf16": {"bf16": True}, "te bf16": {"bf16": True},
    "fp8": {"fp8": "hybrid", "fp8_recipe": "delayed"}, "amp_fp8": {"fp8": "hybrid", "fp8_recipe": "delayed"}, "fp8-cs": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, "fp8-mx": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "fp8 (block-scaled / subchannel variant)": {"fp8": "e4m3", "fp8_recipe": "blockwise"},
    "nvfp4": {"fp4": "e2m1"}, "bf16+fp8-hybrid": {"fp8": "hybrid"}, "bf16+fp8-e4m3": {"fp8": "e4m3"},
    "bf16+float8 tensorwise": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
}  # fmt: skip
RECOMPUTE: dict[str, dict[str, Any]] = {
    "none": {}, "none (full/block with 0 layers)": {}, "selective": {"recompute_granularity": "selective"},
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    "selective + sequence parallel": {"recompute_granularity": "selective"},
    # MaxText's policy keeps every product and attention's output; norms and activations are made again
    "minimal_flash": {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]},
}  # fmt: skip
EVERY_OTHER_LAYER = "selective layer"  # torchtitan
OPERATIONS = ("selective op", "selective(per-op SAC)")
DEPTHS = {
    "Llama-2-13B": 40,
    "Llama-2-70B": 80,
    "Llama-3-8B": 32,
    "Llama-3-70B": 80,
    "Llama-3.1-8B": 32,
    "Llama-3.1-70B": 80,
}
RECOMPUTE["full(activation checkpointing)"] = RECOMPUTE["full"]
SKIPPED = (
    ("LoRA", "LoRA fine-tuning"), ("mamba", "hybrid model"), ("zebra", "hybrid model"), ("hylo", "hybrid model"),
)  # fmt: skip
