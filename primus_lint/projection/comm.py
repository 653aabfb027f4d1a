"""Communication inside a block: tensor, context and expert parallel, exposed or hidden behind compute.

Hidden communication is not free: it takes compute units (NCCL, RCCL and DeepEP kernels run on them), so that the
compute beside it slows by `device.contention` for as long as both run. Inside a layer, where a collective has one product
beside it and the next one waits for both, NCCL and RCCL hide little (`device.concurrent`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import as_int, is_scalar, maximum, minimum, where
from primus_lint.projection import cost
from primus_lint.projection.cost import Cost
from primus_lint.projection.traffic import ELEMENT_BYTES

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.projection.compute import Block, Context
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.shapes import Gemm


MAP_BYTES = 1  # of a map of chosen experts, per token and expert
COUNT_BYTES = 8  # of the tokens of an expert
RING_ROWS = 0.75  # of the queries or keys that a step of a ring touches: all, or half of them, in equal numbers


def hide(
    context: Context, into: Cost, kind: str, transfer: Pair, compute: Pair, first_part: Any = 0.0, gained: Any = 1.0
) -> None:
    """Run `transfer` beside `compute`: add what does not fit as `kind`, and the slowing of what overlaps.

    `first_part` is the share of the transfer that must be done before compute can start (pipelined overlap). `gained`: the share of
    what could overlap that is really saved, slowing included, if not all of it less `device.contention`.
    """
    if transfer is cost.ZERO:
        return
    slowing = context.device.contention * (gained == 1.0)
    inside = transfer[0] * (1 - first_part)
    together = minimum(inside, compute[0]) * gained
    exposed = inside - together + transfer[0] * first_part
    share = where(transfer[0] > 0, exposed / maximum(transfer[0], 1e-12), 0.0)
    into.add(kind, (exposed, transfer[1] * maximum(share, 0.25)))
    into.add(cost.CONTENTION, (together * slowing, together * slowing))


def runs_beside(run: Run) -> bool:
    """Whether a collective that is issued before a product starts before it. With several hardware queues the product may
    take all compute units first: Megatron-LM asks for one queue, which Blackwell no longer needs."""
    arch = run.args.get("arch")
    return run.args.get("env_CUDA_DEVICE_MAX_CONNECTIONS") == "1" or (isinstance(arch, int) and arch >= 10)


def tensor_parallel(context: Context, gemm: Gemm, block: Block, times: tuple[Pair, Pair, Pair]) -> None:
    """Collectives of a column- or row-parallel product (arXiv 1909.08053; sequence parallelism arXiv 2205.05198).

    Sequence parallel, column: gather the input forward, and again beside the dgrad (unless it was kept); scatter-reduce the input gradient
    beside the wgrad. Row: scatter-reduce the output forward, gather its gradient backward. Without sequence
    parallelism: all-reduce the output of rows forward and the input gradient of columns backward (beside the wgrad).
    `tp_comm_overlap` pipelines the collective with its own product in tp steps, so that one step stays exposed (all
    of it otherwise). "Beside" needs a single hardware queue before Blackwell, see `runs_beside`, and saves little where it is a
    library's collective beside a library's product (`device.concurrent`).
    """
    run = context.run
    if gemm.parallel == "" or (is_scalar(run.parallel.tp) and run.parallel.tp == 1):
        return
    forward, dgrad, wgrad = times
    size = ELEMENT_BYTES[run.precision.params_dtype]
    gathered = 1 if context.fp8 and gemm.low_precision and run.kernels.implementation != "local" else size
    is_sp = _as_number(run.parallel.sequence_parallel)
    first = where(run.kernels.tp_comm_overlap, 1.0 / context.place.tp.size, 1.0)
    alone = 0.0 if runs_beside(run) else where(run.kernels.tp_comm_overlap, 0.0, 1.0)
    gained = where(run.kernels.tp_comm_overlap, 1.0, context.device.concurrent)
    width = gemm.k if gemm.parallel == "column" else gemm.n
    gather = _over_tokens(context, "all_gather", width * gathered, is_sp)
    scatter = _over_tokens(context, "reduce_scatter", width * size, is_sp)
    reduce = _over_tokens(context, "all_reduce", width * size, 1 - is_sp)
    if gemm.parallel == "column":
        hide(context, block.forward, cost.TP, gather, forward, first)
        if run.kernels.gathers_again:
            hide(context, block.backward, cost.TP, gather, dgrad, alone, gained)
        hide(context, block.backward, cost.TP, scatter, wgrad, alone, gained)
        hide(context, block.backward, cost.TP, reduce, wgrad, alone, gained)
        return
    block.forward.add(cost.TP, reduce)
    hide(context, block.forward, cost.TP, scatter, forward, first)
    hide(context, block.backward, cost.TP, gather, dgrad, first)


def _over_tokens(context: Context, operation: str, row_bytes: Any, active: Any) -> Pair:
    """A tensor-parallel collective over [gathered tokens, row], where `active` (0 or 1). One width is priced once."""
    if is_scalar(active) and not active:
        return cost.ZERO
    pair = context.priced.get((operation, row_bytes)) if is_scalar(row_bytes) else None
    if pair is None:
        pair = context.device.collective(operation, context.held.gathered * row_bytes, context.place.tp)
        if is_scalar(row_bytes):
            context.priced[operation, row_bytes] = pair
    return _times(pair, active)


def launches(context: Context, gemm: Gemm) -> tuple[Any, Any]:
    """Collectives that the host launches around one product, forward and backward (see `tensor_parallel`)."""
    if gemm.parallel == "":
        return 0, 0
    several = (context.run.parallel.tp > 1) * 1
    is_sp = _as_number(context.run.parallel.sequence_parallel)
    if gemm.parallel == "column":
        return several * is_sp, several * (1 + is_sp * int(context.run.kernels.gathers_again))
    return several, several * is_sp


def _as_number(flag: Any) -> Any:
    """A flag, or an array of flags, as 0 and 1."""
    return int(flag) if isinstance(flag, bool) else as_int(flag)


def _times(pair: Pair, factor: Any) -> Pair:
    return pair[0] * factor, pair[1] * factor


def context_parallel(context: Context, block: Block, forward: Pair, backward: Pair) -> None:
    """Exchange of keys and values (or of heads) around the attention core.

    "p2p": a ring of cp - 1 steps, each beside one step's compute; backward the gradients travel along (twice the
    bytes). The outputs of the steps are merged in fp32, their gradients added. "all_gather": keys and values forward, and again backward with a scatter-reduce of their gradients.
    "a2a" (and "a2a+p2p", taken as one level): heads are exchanged for tokens before and after the core.
    """
    run, device, group = context.run, context.device, context.place.cp
    model, parallel = run.model, run.parallel
    size = ELEMENT_BYTES[run.precision.params_dtype]
    held = context.held.gathered
    if model.mla is not None:
        heads = model.num_attention_heads // parallel.tp
        key = heads * (model.mla.qk_head_dim + model.mla.qk_pos_emb_head_dim)
        query, key_value, output = key, key + heads * model.mla.v_head_dim, heads * model.mla.v_head_dim
    else:
        query = output = model.num_attention_heads * model.kv_channels // parallel.tp
        key_value = 2 * model.kv_channels * maximum(model.num_query_groups // parallel.tp, 1)
    kind = parallel.cp_comm_type
    if kind.startswith("a2a"):
        moved = (query + key_value + output) * held * size
        exchange = device.collective("all_to_all", moved, group, cost.CP)
        block.forward.add(cost.CP, exchange)
        block.backward.add(cost.CP, exchange)
        return
    if kind == "all_gather":
        whole = key_value * held * size * group.size
        block.forward.add(cost.CP, device.collective("all_gather", whole, group, cost.CP))
        block.backward.add(cost.CP, device.collective("all_gather", whole, group, cost.CP))
        block.backward.add(cost.CP, device.collective("reduce_scatter", whole, group, cost.CP))
        return
    steps = group.size - 1
    merged = steps * RING_ROWS * held
    block.forward.add(cost.MEMORY, device.memory(merged * output * (size + 2 * 4)))
    block.backward.add(cost.MEMORY, device.memory(merged * (query + key_value) * 3 * size))
    step = device.send(key_value * held * size, group)
    around = _times(step, steps)
    beside = _times(forward, steps / group.size)
    hide(context, block.forward, cost.CP, around, beside)
    hide(context, block.backward, cost.CP, _times(around, 2), _times(backward, steps / group.size))


def expert_parallel(context: Context, block: Block, shared: Block) -> None:
    """Dispatch and combine of a mixture of experts, forward and backward (the backward of one is the other).

    The router's choice travels with the tokens (Megatron-Core `token_dispatch`): the probability of every copy in an
    all-to-all of its own, or of every token and expert, and the map of which are chosen, in two gathers. Whatever is small
    still takes the latency of its collective, which grows with the ranks.
    Hidden behind the shared experts with `moe_shared_expert_overlap`, and behind another micro-batch's layer with
    `overlap_moe_expert_parallel_comm` (see `beside_other_micro_batches`).
    """
    run, device = context.run, context.device
    experts, routed = run.model.moe, context.routed
    assert experts is not None and routed is not None
    size = ELEMENT_BYTES[run.precision.params_dtype]
    hidden = run.model.hidden_size
    probability_bytes = {"fp32": 4, "fp64": 8}.get(experts.router_dtype or "", size)
    if experts.dispatcher == "flex":
        dispatch, combine = device.deep_ep(context.held.local, experts, hidden * size, context.place.ep)
    elif experts.dispatcher == "allgather":
        whole = context.held.local * hidden * size * context.place.ep.size
        dispatch = device.collective("all_gather", whole, context.place.ep, cost.EP)
        combine = device.collective("reduce_scatter", whole, context.place.ep, cost.EP)
        choices = context.held.local * experts.num_experts * context.place.ep.size
        for width in (MAP_BYTES, probability_bytes):
            also = device.collective("all_gather", choices * width, context.place.ep, cost.EP, met=True)
            dispatch = cost.plus(dispatch, also)
    else:
        combine = device.collective("all_to_all", routed.sent * hidden * size, context.place.ep, cost.EP)
        counts = device.collective(
            "all_gather", experts.num_experts * COUNT_BYTES * context.place.ep.size, context.place.ep, cost.EP
        )
        chances = device.collective("all_to_all", routed.sent * probability_bytes, context.place.ep, cost.EP, met=True)
        dispatch = cost.plus(cost.plus(combine, counts), chances)
    gather = device.collective("all_gather", routed.rows * hidden * size, context.place.etp, cost.EP)
    scatter = device.collective("reduce_scatter", routed.rows * hidden * size, context.place.etp, cost.EP)
    exchange = (
        dispatch[0] + combine[0] + gather[0] + scatter[0],
        dispatch[1] + combine[1] + gather[1] + scatter[1],
    )
    if run.schedule.overlap_moe_ep:
        block.exchange = exchange  # `beside_other_micro_batches` hides it behind whole layers
        return
    if experts.shared_expert_overlap:
        gained = 1.0 if experts.dispatcher == "flex" else device.concurrent  # DeepEP keeps to compute units of its own
        hide(context, block.forward, cost.EP, exchange, (shared.forward.of(cost.COMPUTE), 0.0), gained=gained)
        hide(context, block.backward, cost.EP, exchange, (shared.backward.of(cost.COMPUTE), 0.0), gained=gained)
        return
    block.forward.add(cost.EP, exchange)
    block.backward.add(cost.EP, exchange)


def beside_other_micro_batches(context: Context, attention: Block, experts: Block, shared: Block) -> None:
    """`overlap_moe_expert_parallel_comm`: the forward of one micro-batch runs beside the backward of another, layer by layer.

    Adds to `attention` what a pair of layers exposes, half to each pass, and keeps what passes without a partner expose beyond
    that in its `alone`. `experts` include the shared ones, which Megatron-Core computes with the attention.
    """
    exchange = experts.exchange
    if exchange is cost.ZERO:
        return
    early, late = attention_and_experts(attention, experts, shared, context.run.kernels.delay_wgrad)
    compute = sum(early) + sum(late)
    four = 2 * exchange[0]  # dispatch and combine, forward and backward
    exposed = paired_s(early, late, exchange[0] / 2) - compute
    share = exposed / maximum(four, 1e-12)
    slowing = (four - exposed) * context.device.contention
    both = Cost({cost.EP: (exposed, 2 * exchange[1] * maximum(share, 0.25)), cost.CONTENTION: (slowing, slowing)})
    attention.forward.merge(both, 0.5)
    attention.backward.merge(both, 0.5)
    attention.alone = Cost(
        {cost.EP: (four - exposed, 2 * exchange[1] * (1 - share)), cost.CONTENTION: (-slowing, -slowing)}
    )


def attention_and_experts(
    attention: Block, experts: Block, shared: Block, delayed: bool
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Seconds (forward, backward, weight gradients apart) of the two computing parts of a mixture layer. Weight gradients come
    with the backward unless `delay_wgrad_compute` takes them out of it."""
    parts = []
    for block, sign in ((attention, 1), (experts, -1)):
        forward = block.forward.seconds + sign * shared.forward.seconds
        backward = block.backward.seconds + sign * shared.backward.seconds
        weight = block.weight.seconds + sign * shared.weight.seconds
        parts.append((forward, backward, weight) if delayed else (forward, backward + weight, 0.0))
    return parts[0], parts[1]


