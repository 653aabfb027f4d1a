"""Small random TorchTitan recipes, as the witness takes them, and their sizes in the account."""

from __future__ import annotations

import random
from typing import Any

from primus_lint.ledger.titan.sizes import WITNESS, Experts, Float8, Latent, Sizes

MOE = "moe_args."
RECOMPUTE: tuple[str, ...] = ("none", "full", "op", "2")


def draw(seed: int) -> dict[str, Any]:
    """A recipe with experts: DeepSeek-V3, Llama 4 or Qwen3."""
    pick = random.Random(seed)
    model = ("deepseek_v3", "llama4", "qwen3")[seed % 3]
    heads, experts = pick.choice([4, 8]), pick.choice([4, 8, 16])
    shard = pick.choice([2, 4, 8, 16])
    case: dict[str, Any] = {
        "model": model, "flavor": "debugmodel_moe" if model == "qwen3" else "debugmodel",
        "args": {
            "dim": heads * pick.choice([16, 32]) if model == "llama4" else pick.choice([64, 128, 192]),
            "n_layers": pick.randint(2, 4), "n_heads": heads, "vocab_size": pick.choice([512, 1024]),
            MOE + "num_experts": experts, MOE + "top_k": pick.choice([1, 2, 4]),
            MOE + "num_shared_experts": pick.choice([0, 1, 2]), MOE + "route_norm": pick.choice([True, False]),
            MOE + "score_before_experts": pick.choice([True, False]),
            MOE + "load_balance_coeff": pick.choice([None, 0.001]),
        },
        "parallel": {
            "shard": shard, "ep": pick.choice([n for n in (1, 2, 4, 8) if n <= min(experts, shard)]),
            "replicate": pick.choice([1, 1, 2]),
        },
        "ac": pick.choice(RECOMPUTE), "reshard": pick.choice(["default", "always", "never"]),
        "force": pick.choice([["moe.router.gate"], []]), "seq": pick.choice([64, 128]), "mbs": pick.choice([1, 2]),
    }  # fmt: skip
    case["args"] |= OF_MODEL[model](pick)
    return case


def draw_dense(seed: int) -> dict[str, Any]:
    """Tied embeddings (Qwen3), or float8 layers in PyTorch's own arithmetic (Llama 3)."""
    pick = random.Random(1000 + seed)
    case = {**draw(seed), "model": ("llama3", "qwen3")[seed % 2], "flavor": "debugmodel"}
    shard = pick.choice([2, 4, 8])
    case["parallel"] = {"shard": shard, "ep": 1, "replicate": pick.choice([1, 2])}
    case["args"] = {"dim": 128, "n_layers": pick.randint(2, 4), "n_heads": 4, "n_kv_heads": 2,
                    "vocab_size": pick.choice([512, 1024])}  # fmt: skip
    if case["model"] == "qwen3":
        case["args"] |= {"head_dim": 32, "hidden_dim": 256, "enable_weight_tying": True}
    else:
        case["args"] |= {"multiple_of": 64, "ffn_dim_multiplier": None}
        case["float8"] = {
            "filter_fqns": pick.choice([[], ["output"]]), "enable_fsdp_float8_all_gather": pick.choice([True, False]),
        }  # fmt: skip
    return case


def draw_tensor(seed: int) -> dict[str, Any]:
    """Experts under tensor parallelism: Llama 4 and DeepSeek-V3."""
    pick = random.Random(2000 + seed)
    case = draw(seed - seed % 3 + seed % 2)
    experts, shard = case["args"][MOE + "num_experts"], pick.choice([2, 4, 8])
    ep = pick.choice([n for n in (1, 2, 4) if n <= experts])
    whole = pick.choice([1, 2]) if ep > 1 and shard % ep == 0 else 1
    case["parallel"] = {"shard": shard, "ep": ep, "tp": 2, "etp": whole, "replicate": 1}
    return case


