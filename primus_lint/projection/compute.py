"""Time of one block (attention, MLP, mixture of experts, embedding, head) on one rank and one micro-batch.

Forward, input gradient (with everything else of the backward) and weight gradient are kept apart, because schedules
split them and because communication hides behind one of them. Communication inside a block comes from `comm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.ledger import lora
from primus_lint.projection import comm, cost, shapes, traffic
from primus_lint.projection.cost import Cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.ir.run import Run
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.device import Device
    from primus_lint.projection.placement import Placement
    from primus_lint.projection.shapes import Gemm, Routing, Tokens


class Block:
    """Seconds of a block: `forward`, `backward` (input gradients, communication, memory-bound work) and `weight`.

    `weights` are the elements of its matrices on the rank, `experts` those of its experts, both without norms; launches
    are the kernels that the host launches. A block is filled in place.
    """

    __slots__ = (
        "alone", "backward", "backward_launches", "exchange", "experts", "forward", "forward_launches", "weight", "weights",
    )  # fmt: skip

    def __init__(self) -> None:
        self.forward, self.backward, self.weight = Cost(), Cost(), Cost()
        self.weights: Any = 0
        self.experts: Any = 0
        self.forward_launches: Any = 0
        self.backward_launches: Any = 0
        self.exchange: Pair = cost.ZERO  # of tokens, one pass, where it is overlapped with other micro-batches
        self.alone = Cost()  # what both passes take longer where no other micro-batch runs beside them

    def each(self, change: Callable[[Any], Any]) -> Block:
        """A block whose numbers are all changed in the same way."""
        out = Block()
        out.forward, out.backward = self.forward.each(change), self.backward.each(change)
        out.weight, out.alone = self.weight.each(change), self.alone.each(change)
        out.weights, out.experts = change(self.weights), change(self.experts)
        out.launched(change(self.forward_launches), change(self.backward_launches))
        if self.exchange is not cost.ZERO:
            out.exchange = change(self.exchange[0]), change(self.exchange[1])
        return out

    def merge(self, other: Block) -> None:
        self.forward.merge(other.forward)
        self.backward.merge(other.backward)
        self.weight.merge(other.weight)
        self.weights = self.weights + other.weights
        self.experts = self.experts + other.experts
        self.launched(other.forward_launches, other.backward_launches)

    def launched(self, forward: Any, backward: Any) -> None:
        self.forward_launches = self.forward_launches + forward
        self.backward_launches = self.backward_launches + backward


class Context:
    """What every block of a recipe needs."""

    __slots__ = ("device", "fp8", "held", "place", "priced", "routed", "run")

    def __init__(
        self,
        run: Run,
        device: Device,
        place: Placement,
        held: Tokens,
        routed: Routing | None,
        fp8: bool,  # this layer computes its products in FP8
    ) -> None:
        self.run = run
        self.device = device
        self.place = place
        self.held = held
        self.routed = routed
        self.fp8 = fp8
        self.priced: dict[tuple[str, Any], Pair] = {}  # tensor-parallel collectives by operation and bytes of a token


def dtype_of(context: Context, gemm: Gemm) -> str:
    """The number format that a product runs in."""
    if gemm.dtype:
        return gemm.dtype
    precision = context.run.precision
    if gemm.low_precision and context.fp8 and not (gemm.is_grouped and context.run.experts_in_16_bits):
        return "fp4" if precision.fp4 else "fp8"
    return precision.params_dtype


def linear(context: Context, gemm: Gemm) -> Block:
    """One product with its casts and the tensor-parallel communication that hangs on it, and its adapter under LoRA."""
    block = product(context, gemm)
    if not lora.enabled(context.run):
        return block
    block.weight, block.weights, block.experts = Cost(), 0, 0  # a frozen weight has no gradient
    if gemm.target in lora.targets(context.run):
        adapter = Block()
        for half in shapes.adapter_gemms(gemm, lora.dimension(context.run), context.run.parallel):
            adapter.merge(product(context, half))
        moved(context, adapter, traffic.adapter(context.run, gemm))
        if gemm.is_grouped:
            adapter.weights, adapter.experts = 0, adapter.weights
        block.merge(adapter)
    return block


def product(context: Context, gemm: Gemm) -> Block:
    """One product of which all is computed."""
    device, block = context.device, Block()
    kind = cost.GROUPED_GEMM if gemm.is_grouped else cost.GEMM
    dtype = dtype_of(context, gemm)
    forward, dgrad, wgrad = device.gemm(gemm, dtype)
    block.forward.add(kind, forward)
    block.backward.add(kind, dgrad)
    block.weight.add(kind, wgrad)
    calls = traffic.per_expert(context.run, gemm.groups) if gemm.is_grouped else 1
    block.launched(calls, 2 * calls)
    block.launched(*comm.launches(context, gemm))
    if dtype in ("fp8", "fp4") and device.quantizes(gemm, dtype):
        moved(context, block, traffic.fp8_casts(context.run, gemm))
    comm.tensor_parallel(context, gemm, block, (forward, dgrad, wgrad))
    if gemm.is_grouped:
        block.experts = gemm.weights
    else:
        block.weights = gemm.weights
    return block


def products(context: Context, gemms: list[Gemm]) -> Block:
    """A block of several products."""
    block = Block()
    for gemm in gemms:
        block.merge(linear(context, gemm))
    return block


def moved(context: Context, block: Block, bytes_: traffic.Traffic, kind: str = "elementwise") -> None:
    """Add memory-bound work to a block; `kind` is "elementwise", "permute" or "cross_entropy"."""
    device = context.device
    block.forward.add(cost.MEMORY, device.memory(bytes_.forward_bytes, kind))
    block.backward.add(cost.MEMORY, device.memory(bytes_.backward_bytes, kind))
    block.launched(bytes_.forward_kernels, bytes_.backward_kernels)


class AttentionShape:
    """The attention core of one rank under context parallelism."""

    __slots__ = ("batch", "heads", "key_dim", "kv_heads", "seq_length", "share", "value_dim")

    def __init__(
        self,
        batch: Any,
        heads: Any,
        kv_heads: Any,
        seq_length: Any,  # of one causal problem with the same work as the rank's share
        share: Any,  # of that problem's work
        key_dim: Any,
        value_dim: Any,
    ) -> None:
        self.batch = batch
        self.heads = heads
        self.kv_heads = kv_heads
        self.seq_length = seq_length
        self.share = share
        self.key_dim = key_dim
        self.value_dim = value_dim


def attention_shape(run: Run) -> AttentionShape:
    """Gathered context parallelism splits the causal square evenly over the ranks (load-balanced halves), all-to-all splits the
    heads and keeps the whole sequence. A ring computes cp pieces one after the other, each with as much work as a causal
    problem of S/cp: its own keys (causal), then half of the queries or of the keys of every other rank (TransformerEngine
    `AttnFuncWithCPAndKVP2P`)."""
    model, parallel = run.model, run.parallel
    heads = maximum(model.num_attention_heads // parallel.tp, 1)
    if model.mla is not None:
        key_dim, value_dim = model.mla.qk_head_dim + model.mla.qk_pos_emb_head_dim, model.mla.v_head_dim
        kv_heads = heads
    else:
        key_dim = value_dim = model.kv_channels
        kv_heads = maximum(model.num_query_groups // parallel.tp, 1)
    batch, seq = run.batch.micro_batch_size, run.batch.seq_length
    if parallel.cp_comm_type == "p2p" and model.window_size is None:
        return AttentionShape(batch, heads, kv_heads, seq / parallel.cp, parallel.cp, key_dim, value_dim)
    return AttentionShape(batch, heads, kv_heads, seq, 1 / parallel.cp, key_dim, value_dim)


def attention_core(context: Context) -> Block:
    """The attention core with its context-parallel communication. It has no weights: the backward is one piece."""
    shape = attention_shape(context.run)
    if unfused(context.run):
        return unfused_core(context, shape)
    block = Block()
    forward, backward = context.device.attention(shape, context.run)
    block.forward.add(cost.ATTENTION, forward)
    block.backward.add(cost.ATTENTION, backward)
    block.launched(2, 4)
    comm.context_parallel(context, block, forward, backward)
    return block


def unfused(run: Run) -> bool:
    """Whether attention runs as two products and a softmax (`local` or `unfused` back end) and not as one kernel."""
    kernels = run.kernels
    if kernels.turbo_attention:
        return False
    return kernels.attention_backend in ("unfused", "local") or kernels.implementation == "local"


def unfused_core(context: Context, shape: AttentionShape) -> Block:
    """Scores, softmax, weighted values: the whole square is computed and kept in memory (no causal saving).

    Heads whose rows are no multiple of 16 bytes start at odd addresses: their products miss the tensor cores and run at the
    fp32 rate (NVIDIA, matrix multiplication background: operands aligned to 16 bytes).
    """
    block = Block()
    rows = shape.batch * shape.heads * shape.seq_length * shape.share
    moved(context, block, traffic.softmax(context.run, rows * shape.seq_length))
    scores = shapes.Gemm("scores", rows, shape.seq_length, shape.key_dim, low_precision=False)
    values = shapes.Gemm("values", rows, shape.value_dim, shape.seq_length, low_precision=False)
    size = traffic.ELEMENT_BYTES[context.run.precision.params_dtype]
    aligned = context.device.accelerator.vendor != "nvidia" or shape.key_dim * size % 16 == 0
    for gemm in (scores, values):
        forward, dgrad, wgrad = context.device.gemm(gemm, dtype_of(context, gemm) if aligned else "fp32")
        block.forward.add(cost.ATTENTION, forward)
        block.backward.add(cost.ATTENTION, dgrad)
        block.backward.add(cost.ATTENTION, wgrad)
    block.launched(2, 4)
    return block


def attention_half(context: Context) -> Block:
    """Norm, projections, core and residual."""
    run = context.run
    block = products(context, shapes.attention_gemms(run.model, run.parallel, context.held))
    moved(context, block, traffic.attention_block(run, context.held))
    block.merge(attention_core(context))
    return block


def mlp_half(context: Context) -> Block:
    """The dense MLP with its norm and residual."""
    run = context.run
    block = products(context, shapes.mlp_gemms(run.model, run.parallel, context.held, run.model.ffn_hidden_size))
    moved(context, block, traffic.mlp_block(run, context.held, run.model.ffn_hidden_size))
    return block


def last_product(context: Context) -> Cost:
    """The forward of what follows the last tensor that the backward of a dense layer needs: the down projection, whose output
    is only added to the residual, and that sum."""
    run = context.run
    last = shapes.mlp_gemms(run.model, run.parallel, context.held, run.model.ffn_hidden_size)[-1]
    found = linear(context, last).forward
    size = traffic.ELEMENT_BYTES[run.precision.params_dtype]
    summed = traffic.residual(run, context.held.local * run.model.hidden_size, size)
    found.add(cost.MEMORY, context.device.memory(summed.forward_bytes))
    return found


def by_operation(context: Context, experts: Cost | None = None) -> Cost:
    """What TorchTitan's selective recomputation by operation repeats of a layer (`_apply_op_sac`): it keeps attention,
    reduce-scatters, and of the 16-bit products (wq, wk, wv, wo, w1, w3, w2; of latent attention wq_a, wq_b, wkv_a, wkv_b, wo,
    and so on) every other one from the first on. Products in float8 and grouped ones are other operations, which are not on
    its list; the exchange of tokens is. `experts`: the forward of the layer's mixture of experts, if it has one.
    """
    run = context.run
    model, parallel = run.model, run.parallel
    query = model.num_attention_heads * model.kv_channels // parallel.tp
    key = model.kv_channels * maximum(model.num_query_groups // parallel.tp, 1)
    in_one = {"qkv": (query, key, key), "fc1": (1, 1)}  # widths of the products that are one here
    again = Cost()
    gemms = shapes.attention_gemms(model, parallel, context.held)
    moved = traffic.attention_block(run, context.held)
    if experts is None:
        gemms = [*gemms, *shapes.mlp_gemms(model, parallel, context.held, model.ffn_hidden_size)]
        moved = moved.plus(traffic.mlp_block(run, context.held, model.ffn_hidden_size))
    else:
        for kind, pair in experts.parts.items():
            if kind != cost.EP:
                again.add(kind, pair)
    count = 0
    for gemm in gemms:
        widths = in_one.get(gemm.name, (1,))
        repeated = sum(width for at, width in enumerate(widths, count) if at % 2)
        count += len(widths)
        share = 1.0 if context.fp8 else repeated / sum(widths)
        for kind, pair in linear(context, gemm).forward.parts.items():
            if kind not in (cost.TP, cost.CONTENTION):
                again.add(kind, pair, share)
            elif gemm.parallel == "column":  # the gather in front of it; what a row-parallel one scatters is kept
                again.add(kind, pair)
    again.add(cost.MEMORY, context.device.memory(moved.forward_bytes))
    return again


def shared_experts(context: Context) -> Block:
    """The products of the shared experts; empty without them."""
    experts = context.run.model.moe
    if experts is None or not experts.shared_expert_intermediate_size:
        return Block()
    width = experts.shared_expert_intermediate_size
    return products(context, shapes.mlp_gemms(context.run.model, context.run.parallel, context.held, width, "shared_"))


def expert_half(context: Context) -> Block:
    """Router, dispatch, experts, combine and shared experts."""
    run, routed = context.run, context.routed
    experts = run.model.moe
    assert experts is not None and routed is not None
    gemms = [shapes.router_gemm(run.model, context.held), *shapes.expert_gemms(run.model, run.parallel, routed)]
    block = products(context, gemms)
    moved(context, block, traffic.moe_block(run, experts, run.parallel, context.held, routed))
    moved(context, block, traffic.permutations(run, experts, context.held, routed), "permute")
    shared = shared_experts(context)
    comm.expert_parallel(context, block, shared)
    block.merge(shared)
    exchanges = (run.parallel.ep > 1) * 3  # counts, dispatch, combine
    block.launched(exchanges, exchanges)
    return block


def embedding(context: Context) -> Block:
    """Vocabulary look-up with its reduction over tensor-parallel ranks."""
    block = Block()
    moved(context, block, traffic.embedding_block(context.run, context.held))
    comm.embedding(context, block)
    return block


def head(context: Context) -> Block | None:
    """Final norm, logits and loss; None without a vocabulary. Its weights are left out: they may be shared, so that
    `layers.vocabulary_weights` counts them once per stage."""
    run = context.run
    gemm = shapes.head_gemm(run.model, run.parallel, context.held)
    if gemm is None:
        return None
    block = linear(context, gemm)
    block.weights = 0
    moved(context, block, traffic.final_norm(run, context.held))
    # one fused kernel has a share of bandwidth of its own; the unfused chain is counted step by step
    kind = "cross_entropy" if run.kernels.cross_entropy_fusion in ("te", "linear") else "elementwise"
    moved(context, block, traffic.cross_entropy(run, gemm.m * gemm.n), kind)
    comm.loss(context, block)
    return block


def mtp_extra(context: Context) -> Block:
    """What a multi-token-prediction depth adds to its layer and its head: two norms and the 2h -> h projection."""
    run = context.run
    size = traffic.ELEMENT_BYTES[run.precision.params_dtype]
    block = linear(context, shapes.mtp_gemm(run.model, run.parallel, context.held))
    rows = 2 * context.held.local * run.model.hidden_size
    moved(context, block, traffic.norm(run.kernels, run.model.normalization, rows, size))
    return block
