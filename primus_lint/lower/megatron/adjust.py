"""What Primus and Megatron-LM change by themselves before a recipe runs.

Each change has a name, the key that it sets, and a reason. `primus(...)` replays the patches of Primus's Megatron
backend (they come first), `megatron(...)` the silent changes of Megatron's `validate_args` and config classes.
Sources: shared notes on Primus fd1eeabb section 3; Megatron-LM d3528a21 and d98e8a64 as described in the catalogue of
conditions (ids in the comments).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from primus_lint.formula import is_scalar
from primus_lint.lower.megatron.namespace import evaluate_pattern


class Adjustment(NamedTuple):
    """A change that the program makes: `key` becomes `value` because of `because` (a key) and `reason`."""

    name: str
    key: str
    value: Any
    because: str
    reason: str
    catalogue: str = ""


def primus(args: dict[str, Any], set_by_user: frozenset[str] | set[str]) -> list[Adjustment]:
    """The changes of Primus's argument patches, applied to `args` in place. Returns what changed."""
    done: list[Adjustment] = []

    def put(name: str, key: str, value: Any, because: str, reason: str) -> None:
        if args.get(key) != value:
            done.append(Adjustment(name, key, value, because, reason))
            args[key] = value

    if args.get("mock_data"):
        for key in ("data_path", "train_data_path", "valid_data_path", "test_data_path"):
            if args.get(key) is not None:
                put("mock-data-clears-paths", key, None, "mock_data", "mock_data clears every data path")
        put("mock-data-tokenizer", "tokenizer_type", "NullTokenizer", "mock_data", "mock_data forces the NullTokenizer")
        if args.get("vocab_size") is None:
            put("mock-data-vocabulary", "vocab_size", 131072, "mock_data",
                "mock_data without vocab_size trains a vocabulary of 131,072")  # fmt: skip
    for key in ("data_path", "train_data_path", "valid_data_path", "test_data_path"):
        if isinstance(args.get(key), str):
            args[key] = args[key].split()
    if isinstance(args.get("moe_layer_freq"), str):
        pattern = evaluate_pattern(args["moe_layer_freq"])
        if pattern is not None:
            args["moe_layer_freq"] = pattern
    stage = args.get("turbo_sync_free_moe_stage") or 0
    if stage in (1, 2, 3) and args.get("enable_primus_turbo"):
        because = "turbo_sync_free_moe_stage"
        reason = f"turbo_sync_free_moe_stage {stage} sets it"
        put("sync-free-router", "moe_use_fused_router_with_aux_score", True, because, reason)
        put("sync-free-permute", "moe_permute_fusion", True, because, reason)
        if args.get("fp8") or args.get("fp4"):
            put("sync-free-padding", "moe_router_padding_for_quantization", True, because, reason)
        if stage >= 2:
            put("sync-free-deepep", "use_turbo_deepep", True, because, reason)
        if stage >= 3:
            put("sync-free-act", "use_turbo_fused_act_with_probs", True, because, reason)
    if args.get("use_turbo_deepep") and args.get("enable_primus_turbo"):
        because = "use_turbo_deepep"
        reason = "use_turbo_deepep runs the flex dispatcher with DeepEP"
        put("turbo-deepep-dispatcher", "moe_token_dispatcher_type", "flex", because, reason)
        put("turbo-deepep-flag", "moe_enable_deepep", True, because, reason)
    for key in ("high_priority_stream_groups",):
        if args.get(key) is None:
            args[key] = []
    return done


