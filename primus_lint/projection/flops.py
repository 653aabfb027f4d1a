"""Floating-point operations of one training step, by two conventions.

`model_flops_per_token` is what Megatron-LM logs as TFLOP/s (`num_floating_point_operations`, transformer branch): three
times the forward pass, a multiply-add counted as two, causal attention at half its square, the padded vocabulary, the
experts that a token visits, no router, no norms, no recomputation. Tokens/s do not depend on it; TFLOP/s
and MFU do, and publishers differ by up to 20 %, so that the convention is named wherever they are printed.

`hardware_flops_per_token` is what the device executes: the router, and what is recomputed, on top.

Every number is per token of the batch and for the whole model (all ranks together).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import round_up

if TYPE_CHECKING:
    from primus_lint.ir.run import Model, Run

FORWARD_AND_BACKWARD = 3  # dgrad and wgrad cost one forward pass each
MULTIPLY_ADD = 2


class LayerFlops:
    """Forward FLOPs per token of the parts of a transformer layer (multiply-add = 2)."""

    __slots__ = ("attention", "mlp", "projections", "router")

    def __init__(
        self,
        projections: Any,  # QKV (or the MLA chain) and output projection
        attention: Any,  # the two products of the attention core
        mlp: Any,  # dense MLP, or the visited experts plus the shared expert
        router: Any,
    ) -> None:
        self.projections = projections
        self.attention = attention
        self.mlp = mlp
        self.router = router

    @property
    def total(self) -> Any:
        return self.projections + self.attention + self.mlp + self.router


def padded_vocab(model: Model, tp: Any) -> Any:
    """Rows of the embedding over all tensor-parallel ranks; None when the vocabulary is unknown."""
    return None if model.vocab_size is None else round_up(model.vocab_size, model.vocab_divisor * tp)


def attention_width(model: Model) -> tuple[Any, Any]:
    """(width of queries and keys, width of values) over all heads that the attention core multiplies."""
    if model.mla is not None:
        heads = model.num_attention_heads
        return heads * (model.mla.qk_head_dim + model.mla.qk_pos_emb_head_dim), heads * model.mla.v_head_dim
    width = model.num_attention_heads * model.kv_channels
    return width, width


def projection_weights(model: Model) -> Any:
    """Elements of the attention projections of one layer, all tensor-parallel ranks together (no norms, no biases)."""
    hidden, heads = model.hidden_size, model.num_attention_heads
    if model.mla is not None:
        mla = model.mla
        query_dim = mla.qk_head_dim + mla.qk_pos_emb_head_dim
        if mla.q_lora_rank is None:
            query = hidden * heads * query_dim
        else:
            query = mla.q_lora_rank * (hidden + heads * query_dim)
        key_value = mla.kv_lora_rank * (hidden + heads * (mla.qk_head_dim + mla.v_head_dim))
        return query + key_value + hidden * mla.qk_pos_emb_head_dim + heads * mla.v_head_dim * hidden
    width = heads * model.kv_channels
    gate = width if model.attention_output_gate else 0
    return hidden * (width + gate + 2 * model.num_query_groups * model.kv_channels) + width * hidden


def mlp_weights(model: Model, ffn_hidden_size: Any) -> Any:
    """Elements of the two (gated: three) matrices of an MLP."""
    return (3 if model.gated else 2) * model.hidden_size * ffn_hidden_size


def attended_tokens(model: Model, seq_length: Any) -> Any:
    """Mean number of keys that a query meets under the causal mask: half the sequence (Megatron's convention)."""
    return seq_length / 2


def layer_flops(model: Model, seq_length: Any, moe: bool) -> LayerFlops:
    """Forward FLOPs per token of one decoder layer."""
    key_width, value_width = attention_width(model)
    core = (key_width + value_width) * attended_tokens(model, seq_length)
    router: Any = 0
    if moe:
        experts = model.moe
        assert experts is not None
        visited = mlp_weights(model, experts.ffn_hidden_size) * experts.router_topk
        mlp = visited + mlp_weights(model, experts.shared_expert_intermediate_size)
        router = model.hidden_size * experts.num_experts
    else:
        mlp = mlp_weights(model, model.ffn_hidden_size)
    return LayerFlops(
        MULTIPLY_ADD * projection_weights(model), MULTIPLY_ADD * core, MULTIPLY_ADD * mlp, MULTIPLY_ADD * router
    )


def head_flops(model: Model, tp: Any) -> Any:
    """Forward FLOPs per token of one logits projection; None without a vocabulary."""
    vocab = padded_vocab(model, tp)
    return None if vocab is None else MULTIPLY_ADD * model.hidden_size * vocab


def mtp_flops(model: Model) -> Any:
    """Forward FLOPs per token of one multi-token-prediction depth beside its layer and head: norms and 2h -> h."""
    return MULTIPLY_ADD * (3 * model.hidden_size + 2 * model.hidden_size * model.hidden_size)


def forward_flops(model: Model, seq_length: Any, tp: Any, router: bool) -> Any:
    """Forward FLOPs per token of the whole model; None without a vocabulary. `router`: count the routing products."""
    head = head_flops(model, tp)
    if head is None:
        return None
    moe_layers = sum(model.moe.layer_is_moe) if model.moe is not None else 0
    last_is_moe = model.num_layers > 0 and model.is_moe_layer(model.num_layers - 1)
    dense_layers = model.num_layers - moe_layers
    if last_is_moe:
        moe_layers += model.mtp_num_layers
    else:
        dense_layers += model.mtp_num_layers
    total: Any = head * (model.mtp_num_layers + 1) + mtp_flops(model) * model.mtp_num_layers
    for count, moe in ((dense_layers, False), (moe_layers, True)):
        if count:
            layer = layer_flops(model, seq_length, moe)
            total = total + count * (layer.total if router else layer.total - layer.router)
    return total


def model_flops_per_token(run: Run) -> Any:
    """FLOPs per token, forward and backward, by Megatron's convention; None without a vocabulary."""
    forward = forward_flops(run.model, run.batch.seq_length, run.parallel.tp, router=False)
    return None if forward is None else FORWARD_AND_BACKWARD * forward
