"""What to measure of a recipe so that one device (or one process group) is enough. Imports no torch.

One rank's share of one layer of each kind is measured:
    pipeline parallelism    -> 1: one layer of each kind, the embedding and the head
    expert parallelism      -> 1: the experts of one rank, with the rows that balanced routing gives it
    tensor parallelism      -> 1: the share of one rank (heads, widths, vocabulary over tp)
Collectives are left out; the projection puts them back (see `projection.upscale`). The numbers measured are those of the
recipe's own degrees, so that nothing is rescaled unless the layer does not fit one device: then the micro-batch is halved
until it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.ir.record import replace
from primus_lint.projection import shapes
from primus_lint.projection.flops import projection_weights

if TYPE_CHECKING:
    from primus_lint.ir.run import Run

DEGREES = ("micro_batch_size", "seq_length", "tp", "cp", "ep", "etp", "sequence_parallel")


class Plan(NamedTuple):
    """`run` is the recipe as it is measured. `notes` say, line by line, what was reduced."""

    run: Run
    kinds: tuple[str, ...]
    gemms: tuple[shapes.Gemm, ...]
    notes: tuple[str, ...]


def plan(run: Run, memory_bytes: int) -> Plan:
    """What to measure of a recipe on a device with that much memory."""
    parallel, model = run.parallel, run.model
    notes = []
    if parallel.pp > 1:
        notes.append(f"pipeline parallelism {parallel.pp} -> 1: one layer of each kind, embedding and head apart")
    if model.moe is not None and parallel.ep > 1:
        local = model.moe.num_experts // parallel.ep
        notes.append(
            f"expert parallelism {parallel.ep} -> 1: {local} of {model.moe.num_experts} experts, balanced rows"
        )
    if parallel.tp > 1:
        notes.append(f"tensor parallelism {parallel.tp} -> 1: the share of one rank, without its collectives")
    if parallel.cp > 1:
        notes.append(f"context parallelism {parallel.cp}: the tokens of one rank, without its exchange")
    if run.precision.fp8 is not None or run.precision.fp4 is not None:
        notes.append(
            f"FP8 is not measured with plain PyTorch: what follows is in {run.precision.params_dtype} (attention and head count; "
            "import a Primus benchmark artefact or a hipblaslt-bench log for the rest)"
        )
    while layer_bytes(run) > 0.8 * memory_bytes and run.batch.micro_batch_size > 1:
        smaller = run.batch.micro_batch_size // 2
        notes.append(f"micro-batch {run.batch.micro_batch_size} -> {smaller}: the layer does not fit the device")
        run = replace(run, batch=replace(run.batch, micro_batch_size=smaller))
    kinds = tuple(kind for kind in ("dense_layer", "moe_layer", "embedding", "head") if has(run, kind))
    return Plan(run, kinds, tuple(gemms(run)), tuple(notes))


def has(run: Run, kind: str) -> bool:
    """Whether a model has such a part."""
    moe = run.model.moe
    if kind == "dense_layer":
        return moe is None or not all(moe.layer_is_moe)
    if kind == "moe_layer":
        return moe is not None and any(moe.layer_is_moe)
    return run.model.vocab_size is not None


def gemms(run: Run) -> list[shapes.Gemm]:
    """Every distinct product of the recipe, as one rank runs it on one micro-batch."""
    model, parallel, held = run.model, run.parallel, shapes.tokens(run)
    found = shapes.attention_gemms(model, parallel, held)
    if has(run, "dense_layer"):
        found += shapes.mlp_gemms(model, parallel, held, model.ffn_hidden_size)
    if model.moe is not None and has(run, "moe_layer"):
        routed = shapes.routing(model.moe, parallel, held)
        found.append(shapes.router_gemm(model, held))
        found += shapes.expert_gemms(model, parallel, routed)
        if model.moe.shared_expert_intermediate_size:
            found += shapes.mlp_gemms(model, parallel, held, model.moe.shared_expert_intermediate_size, "shared_")
    head = shapes.head_gemm(model, parallel, held)
    if head is not None:
        found.append(head)
    distinct: dict[Any, shapes.Gemm] = {}
    for gemm in found:
        distinct.setdefault((gemm.is_grouped, gemm.groups, gemm.m, gemm.n, gemm.k, gemm.dtype), gemm)
    return list(distinct.values())


def layer_weights(run: Run, kind: str) -> int:
    """Elements of one layer (or end) on one rank."""
    model, parallel = run.model, run.parallel
    if kind in ("embedding", "head"):
        gemm = shapes.head_gemm(model, parallel, shapes.tokens(run))
        return 0 if gemm is None else int(gemm.weights)
    total = projection_weights(model) // parallel.tp
    matrices = 3 if model.gated else 2
    if kind == "moe_layer" and model.moe is not None:
        moe = model.moe
        expert = matrices * model.hidden_size * moe.ffn_hidden_size // parallel.etp
        shared = matrices * model.hidden_size * moe.shared_expert_intermediate_size // parallel.tp
        return int(total + expert * (moe.num_experts // parallel.ep) + shared + model.hidden_size * moe.num_experts)
    return int(total + matrices * model.hidden_size * model.ffn_hidden_size // parallel.tp)


def layer_bytes(run: Run) -> int:
    """Bytes that measuring the largest part takes: weights and gradients, and generously what is kept for backward."""
    size = {"fp32": 4}.get(run.precision.params_dtype, 2)
    held = shapes.tokens(run).gathered
    model = run.model
    most = 0
    for kind in ("dense_layer", "moe_layer", "head"):
        if not has(run, kind):
            continue
        if kind == "head":
            head = shapes.head_gemm(model, run.parallel, shapes.tokens(run))
            kept = 0 if head is None else held * head.n * (3 * size + 8)
        else:
            width = model.ffn_hidden_size
            if kind == "moe_layer" and model.moe is not None:
                width = model.moe.ffn_hidden_size * model.moe.router_topk + model.moe.shared_expert_intermediate_size
            kept = held * size * (16 * model.hidden_size + 8 * width // run.parallel.tp)
        most = max(most, 2 * size * layer_weights(run, kind) + kept)
    return most


def layer_shape(run: Run, kind: str) -> dict[str, Any]:
    """The facts that decide how long a part takes on one rank, and the degrees it was measured at (DEGREES)."""
    model, batch, parallel = run.model, run.batch, run.parallel
    shape: dict[str, Any] = {
        "hidden_size": model.hidden_size,
        "normalization": model.normalization,
        "micro_batch_size": batch.micro_batch_size,
        "seq_length": batch.seq_length,
        "tp": parallel.tp,
        "cp": parallel.cp,
        "sequence_parallel": parallel.sequence_parallel * 1,  # as a number: it may be an array
    }
    if kind in ("embedding", "head"):
        shape["vocab_size"] = model.vocab_size
        shape["vocab_divisor"] = model.vocab_divisor
        if kind == "head":
            shape["loss"] = run.kernels.cross_entropy_fusion or "unfused"
        return shape
    shape.update(_attention_shape(run))
    if kind == "dense_layer":
        shape["ffn_hidden_size"] = model.ffn_hidden_size
    elif model.moe is not None:
        moe = model.moe
        shape.update(
            ep=parallel.ep,
            etp=parallel.etp,
            num_experts=moe.num_experts,
            router_topk=moe.router_topk,
            moe_ffn_hidden_size=moe.ffn_hidden_size,
            shared_expert_intermediate_size=moe.shared_expert_intermediate_size,
            grouped="one"
            if moe.grouped_gemm and (moe.legacy_grouped_gemm or run.kernels.turbo_grouped_gemm)
            else "each",
        )
        if moe.capacity_factor is not None:
            shape["capacity_factor"] = moe.capacity_factor
    return shape


def _attention_shape(run: Run) -> dict[str, Any]:
    from primus_lint.projection.compute import unfused

    model = run.model
    shape: dict[str, Any] = {
        "num_attention_heads": model.num_attention_heads,
        "attention": "unfused" if unfused(run) else "fused",
        "activation": ("gated " if model.gated else "") + model.activation,
        "position_embedding": model.position_embedding,
        "dropout": max(model.hidden_dropout, model.attention_dropout),
    }
    if model.mla is not None:
        for name in model.mla._fields:
            shape[name] = getattr(model.mla, name)
    else:
        shape["num_query_groups"], shape["kv_channels"] = model.num_query_groups, model.kv_channels
        shape["qk_layernorm"] = int(model.qk_layernorm)
        shape["output_gate"] = int(model.attention_output_gate)
    if model.window_size is not None:
        shape["window"] = list(model.window_size)
    return shape