def _deepseek(pick: random.Random) -> dict[str, Any]:
    return {"inter_dim": pick.choice([128, 384]), "moe_inter_dim": pick.choice([32, 64]),
            "n_dense_layers": pick.choice([0, 1]), "q_lora_rank": pick.choice([0, 48]), "kv_lora_rank": 64,
            "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": pick.choice([32, 16])}  # fmt: skip


def _llama4(pick: random.Random) -> dict[str, Any]:
    return {"n_kv_heads": 4, "multiple_of": 64, "interleave_moe_layer_step": pick.choice([1, 2]),
            "auto_scale_hidden_dim": pick.choice([True, False])}  # fmt: skip


def _qwen3(pick: random.Random) -> dict[str, Any]:
    return {"n_kv_heads": 2, "head_dim": 32, "hidden_dim": 256, "moe_enabled": True, "enable_weight_tying": False,
            "moe_inter_dim": pick.choice([32, 64])}  # fmt: skip


OF_MODEL = {"deepseek_v3": _deepseek, "llama4": _llama4, "qwen3": _qwen3}


def sizes(case: dict[str, Any]) -> Sizes:
    """The sizes of a recipe, on a CPU."""
    args, parallel, model = case["args"], case["parallel"], case["model"]
    heads, hidden = args["n_heads"], args["dim"]
    latent = None
    if model == "deepseek_v3":
        latent = Latent(args["q_lora_rank"], args["kv_lora_rank"], args["qk_nope_head_dim"], args["qk_rope_head_dim"],
                        args["v_head_dim"])  # fmt: skip
    float8 = case.get("float8")
    mode = case["ac"]
    return Sizes(
        layers=args["n_layers"], hidden=hidden, heads=heads, groups=args.get("n_kv_heads", heads),
        head_dim=args.get("head_dim", hidden // heads), ffn=_ffn(case), vocab=args["vocab_size"], seq=case["seq"],
        tokens=case["seq"] * case["mbs"], tp=parallel.get("tp", 1), shard=parallel["shard"], replicate=parallel["replicate"], accumulation=1,
        recompute=int(mode) if mode.isdigit() else mode, reshard=case["reshard"], kernels=WITNESS, qwen=model == "qwen3",
        tied=bool(args.get("enable_weight_tying")), latent=latent, experts=_experts(case),
        float8=None if float8 is None else Float8(
            True, True, "output" not in float8["filter_fqns"], float8["enable_fsdp_float8_all_gather"]
        ),
    )  # fmt: skip


def _ffn(case: dict[str, Any]) -> int:
    args = case["args"]
    if "hidden_dim" in args or "inter_dim" in args:
        return int(args.get("hidden_dim") or args["inter_dim"])
    multiple = args["multiple_of"]
    return -(-int(8 * args["dim"] / 3) // multiple) * multiple


def _experts(case: dict[str, Any]) -> Experts | None:
    args, parallel, model = case["args"], case["parallel"], case["model"]
    if MOE + "num_experts" not in args:
        return None
    width = args.get("moe_inter_dim")
    if width is None:
        width = int(8 * args["dim"] / 3)
        if args["auto_scale_hidden_dim"]:
            width = int(width / (args[MOE + "top_k"] + args[MOE + "num_shared_experts"]))
        width += -width % args["multiple_of"]
    return Experts(
        count=args[MOE + "num_experts"], top_k=args[MOE + "top_k"], ffn=width,
        shared=width * args[MOE + "num_shared_experts"], first=args.get("n_dense_layers", 0),
        every=args.get("interleave_moe_layer_step", 1), ep=parallel["ep"],
        tp=parallel.get("tp", 1) if parallel["ep"] == 1 else parallel.get("etp", 1),
        shard=parallel["shard"] * parallel.get("tp", 1) // (parallel["ep"] * parallel.get("etp", 1)),
        split=parallel.get("tp", 1) if parallel["ep"] > 1 and parallel.get("etp", 1) == 1 else 1, scored_before=args[MOE + "score_before_experts"],
        normed=args[MOE + "route_norm"], align=8, bias=args[MOE + "load_balance_coeff"] is not None,
        gate_counted=not case["force"], exchange_saved=model != "qwen3",
    )  # fmt: skip
