"""What Primus and Megatron-LM change by themselves before a recipe runs.

Each change has a name, the key that it sets, and a reason. `primus(...)` replays the patches of Primus's Megatron
backend (they come first), `megatron(...)` the silent changes of Megatron's `validate_args` and config classes.
Sources: shared notes on Primus fd1eeabb section 3; Megatron-LM d3528a21 and d98e8a64 as described in the catalogue of
conditions (ids in the comments).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar
from primus_lint.lower.megatron import hybrid
from primus_lint.lower.megatron.namespace import Namespace, evaluate_pattern
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Put = Callable[..., None]


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
        padding = bool(args.get("fp8") or args.get("fp4"))
        if padding or args.get("moe_router_padding_for_quantization"):
            put("sync-free-padding", "moe_router_padding_for_quantization", padding, because, reason)
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
    """Megatron's own silent changes, applied to `args` in place (values may be arrays). Returns what changed.

    They follow the order of `validate_args`; a rule on a check that comes before a change reads `given_NAME`.
    """
    done: list[Adjustment] = []
    head = version == "d98e8a64"

    def put(name: str, key: str, value: Any, because: str, reason: str, catalogue: str = "") -> None:
        old = args.get(key)
        if is_scalar(old, value) or isinstance(old, (str, type(None))) or isinstance(value, (str, type(None))):
            if old == value and type(old) is type(value):
                return
            done.append(Adjustment(name, key, value, because, reason, catalogue))
        args[key] = value

    _aliases(args, head, put)
    _hybrid(args, version, put)
    _sizes(args, head, put)
    _pipeline(args, put)
    _precision(args, put)
    _kernels(args, put)
    _optimizer(args, head, put)
    return done


def _aliases(args: dict[str, Any], head: bool, put: Put) -> None:
    """Old spellings that still work."""
    if args.get("recompute_activations"):
        put("recompute-activations", "recompute_granularity", "selective", "recompute_activations",
            "recompute_activations means selective recomputation")  # fmt: skip
    if (args.get("cuda_graph_impl") or "none") == "none":
        if args.get("enable_cuda_graph"):
            put("cuda-graph-impl", "cuda_graph_impl", "local", "enable_cuda_graph",
                "enable_cuda_graph is the old spelling")  # fmt: skip
        elif args.get("external_cuda_graph"):
            put("cuda-graph-impl", "cuda_graph_impl", "transformer_engine", "external_cuda_graph",
                "external_cuda_graph is the old spelling")  # fmt: skip
    if head and args.get("cuda_graph_scope_deprecated") is not None and not args.get("cuda_graph_modules"):
        put("cuda-graph-modules", "cuda_graph_modules", args["cuda_graph_scope_deprecated"],
            "cuda_graph_scope_deprecated", "cuda_graph_scope is the old spelling of cuda_graph_modules")  # fmt: skip
    if args.get("use_rotary_position_embeddings"):
        put("rotary-positions", "position_embedding_type", "rope", "use_rotary_position_embeddings",
            "use_rotary_position_embeddings means position_embedding_type rope")  # fmt: skip
    for key in ("moe_router_load_balancing_type", "moe_aux_loss_coeff"):
        if isinstance(args.get(key), (list, tuple)) and len(args[key]) == 1:
            args[key] = args[key][0]


def _hybrid(args: dict[str, Any], version: str, put: Put) -> None:
    """The pattern of a hybrid model decides the number of layers and of MTP depths."""
    pattern = args.get("hybrid_layer_pattern")
    if pattern is None:
        pattern = args.get("hybrid_override_pattern")
        if pattern is not None:
            put("hybrid-pattern", "hybrid_layer_pattern", pattern, "hybrid_override_pattern",
                "hybrid_override_pattern is the old name of hybrid_layer_pattern")  # fmt: skip
    pattern = hybrid.unified(pattern, args.get("mtp_hybrid_override_pattern"), args.get("mtp_num_layers"))
    if not isinstance(pattern, str):
        return
    args["hybrid_layer_pattern"] = pattern
    parts = hybrid.split(pattern)
    overridden = {key: "P29" if args.get(key) is not None else "" for key in ("num_layers", "mtp_num_layers")}
    put("hybrid-layers", "num_layers", parts.num_layers, "hybrid_layer_pattern",
        "the hybrid pattern decides the number of layers", overridden["num_layers"])  # fmt: skip
    if parts.mtp:
        put("hybrid-mtp", "mtp_num_layers", len(parts.mtp), "hybrid_layer_pattern",
            "the hybrid pattern decides the number of MTP depths", overridden["mtp_num_layers"])  # fmt: skip
    if version == "d98e8a64" and ("+" in pattern or "D" in pattern):
        put("hybrid-mla", "multi_latent_attention", True, "hybrid_layer_pattern",
            "+ and D in the hybrid pattern are latent attention")  # fmt: skip


def _sizes(args: dict[str, Any], head: bool, put: Put) -> None:
    """Layers, sequence length, experts, evaluation batch."""
    if args.get("num_layers") is None:
        args["num_layers"] = args.get("encoder_num_layers")
    if args.get("seq_length") is None:
        args["seq_length"] = args.get("encoder_seq_length")
    if is_scalar(args.get("num_experts")) and args["num_experts"] == 0:
        put("no-experts", "num_experts", None, "num_experts", "num_experts 0 is a dense model")
    if head:
        if args.get("mtp_hsm") and (args.get("mtp_num_layers") or 0) < 2:
            put("mtp-mixing-off", "mtp_hsm", False, "mtp_num_layers",
                "hidden-state mixing needs two MTP layers and is switched off", "B18")  # fmt: skip
        if args.get("dataloader_inter_document_masking") and args.get("create_attention_mask_in_dataloader"):
            put("mask-in-loader-off", "create_attention_mask_in_dataloader", False, "dataloader_inter_document_masking",
                "masking between documents leaves no mask to make in the loader", "G21")  # fmt: skip
    layers: Any = args.get("cpu_offloading_num_layers")
    if is_scalar(layers) and layers > 0:
        put("layer-offload", "cpu_offloading", True, "cpu_offloading_num_layers",
            "cpu_offloading_num_layers switches layer offload on")  # fmt: skip


def _pipeline(args: dict[str, Any], put: Put) -> None:
    tp = args["tensor_model_parallel_size"]
    if is_scalar(tp):
        if tp == 1 and args["sequence_parallel"]:
            put("sequence-parallel-off", "sequence_parallel", False, "tensor_model_parallel_size",
                "without tensor parallelism sequence_parallel is switched off", "T18")  # fmt: skip
    elif args["sequence_parallel"] is not False:
        args["sequence_parallel"] = (args["sequence_parallel"] != 0) & (tp > 1)
    interleaved = _interleaved(args)
    for key in ("overlap_p2p_comm", "align_param_gather"):
        if args.get(key) and is_scalar(interleaved):
            if not interleaved:
                said = "P22" if args["pipeline_model_parallel_size"] > 1 else ""  # without a pipeline nobody is told
                put(key.replace("_", "-") + "-off", key, False, "num_virtual_stages_per_pipeline_rank",
                    f"without virtual stages {key} is switched off", said)  # fmt: skip
        elif args.get(key):
            args[key] = interleaved
    if args.get("virtual_pipeline_model_parallel_size") is not None:
        put("virtual-size-overwritten", "virtual_pipeline_model_parallel_size", None,
            "virtual_pipeline_model_parallel_size",
            "virtual_pipeline_model_parallel_size is overwritten from the three keys that Megatron reads")  # fmt: skip


def _interleaved(args: dict[str, Any]) -> Any:
    """Whether Megatron's virtual pipeline size is set (one virtual stage counts as none, zero does not)."""
    names = Namespace(args)
    if args.get("pipeline_model_parallel_layout") is not None or args.get("num_layers_per_virtual_pipeline_stage"):
        try:
            return names["vpp"] > 1
        except (TypeError, KeyError, ValueError, ZeroDivisionError):
            return True
    if args.get("hybrid_layer_pattern") is not None:
        return names["vpp"] > 1
    stages = args.get("num_virtual_stages_per_pipeline_rank")
    return False if stages is None else stages != 1


