"""A fixed, seeded sample of recipes over everything that changes the states of a rank."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tests.oracle.recipes import MODELS


class Pair(NamedTuple):
    """One recipe on `world` GPUs, seen from one global rank."""

    args: dict[str, Any]
    world: int
    rank: int


def _model(rng: random.Random) -> dict[str, Any]:
    """A model of a real family with few layers, or with all of them."""
    name = rng.choice(list(MODELS))
    args = dict(MODELS[name])
    if name.startswith("toy"):
        args["num_layers"] = rng.choice([2, 4, 6, 8])
    elif rng.random() < 0.8:
        args["num_layers"] = rng.choice([4, 6, 8, 12, 16])
    freq = args.get("moe_layer_freq")
    if isinstance(freq, list):
        args["moe_layer_freq"] = [0] * 2 + [1] * (args["num_layers"] - 2)
    args["vocab_size"] = rng.choice([args["vocab_size"], 50257, 100001, 32000])
    return args


def _structure(args: dict[str, Any], rng: random.Random) -> None:
    """Norms, biases, activations, heads: what changes the list of parameters."""
    moe, mla = "num_experts" in args, bool(args.get("multi_latent_attention"))
    if rng.random() < 0.3:
        args["normalization"] = "LayerNorm"
    if rng.random() < 0.3:
        args["qk_layernorm"] = not args.get("qk_layernorm")
    if not moe and rng.random() < 0.35:
        args["add_bias_linear"] = True
    elif not mla and rng.random() < 0.2:
        args["add_qkv_bias"] = True
    if not moe and rng.random() < 0.3:
        args["swiglu"] = False
        args["squared_relu"] = rng.random() < 0.5
    if rng.random() < 0.3:
        args["untie_embeddings_and_output_weights"] = False
    if not mla and rng.random() < 0.15:
        args["position_embedding_type"] = "learned_absolute"
        args["max_position_embeddings"] = rng.choice([2048, 4096, 1001])
        args["apply_rope_fusion"] = False
    if not mla and rng.random() < 0.2:
        args["num_query_groups"] = args["num_attention_heads"]
    if not moe and not mla and rng.random() < 0.15:
        args["attention_output_gate"] = True
    if moe:
        if rng.random() < 0.3:
            args["moe_layer_freq"] = [int(rng.random() < 0.6) for _ in range(args["num_layers"] - 1)] + [1]
        if rng.random() < 0.35:
            args["moe_shared_expert_intermediate_size"] = rng.choice([2048, 4096])
            args["moe_shared_expert_gate"] = rng.random() < 0.5
        if rng.random() < 0.2 and not mla:
            args["moe_router_score_function"] = "sigmoid"
            args["moe_router_enable_expert_bias"] = True
        if rng.random() < 0.2:
            args["moe_grouped_gemm"] = False
    if rng.random() < 0.25:
        args["mtp_num_layers"] = rng.choice([1, 2])
    if rng.random() < 0.1 and not mla:
        args["transformer_impl"] = "local"
        args["apply_rope_fusion"] = False
        args["moe_grouped_gemm"] = False


def _pipeline(args: dict[str, Any], rng: random.Random) -> int:
    """Pipeline size, virtual stages, uneven splits and layouts. Returns pp."""
    layers, mtp = args["num_layers"], args.get("mtp_num_layers") or 0
    pp = rng.choice([1, 1, 2, 2, 4])
    args["pipeline_model_parallel_size"] = pp
    if pp == 1:
        return pp
    kind = rng.random()
    if kind < 0.25:
        vpp = rng.choice([1, 2])
        units = ["E"] + ["t"] * layers
        stages = pp * vpp
        cuts = sorted(rng.sample(range(1, len(units)), stages - 1)) if len(units) > stages else list(range(1, stages))
        parts = ["".join(units[a:b]) for a, b in zip([0, *cuts], [*cuts, len(units)], strict=True)]
        parts[-1] += "m" * mtp + "L"
        args["pipeline_model_parallel_layout"] = "|".join(parts)
        return pp
    if kind < 0.45 and layers - 1 > pp:
        first = rng.randint(1, max(1, layers - pp))
        rest = layers - first
        if pp > 2:
            last = rest % (pp - 2) or (pp - 2)
            last = last if (rest - last) % (pp - 2) == 0 and last else rest
            args["decoder_last_pipeline_num_layers"] = last
        if pp == 2:
            args["decoder_last_pipeline_num_layers"] = rest
        args["decoder_first_pipeline_num_layers"] = first
        if (layers - first - args["decoder_last_pipeline_num_layers"]) < 0:
            del args["decoder_first_pipeline_num_layers"], args["decoder_last_pipeline_num_layers"]
        else:
            return pp
    if kind < 0.6 and (layers + 2) % pp == 0 and layers + 2 > pp:
        args["account_for_embedding_in_pipeline_split"] = args["account_for_loss_in_pipeline_split"] = True
        return pp
    while layers % pp:
        pp //= 2
    args["pipeline_model_parallel_size"] = pp
    if pp > 1 and rng.random() < 0.5:
        for vpp in (4, 3, 2):
            if (layers // pp) % vpp == 0:
                args["num_virtual_stages_per_pipeline_rank"] = vpp
                break
    return pp


def _degrees(args: dict[str, Any], pp: int, rng: random.Random) -> int:
    """TP, CP, EP, ETP and data parallelism. Returns the world size (at most 1,024)."""
    moe = "num_experts" in args
    tp = rng.choice([t for t in (1, 2, 4, 8) if args["num_query_groups"] % t == 0])
    cp = rng.choice([1, 1, 1, 2, 4])
    if args.get("transformer_impl") == "local":
        cp = 1  # upstream has context parallelism in TransformerEngine's attention alone
    args["tensor_model_parallel_size"], args["context_parallel_size"] = tp, cp
    args["sequence_parallel"] = tp > 1 and (moe or rng.random() < 0.8)
    dp = rng.choice([1, 2, 3, 4, 6, 8, 12, 24, 5])
    if moe:
        etp = rng.choice([1, 1, tp])
        args["expert_tensor_parallel_size"] = etp
        ways = tp * cp * dp
        choices = [e for e in (1, 2, 4, 8, 16, 32, 64) if args["num_experts"] % e == 0 and ways % (e * etp) == 0]
        ep = rng.choice(choices[-4:]) if choices else 1
        args["expert_model_parallel_size"] = ep
        if not choices:
            args["expert_tensor_parallel_size"] = tp
        if args["num_experts"] // ep > 64 and "pipeline_model_parallel_layout" not in args:  # keep the real thing quick
            args["num_layers"] = min(args["num_layers"], 8)
    world = tp * cp * pp * dp
    while world > 1024:
        raise ValueError("too many ranks")
    return world


def _optimizer(args: dict[str, Any], rng: random.Random, world: int) -> None:
    """Sharding, precision and bucketing."""
    args["overlap_grad_reduce"] = rng.random() < 0.7
    if rng.random() < 0.15:
        args["use_distributed_optimizer"] = False
        return
    if rng.random() < 0.25:
        args["ddp_pad_buckets_for_high_nccl_busbw"] = True
    if rng.random() < 0.25:
        args["ddp_bucket_size"] = rng.choice([10_000_000, 25_000_000, 100_000_000])
    if rng.random() < 0.25:
        args["grad_reduce_in_bf16"] = True
        args["accumulate_allreduce_grads_in_fp32"] = False
    local = args.get("transformer_impl") == "local"
    if rng.random() < 0.3 and not local:
        args["use_precision_aware_optimizer"] = True
        args["exp_avg_dtype"] = rng.choice(["fp32", "bf16", "fp16"])
        args["exp_avg_sq_dtype"] = rng.choice(["fp32", "bf16", "fp16"])
        if args["exp_avg_dtype"] != args["exp_avg_sq_dtype"] and rng.random() < 0.5:
            args["exp_avg_sq_dtype"] = args["exp_avg_dtype"]


def pairs(count: int, seed: int = 20260822) -> list[Pair]:
    """`count` (recipe, rank) pairs, two or three ranks of each recipe."""
    rng = random.Random(seed)
    out: list[Pair] = []
    while len(out) < count:
        args = _model(rng)
        _structure(args, rng)
        pp = _pipeline(args, rng)
        try:
            world = _degrees(args, pp, rng)
        except ValueError:
            continue
        freq = args.get("moe_layer_freq")
        if isinstance(freq, list) and len(freq) != args["num_layers"]:
            continue
        _optimizer(args, rng, world)
        stage = world // pp
        chosen = {0, world - 1, rng.randrange(world), (pp // 2) * stage + rng.randrange(stage)}
        for rank in sorted(chosen)[:3]:
            out.append(Pair(args, world, rank))
    return out[:count]
