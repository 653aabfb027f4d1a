"""Time of one block (attention, MLP, mixture of experts, embedding, head) on one rank and one micro-batch.

Forward, input gradient (with everything else of the backward) and weight gradient are kept apart, because schedules
split them and because communication hides behind one of them. Communication inside a block comes from `comm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.formula import maximum
from primus_lint.projection import comm, cost, shapes, traffic
from primus_lint.projection.cost import Cost

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.projection.device import Device
    from primus_lint.projection.placement import Placement
    from primus_lint.projection.shapes import Gemm, Routing, Tokens


class Block(NamedTuple):
    """Seconds of a block: `forward`, `backward` (input gradients, communication, memory-bound work) and `weight`.

    `weights` are the elements of its matrices on the rank, `experts` those of its experts; both without norms.
    """

    forward: Cost
    backward: Cost
    weight: Cost
    weights: Any = 0
    experts: Any = 0
    launches: tuple[Any, Any] = (0, 0)  # kernels that the host launches, forward and backward

    def plus(self, other: Block) -> Block:
        return Block(
            self.forward + other.forward,
            self.backward + other.backward,
            self.weight + other.weight,
            self.weights + other.weights,
            self.experts + other.experts,
            (self.launches[0] + other.launches[0], self.launches[1] + other.launches[1]),
        )


class Context(NamedTuple):
    """What every block of a recipe needs."""

    run: Run
    device: Device
    place: Placement
    held: Tokens
    routed: Routing | None
    fp8: bool  # this layer computes its products in FP8


def dtype_of(context: Context, gemm: Gemm) -> str:
    """The number format that a product runs in."""
    if gemm.dtype:
        return gemm.dtype
    precision = context.run.precision
    if gemm.low_precision and context.fp8:
        return "fp4" if precision.fp4 else "fp8"
    return precision.params_dtype


def linear(context: Context, gemm: Gemm) -> Block:
    """One product with its casts and the tensor-parallel communication that hangs on it."""
    device, dtype = context.device, dtype_of(context, gemm)
    kind = cost.GROUPED_GEMM if gemm.is_grouped else cost.GEMM
    forward, dgrad, wgrad = device.gemm(gemm, dtype)
    calls = _calls(context, gemm)
    collectives = comm.launches(context, gemm)
    launches = (calls + collectives[0], 2 * calls + collectives[1])
    block = Block(Cost({kind: forward}), Cost({kind: dgrad}), Cost({kind: wgrad}), launches=launches)
    if gemm.low_precision and context.fp8:
        casts = traffic.fp8_casts(context.run, gemm)
        block = block._replace(launches=(launches[0] + casts.forward_kernels, launches[1] + casts.backward_kernels))
        block.forward.add(cost.MEMORY, device.memory(casts.forward_bytes, casts.forward_kernels))
        block.backward.add(cost.MEMORY, device.memory(casts.backward_bytes, casts.backward_kernels))
    comm.tensor_parallel(context, gemm, block, (forward, dgrad, wgrad))
    if gemm.is_grouped:
        return block._replace(experts=gemm.weights)
    return block._replace(weights=gemm.weights)


def _calls(context: Context, gemm: Gemm) -> Any:
    """Kernels that the host launches for one product: TransformerEngine's grouped product is a call per expert, the
    CUTLASS (legacy) and Primus-Turbo ones are a single kernel."""
    kernels, experts = context.run.kernels, context.run.model.moe
    if not gemm.is_grouped or experts is None:
        return 1
    single = (experts.legacy_grouped_gemm or kernels.turbo_grouped_gemm) and experts.grouped_gemm
    return 1 if single else gemm.groups


def total(context: Context, gemms: list[Gemm], moved: traffic.Traffic) -> Block:
    """A block of products and memory-bound work."""
    block = memory_bound(context, moved)
    for gemm in gemms:
        block = block.plus(linear(context, gemm))
    return block


def memory_bound(context: Context, moved: traffic.Traffic, kind: str = "elementwise") -> Block:
    """Memory-bound work; `kind` is "elementwise", "permute" or "cross_entropy"."""
    device = context.device
    return Block(
        Cost({cost.MEMORY: device.memory(moved.forward_bytes, moved.forward_kernels, kind)}),
        Cost({cost.MEMORY: device.memory(moved.backward_bytes, moved.backward_kernels, kind)}),
        Cost(),
        launches=(moved.forward_kernels, moved.backward_kernels),
    )


class AttentionShape(NamedTuple):
    """The attention core of one rank under context parallelism."""

    batch: Any
    heads: Any
    kv_heads: Any
    seq_length: Any  # of one causal problem with the same work as the rank's share
    share: Any  # of that problem's work
    key_dim: Any
    value_dim: Any


def attention_shape(run: Run) -> AttentionShape:
    """Ring and gathered context parallelism split the causal square evenly over the ranks (load-balanced halves);
    all-to-all splits the heads and keeps the whole sequence."""
    model, parallel = run.model, run.parallel
    heads = maximum(model.num_attention_heads // parallel.tp, 1)
    if model.mla is not None:
        key_dim, value_dim = model.mla.qk_head_dim + model.mla.qk_pos_emb_head_dim, model.mla.v_head_dim
        kv_heads = heads
    else:
        key_dim = value_dim = model.kv_channels
        kv_heads = maximum(model.num_query_groups // parallel.tp, 1)
    batch, seq = run.batch.micro_batch_size, run.batch.seq_length
    return AttentionShape(batch, heads, kv_heads, seq, 1 / parallel.cp, key_dim, value_dim)


def attention_core(context: Context) -> Block:
    """The attention core with its context-parallel communication. It has no weights: the backward is one piece."""
    shape = attention_shape(context.run)
    if unfused(context.run):
        return unfused_core(context, shape)
    forward, backward = context.device.attention(shape, context.run)
    block = Block(Cost({cost.ATTENTION: forward}), Cost({cost.ATTENTION: backward}), Cost(), launches=(2, 4))
    comm.context_parallel(context, block, forward, backward)
    return block


def unfused(run: Run) -> bool:
    """Whether attention runs as two products and a softmax (`local` or `unfused` back end) and not as one kernel."""
    kernels = run.kernels
    if kernels.turbo_attention:
        return False
    return kernels.attention_backend in ("unfused", "local") or kernels.implementation == "local"


def unfused_core(context: Context, shape: AttentionShape) -> Block:
    """Scores, softmax, weighted values: the whole square is computed and kept in memory (no causal saving)."""
    rows = shape.batch * shape.heads * shape.seq_length * shape.share
    scores = shapes.Gemm("scores", rows, shape.seq_length, shape.key_dim, low_precision=False)
    values = shapes.Gemm("values", rows, shape.value_dim, shape.seq_length, low_precision=False)
    block = memory_bound(context, traffic.softmax(context.run, rows * shape.seq_length))
    for gemm in (scores, values):
        forward, dgrad, wgrad = context.device.gemm(gemm, dtype_of(context, gemm))
        block.forward.add(cost.ATTENTION, forward)
        block.backward.add(cost.ATTENTION, dgrad)
        block.backward.add(cost.ATTENTION, wgrad)
    return block._replace(launches=(block.launches[0] + 2, block.launches[1] + 4))


def attention_half(context: Context) -> Block:
    """Norm, projections, core and residual."""
    run = context.run
    gemms = shapes.attention_gemms(run.model, run.parallel, context.held)
    return total(context, gemms, traffic.attention_block(run, context.held)).plus(attention_core(context))


def mlp_half(context: Context) -> Block:
    """The dense MLP with its norm and residual."""
    run = context.run
    gemms = shapes.mlp_gemms(run.model, run.parallel, context.held, run.model.ffn_hidden_size)
    return total(context, gemms, traffic.mlp_block(run, context.held, run.model.ffn_hidden_size))


def expert_half(context: Context) -> Block:
    """Router, dispatch, experts, combine and shared experts."""
    run, routed = context.run, context.routed
    experts = run.model.moe
    assert experts is not None and routed is not None
    gemms = [shapes.router_gemm(run.model, context.held), *shapes.expert_gemms(run.model, run.parallel, routed)]
    moved = traffic.moe_block(run, experts, run.parallel, context.held, routed)
    block = total(context, gemms, moved)
    permuted = traffic.permutations(run, experts, context.held, routed)
    block = block.plus(memory_bound(context, permuted, "permute"))
    shared = Block(Cost(), Cost(), Cost())
    if experts.shared_expert_intermediate_size:
        width = experts.shared_expert_intermediate_size
        for gemm in shapes.mlp_gemms(run.model, run.parallel, context.held, width, "shared_"):
            shared = shared.plus(linear(context, gemm))
    comm.expert_parallel(context, block, shared)
    exchanges = (run.parallel.ep > 1) * 3  # counts, dispatch, combine
    return block.plus(shared)._replace(
        launches=(
            block.launches[0] + shared.launches[0] + exchanges,
            block.launches[1] + shared.launches[1] + exchanges,
        )
    )


def embedding(context: Context) -> Block:
    """Vocabulary look-up with its reduction over tensor-parallel ranks."""
    block = memory_bound(context, traffic.embedding_block(context.run, context.held))
    comm.embedding(context, block)
    return block


def head(context: Context) -> Block | None:
    """Final norm, logits and loss; None without a vocabulary. Its weights are left out: they may be shared."""
    run = context.run
    gemm = shapes.head_gemm(run.model, run.parallel, context.held)
    if gemm is None:
        return None
    block = linear(context, gemm).plus(memory_bound(context, traffic.final_norm(run, context.held)))
    # one fused kernel has a share of bandwidth of its own; the unfused chain is counted step by step
    kind = "cross_entropy" if run.kernels.cross_entropy_fusion in ("te", "linear") else "elementwise"
    block = block.plus(memory_bound(context, traffic.cross_entropy(run, gemm.m * gemm.n), kind))
    comm.loss(context, block)
    return block._replace(weights=0)  # counted once per stage, see `layers.vocabulary_weights`


def mtp_extra(context: Context) -> Block:
    """What a multi-token-prediction depth adds to its layer and its head: two norms and the 2h -> h projection."""
    run = context.run
    size = traffic.ELEMENT_BYTES[run.precision.params_dtype]
    norms = traffic.norm(run.kernels, run.model.normalization, 2 * context.held.local * run.model.hidden_size, size)
    return total(context, [shapes.mtp_gemm(run.model, run.parallel, context.held)], norms)