def paired_s(attention: tuple[Any, Any, Any], experts: tuple[Any, Any, Any], transfer_s: Any) -> Any:
    """Seconds of a forward layer beside a backward layer, in the middle of a chunk; a part is (forward, backward, weight).

    Megatron-Core `TransformerLayerSchedulePlan.run` issues on two streams
        transfers: combine backward | dispatch forward, dispatch backward                                  | combine forward
        compute:   attention forward| experts backward, weights, experts forward                           | attention backward, weights
    and each pass waits for its own previous part. Both streams meet where the experts start and where the attention does:
    between, two transfers of `transfer_s` run beside the attention of both passes, two beside the experts.
    """
    first_s, second_s, weights_s = attention
    at_attention = maximum(maximum(first_s, transfer_s) + maximum(second_s, transfer_s), first_s + second_s + weights_s)
    forward_s, backward_s, later_s = experts
    computed = maximum(backward_s + later_s, transfer_s) + forward_s
    return at_attention + maximum(computed, maximum(backward_s, transfer_s) + transfer_s)


def unpaired(run: Run) -> Any:
    """Share of a rank's passes that run without one of another micro-batch beside them: those before its first backward and
    after its last forward, on the first pipeline rank (Megatron-Core `get_pp_rank_microbatches`, one more than without
    overlap), or on any rank of a V schedule (two chunks of a micro-batch for every rank)."""
    pp, vpp = run.parallel.pp, run.parallel.vpp
    whole = maximum(run.batch.num_microbatches, 1) * vpp
    if run.schedule.kind == "zbv":
        return minimum(2 * pp, whole) / whole
    warm = 2 * (pp - 1) + (vpp - 1) * run.parallel.microbatch_group_size if vpp > 1 else pp - 1
    return minimum(warm + 1, whole) / whole


def embedding(context: Context, block: Block) -> None:
    """The look-up of a split vocabulary is summed over tensor-parallel ranks: scatter-reduced or all-reduced."""
    run = context.run
    row = run.model.hidden_size * ELEMENT_BYTES[run.precision.params_dtype]
    is_sp = _as_number(run.parallel.sequence_parallel)
    block.forward.add(cost.TP, _over_tokens(context, "reduce_scatter", row, is_sp))
    block.forward.add(cost.TP, _over_tokens(context, "all_reduce", row, 1 - is_sp))
    block.backward.add(cost.TP, _over_tokens(context, "all_gather", row, is_sp))


def loss(context: Context, block: Block) -> None:
    """Vocabulary-parallel cross entropy all-reduces three fp32 numbers a token."""
    block.forward.add(cost.TP, _times(_over_tokens(context, "all_reduce", 4, 1), 3))