def megatron(args: dict[str, Any], version: str) -> list[Adjustment]:
    """Megatron's own silent changes, applied to `args` in place (values may be arrays). Returns what changed."""
    done: list[Adjustment] = []
    head = version == "d98e8a64"

    def put(name: str, key: str, value: Any, because: str, reason: str, catalogue: str = "") -> None:
        old = args.get(key)
        if is_scalar(old, value) or isinstance(old, (str, type(None))) or isinstance(value, (str, type(None))):
            if old == value and type(old) is type(value):
                return
            done.append(Adjustment(name, key, value, because, reason, catalogue))
        args[key] = value

    if args.get("recompute_activations"):
        put("recompute-activations", "recompute_granularity", "selective", "recompute_activations",
            "recompute_activations means selective recomputation")  # fmt: skip
    tp = args["tensor_model_parallel_size"]
    if is_scalar(tp):
        if tp == 1 and args["sequence_parallel"]:
            put("sequence-parallel-off", "sequence_parallel", False, "tensor_model_parallel_size",
                "without tensor parallelism sequence_parallel is switched off", "T18")  # fmt: skip
    elif args["sequence_parallel"]:
        args["sequence_parallel"] = tp > 1
    interleaved = (
        args["num_layers_per_virtual_pipeline_stage"] is not None
        or (args["num_virtual_stages_per_pipeline_rank"] or 1) > 1
        or args["pipeline_model_parallel_layout"] is not None
    )
    if not interleaved:
        if args["overlap_p2p_comm"]:
            put("overlap-p2p-off", "overlap_p2p_comm", False, "overlap_p2p_comm",
                "without virtual stages overlap_p2p_comm is switched off", "P22")  # fmt: skip
        if args.get("align_param_gather"):
            put("align-param-gather-off", "align_param_gather", False, "align_param_gather",
                "without virtual stages align_param_gather is switched off", "P22")  # fmt: skip
    if args.get("virtual_pipeline_model_parallel_size") is not None:
        put("virtual-size-overwritten", "virtual_pipeline_model_parallel_size", None,
            "virtual_pipeline_model_parallel_size",
            "virtual_pipeline_model_parallel_size is overwritten from the three keys that Megatron reads")  # fmt: skip
    if args["bf16"] and not args.get("grad_reduce_in_bf16") and (args.get("main_grads_dtype") or "fp32") == "fp32":
        if not args.get("accumulate_allreduce_grads_in_fp32"):
            put("fp32-gradients", "accumulate_allreduce_grads_in_fp32", True, "grad_reduce_in_bf16",
                "bf16 training accumulates gradients in fp32 unless grad_reduce_in_bf16 is set", "N15")  # fmt: skip
    if args.get("apply_rope_fusion") and args["position_embedding_type"] not in ("rope", "mrope", "yarn"):
        put("rope-fusion-off", "apply_rope_fusion", False, "position_embedding_type",
            "rotary fusion needs rotary positions", "T40")  # fmt: skip
    if not args["add_bias_linear"]:
        if args.get("bias_gelu_fusion"):
            args["bias_gelu_fusion"] = False
    elif not args.get("add_qkv_bias"):
        put("qkv-bias-on", "add_qkv_bias", True, "add_bias_linear", "add_bias_linear adds the QKV bias too", "G07")
    if args.get("apply_query_key_layer_scaling"):
        put("softmax-in-fp32", "attention_softmax_in_fp32", True, "apply_query_key_layer_scaling",
            "query-key layer scaling runs the softmax in fp32", "N22")  # fmt: skip
    if args.get("use_megatron_fsdp") and not args.get("use_distributed_optimizer"):
        if not (head and args.get("megatron_fsdp_version") == 2):
            put("fsdp-distributed-optimizer", "use_distributed_optimizer", True, "use_megatron_fsdp",
                "Megatron-FSDP turns the distributed optimizer on", "O14")  # fmt: skip
    if args.get("use_torch_fsdp2") and args.get("fp8_param_gather"):
        put("fsdp2-fp8-gather-off", "fp8_param_gather", False, "use_torch_fsdp2",
            "FSDP2 switches fp8_param_gather off", "O11")  # fmt: skip
    if args.get("enable_cuda_graph") and (args.get("cuda_graph_impl") or "none") == "none":
        put("cuda-graph-impl", "cuda_graph_impl", "local", "enable_cuda_graph", "enable_cuda_graph is the old spelling")
    elif args.get("external_cuda_graph") and (args.get("cuda_graph_impl") or "none") == "none":
        put("cuda-graph-impl", "cuda_graph_impl", "transformer_engine", "external_cuda_graph",
            "external_cuda_graph is the old spelling")  # fmt: skip
    return done
