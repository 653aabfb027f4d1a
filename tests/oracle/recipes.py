"""One recipe, two tongues: Megatron arguments for us, a command line of ../shared/oracle for the real thing."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
    "position_embedding_type": "rope", "bf16": True, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    "micro_batch_size": 1, "global_batch_size": 1024, "use_distributed_optimizer": True, "overlap_grad_reduce": True,
    "accumulate_allreduce_grads_in_fp32": True, "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall",
    "moe_aux_loss_coeff": 1e-3, "apply_rope_fusion": True, "gradient_accumulation_fusion": False,
    "masked_softmax_fusion": False,
    "add_bias_linear": False, "normalization": "RMSNorm", "swiglu": True, "group_query_attention": True,
    "untie_embeddings_and_output_weights": True, "seq_length": 8192, "max_position_embeddings": 8192,
    "tensor_model_parallel_size": 1, "sequence_parallel": True,
}  # fmt: skip


def llama(layers: int, hidden: int, ffn: int, heads: int, groups: int, vocab: int = 128256) -> dict[str, Any]:
    return {
        **BASE, "num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": ffn, "num_attention_heads": heads,
        "num_query_groups": groups, "vocab_size": vocab,
    }  # fmt: skip


MODELS: dict[str, dict[str, Any]] = {
    "llama3.1-8b": llama(32, 4096, 14336, 32, 8),
    "llama3.1-70b": llama(80, 8192, 28672, 64, 8),
    "llama3.1-405b": llama(126, 16384, 53248, 128, 8),
    "mixtral-8x22b": {
        **llama(56, 6144, 16384, 48, 8, 32000), "num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 16384,
    },
    "qwen3-235b": {
        **llama(94, 4096, 12288, 64, 4, 151936), "kv_channels": 128, "num_experts": 128, "moe_router_topk": 8,
        "moe_ffn_hidden_size": 1536, "qk_layernorm": True,
    },
    "deepseek-v3": {
        **llama(61, 7168, 18432, 128, 128, 129280), "num_experts": 256, "moe_router_topk": 8,
        "moe_ffn_hidden_size": 2048, "moe_shared_expert_intermediate_size": 2048, "moe_layer_freq": [0] * 3 + [1] * 58,
        "qk_layernorm": True, "mtp_num_layers": 1, "moe_router_num_groups": 8, "moe_router_group_topk": 4,
        "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True, "multi_latent_attention": True,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128,
        "apply_rope_fusion": False,
    },
    "toy": llama(4, 256, 512, 8, 4, 1000),
    "toy-moe": {
        **llama(4, 256, 512, 8, 4, 1000), "num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 128,
    },
}  # fmt: skip

_PLAIN = {  # Megatron argument -> field of TransformerConfig, given to the oracle as it stands
    "normalization": "normalization", "add_bias_linear": "add_bias_linear", "add_qkv_bias": "add_qkv_bias",
    "qk_layernorm": "qk_layernorm", "moe_shared_expert_gate": "moe_shared_expert_gate",
    "moe_layer_freq": "moe_layer_freq", "hidden_dropout": "hidden_dropout", "attention_dropout": "attention_dropout",
    "moe_router_dtype": "moe_router_dtype", "moe_permute_fusion": "moe_permute_fusion",
    "moe_router_fusion": "moe_router_fusion", "moe_z_loss_coeff": "moe_z_loss_coeff",
    "moe_aux_loss_coeff": "moe_aux_loss_coeff", "moe_router_load_balancing_type": "moe_router_load_balancing_type",
    "recompute_granularity": "recompute_granularity", "recompute_method": "recompute_method",
    "recompute_num_layers": "recompute_num_layers", "recompute_modules": "recompute_modules", "fp8": "fp8",
    "fp8_recipe": "fp8_recipe", "moe_router_pre_softmax": "moe_router_pre_softmax",
    "moe_apply_probs_on_input": "moe_apply_probs_on_input", "moe_latent_size": "moe_latent_size",
    "cross_entropy_loss_fusion": "cross_entropy_loss_fusion", "cross_entropy_fusion_impl": "cross_entropy_fusion_impl",
    "activation_func_fp8_input_store": "activation_func_fp8_input_store", "cp_comm_type": "cp_comm_type",
    "bias_dropout_fusion": "bias_dropout_fusion", "apply_rope_fusion": "apply_rope_fusion",
    "attention_output_gate": "attention_output_gate", "moe_shared_expert_overlap": "moe_shared_expert_overlap",
    "distribute_saved_activations": "distribute_saved_activations", "fp32_residual_connection":
    "fp32_residual_connection", "masked_softmax_fusion": "masked_softmax_fusion",
}  # fmt: skip


def model_row(args: dict[str, Any]) -> dict[str, Any]:
    """The row for the oracle's MODELS table."""
    row: dict[str, Any] = {
        "L": args["num_layers"], "h": args["hidden_size"], "ffn": args["ffn_hidden_size"],
        "heads": args["num_attention_heads"], "kv": args["num_query_groups"], "vocab": args["vocab_size"],
    }  # fmt: skip
    if not args.get("group_query_attention"):
        row["kv"] = row["heads"]
    pairs = {
        "kv_channels": "head_dim", "qk_layernorm": "qk_norm", "mtp_num_layers": "mtp", "num_experts": "experts",
        "moe_router_topk": "topk", "moe_ffn_hidden_size": "moe_ffn", "moe_router_num_groups": "groups",
        "moe_router_group_topk": "group_topk", "moe_router_score_function": "score",
        "moe_router_enable_expert_bias": "expert_bias", "moe_shared_expert_intermediate_size": "shared",
    }  # fmt: skip
    for ours, theirs in pairs.items():
        if args.get(ours) is not None:
            row[theirs] = args[ours]
    if args.get("multi_latent_attention"):
        names = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
        row["mla"] = {name: args[name] for name in names}
    return row


