"""Every parameter tensor of a stage, in the order in which Megatron-Core registers it.

The order matters: gradient buffers walk it backwards. Held against the real `GPTModel` of megatron-core 0.16.1
(tests/oracle), for the TransformerEngine and the local layer specs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.sizes import Sizes


class Param(NamedTuple):
    """One parameter of a rank (or `count` equal ones in a row). `numel` in elements on this rank."""

    name: str
    numel: Any
    expert: bool = False  # belongs to the expert grid (replicated over the expert data-parallel group)
    shared: bool = False  # flagged `shared_embedding`: gets a bucket of its own
    count: Any = 1
    gemm: bool = False  # the weight of a linear layer that runs in FP8 when the recipe says so
    inputs: Any = 0  # input width of a linear layer's weight


class Segment(NamedTuple):
    """`repeats` equal runs of parameters, e.g. the layers of one kind."""

    name: str
    params: tuple[Param, ...]
    repeats: int


def norm(name: str, width: Any, sizes: Sizes) -> list[Param]:
    """Weight, and bias unless it is an RMSNorm."""
    out = [Param(name + "weight", width)]
    if sizes.run.model.normalization != "RMSNorm":
        out.append(Param(name + "bias", width))
    return out


def attention(sizes: Sizes, te: bool) -> list[Param]:
    """Self-attention with grouped queries: linear_proj, linear_qkv (with the input norm inside for TE), qk norms."""
    model = sizes.run.model
    h, a, k, d, tp = sizes.h, sizes.A, sizes.k, sizes.d, sizes.tp
    out = [Param("linear_proj.weight", a * d // tp * h, gemm=True, inputs=a * d // tp)]
    if model.linear_bias:
        out.append(Param("linear_proj.bias", h))
    if te:
        out += norm("linear_qkv.layer_norm_", h, sizes)
    width = (a * (2 if model.attention_output_gate else 1) + 2 * k) * d // tp
    out.append(Param("linear_qkv.weight", width * h, gemm=True, inputs=h))
    if model.qkv_bias:
        out.append(Param("linear_qkv.bias", width))
    if model.qk_layernorm:
        out += norm("q_layernorm.", d, sizes) + norm("k_layernorm.", d, sizes)
    return out


def latent_attention(sizes: Sizes, te: bool) -> list[Param]:
    """Multi-latent attention. The down projections are replicated over tensor ranks (TE `duplicated` linears)."""
    model, mla = sizes.run.model, sizes.run.model.mla
    assert mla is not None
    h, a, tp = sizes.h, sizes.A, sizes.tp
    qd = mla.qk_head_dim + mla.qk_pos_emb_head_dim
    fused = te and model.qk_layernorm
    down = 1 if te else tp  # the local spec has column-parallel down projections
    values = a * mla.v_head_dim // tp
    out = [Param("linear_proj.weight", values * h, gemm=True, inputs=values)]
    if model.linear_bias:
        out.append(Param("linear_proj.bias", h))
    if mla.q_lora_rank is None:
        out.append(Param("linear_q_proj.weight", a * qd // tp * h, gemm=True, inputs=h))
    else:
        out.append(Param("linear_q_down_proj.weight", mla.q_lora_rank // down * h, gemm=True, inputs=h))
        if fused:
            out += norm("linear_q_up_proj.layer_norm_", mla.q_lora_rank, sizes)
        out.append(Param("linear_q_up_proj.weight", a * qd // tp * mla.q_lora_rank, gemm=True, inputs=mla.q_lora_rank))
    latent = (mla.kv_lora_rank + mla.qk_pos_emb_head_dim) // down
    out.append(Param("linear_kv_down_proj.weight", latent * h, gemm=True, inputs=h))
    if fused:
        out += norm("linear_kv_up_proj.layer_norm_", mla.kv_lora_rank, sizes)
    up = a * (mla.qk_head_dim + mla.v_head_dim) // tp
    out.append(Param("linear_kv_up_proj.weight", up * mla.kv_lora_rank, gemm=True, inputs=mla.kv_lora_rank))
    if model.qk_layernorm and not te:
        if mla.q_lora_rank is not None:
            out += norm("q_layernorm.", mla.q_lora_rank, sizes)
        out += norm("kv_layernorm.", mla.kv_lora_rank, sizes)
    return out


def mlp(sizes: Sizes, prefix: str, width: Any, te_norm: bool) -> list[Param]:
    """fc1 (with the pre-MLP norm inside for a dense TE layer) and fc2, both split over tensor ranks."""
    h, tp, bias = sizes.h, sizes.tp, sizes.run.model.linear_bias
    out = norm(prefix + "linear_fc1.layer_norm_", h, sizes) if te_norm else []
    out.append(Param(prefix + "linear_fc1.weight", sizes.fc1 * width // tp * h, gemm=True, inputs=h))
    if bias:
        out.append(Param(prefix + "linear_fc1.bias", sizes.fc1 * width // tp))
    out.append(Param(prefix + "linear_fc2.weight", width // tp * h, gemm=True, inputs=width // tp))
    if bias:
        out.append(Param(prefix + "linear_fc2.bias", h))
    return out


def experts(sizes: Sizes) -> list[Param]:
    """The routed experts of a rank, by implementation (grouped TE, legacy grouped, Turbo stacked, sequential).

    Without expert parallelism Megatron puts them into the dense buffers.
    """
    run = sizes.run
    moe = run.model.moe
    assert moe is not None
    local, etp, bias = sizes.local_experts, sizes.etp, run.model.linear_bias
    apart = not sizes.scalar or sizes.ep > 1
    width = moe.latent_size or sizes.h
    one, two = sizes.fc1 * sizes.g // etp, sizes.g // etp
    if moe.grouped_gemm and moe.legacy_grouped_gemm:
        return [
            Param("experts.weight1", width * one * local, apart, gemm=True, inputs=width),
            Param("experts.weight2", two * width * local, apart, gemm=True, inputs=two),
        ]
    if run.kernels.turbo_grouped_gemm:
        return [
            Param("experts.linear_fc1.weight", width * one * local, apart, gemm=True, inputs=width),
            Param("experts.linear_fc2.weight", two * width * local, apart, gemm=True, inputs=two),
        ]
    if moe.grouped_gemm and run.kernels.implementation != "local":
        out = [Param("experts.linear_fc1.weight*", one * width, apart, count=local, gemm=True, inputs=width)]
        if bias:
            out.append(Param("experts.linear_fc1.bias*", one, apart, count=local))
        out.append(Param("experts.linear_fc2.weight*", two * width, apart, count=local, gemm=True, inputs=two))
        if bias:
            out.append(Param("experts.linear_fc2.bias*", width, apart, count=local))
        return out
    expert = [Param("linear_fc1.weight", one * width, apart, gemm=True, inputs=width)]
    if bias:
        expert.append(Param("linear_fc1.bias", one, apart))
    expert.append(Param("linear_fc2.weight", two * width, apart, gemm=True, inputs=two))
    if bias:
        expert.append(Param("linear_fc2.bias", width, apart))
    if not sizes.scalar:  # on a grid the order inside the expert buffer does not matter
        return [param._replace(count=local) for param in expert]
    return [
        param._replace(name=f"experts.local_experts.{index}.{param.name}") for index in range(local) for param in expert
    ]


def moe_mlp(sizes: Sizes) -> list[Param]:
    """Router (replicated), latent projections, routed experts, shared experts."""
    model = sizes.run.model
    moe = model.moe
    assert moe is not None
    out = [Param("router.weight", sizes.E * sizes.h)]
    if model.linear_bias:
        out.append(Param("router.bias", sizes.E))
    if moe.latent_size:
        out.append(Param("fc1_latent_proj.weight", moe.latent_size * sizes.h, gemm=True, inputs=sizes.h))
        if model.linear_bias:
            out.append(Param("fc1_latent_proj.bias", moe.latent_size))
        out.append(Param("fc2_latent_proj.weight", moe.latent_size * sizes.h, gemm=True, inputs=moe.latent_size))
        if model.linear_bias:
            out.append(Param("fc2_latent_proj.bias", sizes.h))
    out += experts(sizes)
    if sizes.shared:
        if moe.shared_expert_gate:
            out.append(Param("shared_experts.gate_weight", sizes.h))
        out += mlp(sizes, "shared_experts.", sizes.shared, False)
    return out


def layer(sizes: Sizes, moe: bool) -> tuple[Param, ...]:
    """One transformer layer."""
    found: tuple[Param, ...] = sizes.once(("params of a layer", moe), lambda: _layer(sizes, moe))
    return found


def _layer(sizes: Sizes, moe: bool) -> tuple[Param, ...]:
    model = sizes.run.model
    te = sizes.run.kernels.implementation != "local"
    out: list[Param] = []
    if not te or model.mla is not None:
        out += norm("input_layernorm.", sizes.h, sizes)
    out += latent_attention(sizes, te) if model.mla is not None else attention(sizes, te)
    if moe:
        out += norm("pre_mlp_layernorm.", sizes.h, sizes)
        out += moe_mlp(sizes)
    else:
        if not te:
            out += norm("pre_mlp_layernorm.", sizes.h, sizes)
        out += mlp(sizes, "", sizes.f, te)
    return tuple(out)


def embedding(sizes: Sizes, shared: bool) -> tuple[Param, ...]:
    """Word embedding (rows split over tensor ranks) and learned positions (replicated)."""
    model = sizes.run.model
    out = [Param("word_embeddings.weight", sizes.V // sizes.tp * sizes.h, shared=shared)]
    if model.position_embedding == "learned_absolute":
        out.append(Param("position_embeddings.weight", model.max_position_embeddings * sizes.h))
    return tuple(out)


def mtp_layer(sizes: Sizes, moe: bool) -> tuple[Param, ...]:
    """One multi-token-prediction depth: two norms, eh_proj, a layer of the last decoder layer's kind, a norm."""
    h = sizes.h
    out = norm("enorm.", h, sizes) + norm("hnorm.", h, sizes)
    out.append(Param("eh_proj.weight", 2 * h * h // sizes.tp, gemm=True, inputs=2 * h))
    out += layer(sizes, moe)
    out += norm("final_layernorm.", h, sizes)
    return tuple(out)


def last_layer_is_moe(sizes: Sizes) -> bool:
    model = sizes.run.model
    return bool(model.moe is not None and model.moe.layer_is_moe[-1])


def final_norm_here(sizes: Sizes, chunk: Chunk) -> bool:
    """The final norm lives with the loss; where `mtp_num_layers` is set, to 0 as well, with the last decoder layer
    (Megatron-Core `has_final_layernorm_in_this_stage`)."""
    run = sizes.run
    with_layer = run.model.mtp_num_layers or run.args.get("mtp_num_layers") is not None
    return run.model.num_layers - 1 in chunk.layers if with_layer else chunk.loss


def chunk_segments(sizes: Sizes, chunk: Chunk) -> list[Segment]:
    """The parameters of one model chunk in registration order.

    Weights flagged `shared_embedding` (pipelined models only): the word embedding of the first stage when embeddings
    are tied or the model has MTP, MTP's copy of it, and the tied output weight of a last stage without MTP.
    """
    kinds = tuple(sizes.run.model.is_moe_layer(layer) for layer in chunk.layers)
    key = "segments", kinds, chunk.embedding, chunk.loss, chunk.mtp, final_norm_here(sizes, chunk)
    found: list[Segment] = sizes.once(key, lambda: _chunk_segments(sizes, chunk))
    return found


def _chunk_segments(sizes: Sizes, chunk: Chunk) -> list[Segment]:
    model = sizes.run.model
    tied = model.tied_embeddings
    piped = sizes.pp > 1
    out: list[Segment] = []
    if chunk.embedding or chunk.mtp:
        copied = bool(chunk.mtp) if not chunk.embedding else (tied or model.mtp_num_layers > 0) and not chunk.loss
        out.append(Segment("embedding", embedding(sizes, piped and copied), 1))
    start = 0
    layers = chunk.layers
    while start < len(layers):
        moe = model.is_moe_layer(layers[start])
        end = start
        while end < len(layers) and model.is_moe_layer(layers[end]) == moe:
            end += 1
        out.append(Segment("moe layer" if moe else "dense layer", layer(sizes, moe), end - start))
        start = end
    if final_norm_here(sizes, chunk):
        out.append(Segment("final norm", tuple(norm("final_layernorm.", sizes.h, sizes)), 1))
    if chunk.mtp:
        out.append(Segment("mtp layer", mtp_layer(sizes, last_layer_is_moe(sizes)), len(chunk.mtp)))
    if chunk.loss and not (tied and chunk.embedding):
        shared = piped and tied and not chunk.mtp
        weight = Param("output_layer.weight", sizes.V // sizes.tp * sizes.h, shared=shared, inputs=sizes.h)
        out.append(Segment("output layer", (weight,), 1))
    return out


def numel(segments: list[Segment], expert: bool | None = None) -> Any:
    """Elements of a chunk: all, or those of the dense (False) or expert (True) grid."""
    total: Any = 0
    for segment in segments:
        inner: Any = 0
        for param in segment.params:
            if expert is None or param.expert is expert:
                inner = inner + param.numel * param.count
        total = total + inner * segment.repeats
    return total