def _precision(args: dict[str, Any], put: Put) -> None:
    if args.get("fp16") and not args.get("loss_scale"):
        put("fp16-nan-check-off", "check_for_nan_in_loss_and_grad", False, "fp16",
            "dynamic loss scaling switches check_for_nan_in_loss_and_grad off")  # fmt: skip
    if args["bf16"] and args.get("grad_reduce_in_bf16"):
        put("bf16-gradients", "accumulate_allreduce_grads_in_fp32", False, "grad_reduce_in_bf16",
            "grad_reduce_in_bf16 switches fp32 gradient accumulation off")  # fmt: skip
    elif args["bf16"] and (args.get("main_grads_dtype") or "fp32") == "fp32":
        put("fp32-gradients", "accumulate_allreduce_grads_in_fp32", True, "grad_reduce_in_bf16",
            "bf16 training accumulates gradients in fp32 unless grad_reduce_in_bf16 is set", "N15")  # fmt: skip
    if args.get("apply_query_key_layer_scaling"):
        put("softmax-in-fp32", "attention_softmax_in_fp32", True, "apply_query_key_layer_scaling",
            "query-key layer scaling runs the softmax in fp32", "N22")  # fmt: skip


def _kernels(args: dict[str, Any], put: Put) -> None:
    if args.get("apply_rope_fusion") and args["position_embedding_type"] != "rope":
        put("rope-fusion-off", "apply_rope_fusion", False, "position_embedding_type",
            "fused rotary embedding is switched off unless position_embedding_type is rope", "T40")  # fmt: skip
    if not args["add_bias_linear"]:
        args["bias_gelu_fusion"] = False
    else:
        put("qkv-bias-on", "add_qkv_bias", True, "add_bias_linear", "add_bias_linear adds the QKV bias too", "G07")
    graphs = args.get("cuda_graph_impl") or "none"
    implementation = args.get("transformer_impl") or "transformer_engine"
    if graphs != "none" and "transformer_engine" in (graphs, implementation):
        put("te-rng-tracker-on", "te_rng_tracker", True, "cuda_graph_impl",
            "CUDA graphs switch te_rng_tracker on", "G18")  # fmt: skip
    if args.get("fake_process_group"):
        put("fake-nan-check-off", "check_for_nan_in_loss_and_grad", False, "fake_process_group",
            "a fake process group switches the NaN check off")  # fmt: skip