def question(script: str, args: dict[str, Any], world: int, rank: int = 0, extra: str = "") -> dict[str, Any]:
    """The oracle's question for a recipe. `extra` is appended to its command line."""
    argv = [f"--model asked --world {world} --rank {rank}", f"--tp {args.get('tensor_model_parallel_size', 1)}"]
    for flag, key in (
        ("pp", "pipeline_model_parallel_size"), ("ep", "expert_model_parallel_size"), ("cp", "context_parallel_size"),
        ("etp", "expert_tensor_parallel_size"), ("vpp", "num_virtual_stages_per_pipeline_rank"),
        ("first-stage-layers", "decoder_first_pipeline_num_layers"),
        ("last-stage-layers", "decoder_last_pipeline_num_layers"), ("layout", "pipeline_model_parallel_layout"),
        ("seq", "seq_length"), ("mbs", "micro_batch_size"), ("dispatcher", "moe_token_dispatcher_type"),
    ):  # fmt: skip
        if args.get(key) is not None:
            argv.append(f"--{flag} {args[key]}")
    layout = args.get("pipeline_model_parallel_layout")
    if layout is not None:
        from primus_lint.ir.layout import parse_layout

        argv.append(f"--vpp {len(parse_layout(layout)) // args['pipeline_model_parallel_size']}")
    for flag, on in (
        ("account-embedding", args.get("account_for_embedding_in_pipeline_split")),
        ("account-loss", args.get("account_for_loss_in_pipeline_split")),
        ("tied", not args["untie_embeddings_and_output_weights"]),
        ("no-sp", not args["sequence_parallel"]),
        ("impl local", args.get("transformer_impl") == "local"),
        ("no-grouped-gemm", not args.get("moe_grouped_gemm")),
    ):  # fmt: skip
        if on:
            argv.append(f"--{flag}")
    if script == "megatron_state":
        argv += state_flags(args)
    for key, field in _PLAIN.items():
        if key in args:
            argv.append(f"--set {field}={args[key]!r}".replace(" ", "").replace("--set", "--set "))
    gated = args["swiglu"]
    if not gated:
        argv.append("--set gated_linear_unit=False")
        argv.append(
            "--set activation_func=F.gelu" if not args.get("squared_relu") else f"--set activation_func={SQUARED}"
        )
    fusion = args.get("bias_swiglu_fusion", True) if gated else args.get("bias_gelu_fusion", True)
    fusion = bool(fusion) and not args.get("squared_relu") and (gated or args["add_bias_linear"])
    argv.append(f"--set bias_activation_fusion={fusion}")
    out = {"script": script, "name": "asked", "model": model_row(args), "argv": " ".join([*argv, extra])}
    if args["position_embedding_type"] == "learned_absolute":
        out["positions"] = "learned_absolute"
        out["max_positions"] = args["max_position_embeddings"]
    return out


SQUARED = "lambda*x:torch.pow(F.relu(x[0]),2)"  # without blanks, the command line is split at them


def state_flags(args: dict[str, Any]) -> list[str]:
    """Flags of megatron_state.py: data-parallel buffers and optimizer."""
    out = []
    if not args["use_distributed_optimizer"]:
        out.append("--no-dist-opt")
    if args.get("overlap_grad_reduce"):
        out.append("--overlap-grad-reduce")
    if args.get("overlap_param_gather"):
        out.append("--overlap-param-gather")
    if args.get("grad_reduce_in_bf16"):
        out.append("--grad-bf16")
    if args.get("ddp_bucket_size"):
        out.append(f"--bucket-size {args['ddp_bucket_size']}")
    if args.get("ddp_pad_buckets_for_high_nccl_busbw"):
        out.append("--pad-nccl")
    if args.get("num_distributed_optimizer_instances"):
        out.append(f"--dist-opt-instances {args['num_distributed_optimizer_instances']}")
    if args.get("use_precision_aware_optimizer"):
        out.append("--precision-aware")
        for flag, key in (
            ("main-dtype", "main_params_dtype"), ("exp-avg-dtype", "exp_avg_dtype"),
            ("exp-avg-sq-dtype", "exp_avg_sq_dtype"), ("main-grads-dtype", "main_grads_dtype"),
        ):  # fmt: skip
            if args.get(key):
                out.append(f"--{flag} {args[key]}")
        if args.get("store_param_remainders") is False:
            out.append("--store-param-remainders 0")
    return out
