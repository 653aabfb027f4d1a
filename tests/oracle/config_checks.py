"""Ask the real TransformerConfig of megatron-core 0.16.1 whether it takes a recipe, and why not.

Run as a script it reads one JSON object a line (`{"id", "args"}`, effective arguments by Megatron's dest names) from
standard input and writes `{"id", "error"}` lines. Arguments become fields as in Megatron-LM's
`core_transformer_config_from_args`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.oracle.ask import ORACLE

REPO = Path(__file__).resolve().parents[2]

# Values that a mutation draws from; None drops the argument.
VALUES: dict[str, list[Any]] = {
    "fp8": [None, "hybrid", "e4m3"],
    "fp8_recipe": ["delayed", "tensorwise", "mxfp8", "blockwise", "custom"],
    "fp8_param_gather": [True, False],
    "fp4": [None, None, "e2m1"],
    "fp4_recipe": ["nvfp4", "custom"],
    "first_last_layers_bf16": [True, False],
    "num_layers_at_start_in_bf16": [0, 1, 32, 33, -1],
    "num_layers_at_end_in_bf16": [0, 1, 32, 33, -1],
    "cuda_graph_impl": ["none", "local", "transformer_engine"],
    "cuda_graph_scope": [
        [], ["attn"], ["mlp"], ["moe"], ["moe_router"], ["moe_preprocess"], ["moe_router", "moe_preprocess"],
        ["attn", "moe"], ["full_iteration"], ["full"], ["moe", "moe_router"], ["attn", "full_iteration"],
    ],
    "recompute_granularity": [None, "selective", "full"],
    "recompute_method": [None, "uniform"],
    "recompute_num_layers": [None, 1],
    "recompute_modules": [None, ["core_attn"], ["mlp"], ["moe"], ["layernorm"], ["moe_act", "mlp"], ["mla_up_proj"]],
    "moe_layer_recompute": [True, False],
    "cpu_offloading_num_layers": [0, 2, 32],
    "attention_dropout": [0.0, 0.1],
    "hidden_dropout": [0.0, 0.1],
    "moe_input_jitter_eps": [None, 0.01],
    "moe_layer_freq": [1, 2],
    "overlap_moe_expert_parallel_comm": [True, False],
    "delay_wgrad_compute": [True, False],
    "ep_overlap_early_attn_memory_release": [True, False],
    "moe_token_dispatcher_type": ["alltoall", "allgather", "flex"],
    "moe_expert_capacity_factor": [None, 1.0, -1.0],
    "moe_pad_expert_input_to_capacity": [True, False],
    "moe_router_padding_for_quantization": [True, False],
    "moe_router_topk": [1, 2],
    "moe_router_enable_expert_bias": [True, False],
    "moe_shared_expert_intermediate_size": [None, 2048, 0],
    "moe_shared_expert_overlap": [True, False],
    "mtp_num_layers": [None, 1, 2],
    "pipeline_model_parallel_size": [1, 2],
    "num_virtual_stages_per_pipeline_rank": [None, 2],
    "bf16": [True, False],
    "swiglu": [True, False],
    "squared_relu": [True, False],
    "quick_geglu": [True, False],
    "bias_swiglu_fusion": [True, False],
    "bias_gelu_fusion": [True, False],
    "glu_linear_offset": [0.0, 1.0],
    "use_te_activation_func": [True, False],
    "apply_rope_fusion": [True, False],
    "rotary_interleaved": [True, False],
    "attention_output_gate": [True, False],
    "symmetric_ar_type": [None, "two_shot"],
    "inference_fuse_tp_communication": [True, False],
    "overlap_p2p_comm_warmup_flush": [True, False],
    "defer_embedding_wgrad_compute": [True, False],
}  # fmt: skip


def recipes(number: int, seed: int) -> list[dict[str, Any]]:
    """Legal bases of the rule examples with one to five arguments drawn anew (same seed, same recipes)."""
    import yaml

    bases = yaml.safe_load((REPO / "rules" / "bases.yaml").read_text(encoding="utf-8"))
    draw = random.Random(seed)
    out = []
    for _ in range(number):
        args = dict(bases[draw.choice(("dense", "moe", "moe", "mla", "pipeline"))]["args"])
        for key in draw.sample(sorted(VALUES), draw.randint(1, 5)):
            value = draw.choice(VALUES[key])
            args.pop(key, None)
            if value is not None:
                args[key] = value
        out.append(args)
    return out


def effective(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments after Megatron's silent changes, with the virtual pipeline size that it derives."""
    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron import lower
    from primus_lint.readers.batch import section_of

    section = section_of({"id": "x", "framework": "megatron", "args": args, "target": {}}, "megatron")
    names = lower(section, Target(None, None, 8), "core-0.16.1", "megatron").namespace
    stages = names["vpp"]
    plain = {key: value for key, value in names.items() if isinstance(value, (int, float, str, list, type(None)))}
    return {**plain, "virtual_pipeline_model_parallel_size": stages if stages > 1 else None}


def ask_config(asked: list[dict[str, Any]]) -> list[str | None]:
    """For each recipe (effective arguments) the error of the real config class, None when it takes it."""
    lines = "\n".join(json.dumps({"id": number, "args": args}) for number, args in enumerate(asked))
    done = subprocess.run(
        [sys.executable, "-m", "tests.oracle.config_checks"],
        input=lines, capture_output=True, text=True, cwd=REPO, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"id"')]
    if len(found) != len(asked):
        raise RuntimeError(done.stderr[-2000:])
    return [row["error"] for row in found]


def _build(args: dict[str, Any]) -> None:
    """Make the config. Raises what it raises."""
    import dataclasses

    import torch
    from megatron.core.activations import squared_relu
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    cls = MLATransformerConfig if args["multi_latent_attention"] else TransformerConfig
    skipped = {"attention_backend", "autocast_dtype", "init_method", "output_layer_init_method"}
    fields = {field.name for field in dataclasses.fields(cls)} - skipped
    kwargs = {name: args[name] for name in fields if args.get(name) is not None}
    kwargs["params_dtype"] = kwargs["pipeline_dtype"] = torch.bfloat16 if args["bf16"] else torch.float
    kwargs["batch_p2p_comm"] = not args["overlap_p2p_comm"]
    kwargs["num_moe_experts"] = args["num_experts"]
    kwargs["num_query_groups"] = args["num_query_groups"] if args["group_query_attention"] else None
    kwargs["fp8_param"] = args["fp8_param_gather"]
    kwargs["bias_activation_fusion"] = args["bias_gelu_fusion"]
    if args["swiglu"]:
        kwargs["activation_func"] = torch.nn.functional.silu
        kwargs["gated_linear_unit"] = True
        kwargs["bias_activation_fusion"] = args["bias_swiglu_fusion"]
    if args["squared_relu"] or args["quick_geglu"]:
        assert not args["swiglu"], "two activations"
        kwargs["activation_func"] = squared_relu if args["squared_relu"] else quick_gelu
        kwargs["gated_linear_unit"] = not args["squared_relu"]
    cls(**kwargs)


def main() -> None:
    """Answer the questions on standard input."""
    import importlib
    import warnings

    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ORACLE))
    importlib.import_module("common")._install_fake_cuda(100)
    importlib.import_module("te_stub").install()
    for line in sys.stdin:
        question = json.loads(line)
        error = None
        try:
            _build(question["args"])
        except Exception as found:  # the class of the error is part of the answer
            error = f"{type(found).__name__}: {' '.join(str(found).split())}"[:200]
        print(json.dumps({"id": question["id"], "error": error}))


if __name__ == "__main__":
    main()