def _optimizer(args: dict[str, Any], head: bool, put: Put) -> None:
    if head and args.get("use_megatron_fsdp"):
        if args.get("megatron_fsdp_version") != 2:
            put("fsdp-distributed-optimizer", "use_distributed_optimizer", True, "use_megatron_fsdp",
                "Megatron-FSDP turns the distributed optimizer on", "O14")  # fmt: skip
        put("fsdp-reuse-off", "reuse_grad_buf_for_mxfp8_param_ag", False, "use_megatron_fsdp",
            "Megatron-FSDP switches reuse_grad_buf_for_mxfp8_param_ag off", "O14")  # fmt: skip
    if args.get("use_torch_fsdp2") and args.get("fp8_param_gather"):
        put("fsdp2-fp8-gather-off", "fp8_param_gather", False, "use_torch_fsdp2",
            "FSDP2 switches fp8_param_gather off", "O11")  # fmt: skip
    if head and (args.get("optimizer") or "adam") not in ("adam", "sgd"):
        layer_wise = bool(args.get("use_distributed_optimizer")) or args["optimizer"] == "dist_muon"
        if args["optimizer"] == "dist_muon":
            put("muon-renamed", "optimizer", "muon", "optimizer", "dist_muon is the old name of a distributed muon")
        if layer_wise:
            put("layer-wise-optimizer", "use_layer_wise_distributed_optimizer", True, "optimizer",
                "this optimizer is distributed layer by layer")  # fmt: skip
            put("distributed-optimizer-off", "use_distributed_optimizer", False, "optimizer",
                "this optimizer is distributed layer by layer instead")  # fmt: skip
    persistent = args.get("use_persistent_ckpt_worker") or args.get("ckpt_format") == "torch"
    if args.get("async_save") and not persistent:
        put("async-save-off", "async_save", False, "use_persistent_ckpt_worker",
            "async_save is switched off without use_persistent_ckpt_worker", "D09")  # fmt: skip
    if head and args.get("freeze_all_layers"):
        for key in ("use_distributed_optimizer", "overlap_param_gather"):
            if args.get(key):
                put("frozen-" + key.replace("_", "-") + "-off", key, False, "freeze_all_layers",
                    f"freeze_all_layers switches {key} off", "O35")  # fmt: skip
