"""Seconds of every decoder layer, and of every (pipeline rank, virtual stage), with what is recomputed.

Layers of one kind (dense or mixture of experts, FP8 or not) cost the same, so that each kind is priced once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, minimum
from primus_lint.ledger import lora
from primus_lint.projection import comm, compute, cost, data_parallel, shapes, traffic
from primus_lint.projection.compute import Block, Context
from primus_lint.projection.cost import Cost
from primus_lint.projection.flops import padded_vocab

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Recompute, Run
    from primus_lint.projection.device import Device
    from primus_lint.projection.placement import Placement


class Layer:
    """One decoder layer. `again` is what selective recomputation repeats, `whole` what full recomputation repeats."""

    __slots__ = ("again", "block")

    def __init__(self, block: Block, again: Cost) -> None:
        self.block = block
        self.again = again


class Stage:
    """One (rank, chunk) and one micro-batch. `recompute` comes before the backward and is not part of it; `sharded` are
    the exposed gathers and reductions of fully sharded weights. `backward_s` holds all of these, weight gradients apart.

    `weights` are the elements of the dense matrices on the rank that are trained, embedding and head included, `experts`
    the experts'.
    """

    __slots__ = (
        "backward", "backward_s", "experts", "forward", "forward_s", "layers", "recompute", "sharded", "weight", "weight_s",
        "weights",
    )  # fmt: skip

    def __init__(
        self, forward: Cost, backward: Cost, weight: Cost, recompute: Cost, sharded: Cost, weights: Any, experts: Any,
        layers: int,
    ) -> None:  # fmt: skip
        self.forward, self.backward, self.weight = forward, backward, weight
        self.recompute, self.sharded = recompute, sharded
        self.weights, self.experts, self.layers = weights, experts, layers
        self.forward_s = forward.seconds
        self.backward_s = backward.seconds + recompute.seconds + sharded.seconds
        self.weight_s = weight.seconds

    @property
    def whole(self) -> Cost:
        """All of its seconds by class, what is recomputed as one class."""
        total = self.forward + self.backward
        total.merge(self.weight)
        total.merge(self.sharded)
        total.add(cost.RECOMPUTE, (self.recompute.seconds, self.recompute.spread_seconds))
        return total


def contexts(run: Run, device: Device, place: Placement) -> dict[bool, Context]:
    """The context of FP8 layers and of others."""
    held = shapes.tokens(run)
    routed = None if run.model.moe is None else shapes.routing(run.model.moe, run.parallel, held)
    return {fp8: Context(run, device, place, held, routed, fp8) for fp8 in (False, True)}


def uses_fp8(run: Run, layer: int) -> bool:
    """Whether a decoder layer computes in FP8 (or FP4): all do but the first and last ones that are excepted."""
    precision = run.precision
    if precision.fp8 is None and precision.fp4 is None:
        return False
    if not precision.first_last_layers_bf16:
        return True
    return precision.bf16_layers_at_start <= layer < run.model.num_layers - precision.bf16_layers_at_end


def layer(context: Context, moe: bool, priced: dict[Any, Any] | None = None) -> Layer:
    """One decoder layer of a kind; `priced`: see `LayerTable`."""
    key = (moe, context.fp8)
    if priced is None:
        block, feed_forward = halves(context, moe)
    else:
        if key not in priced:
            priced[key] = halves(context, moe)
        block, feed_forward = priced[key]
    return Layer(block, selective(context, moe, feed_forward))


def halves(context: Context, moe: bool) -> tuple[Block, Block]:
    """A whole decoder layer, and its MLP or mixture of experts alone.

    The host runs ahead of the device through the whole layer, except where it must read the number of tokens of each
    expert back before it can go on (`dropless` dispatch): there it starts anew. CUDA graphs replay without the host; what
    their scope leaves out is launched as usual.
    """
    run = context.run
    block = compute.attention_half(context)
    feed_forward = compute.expert_half(context) if moe else compute.mlp_half(context)
    if feed_forward.exchange is not cost.ZERO:
        comm.beside_other_micro_batches(context, block, feed_forward, compute.shared_experts(context))
    graphs = graphed(run, "attn"), graphed(run, "moe" if moe else "mlp")
    if graphs[0] != graphs[1] or (moe and synchronises(run)):
        waited = Block()
        waited.merge(feed_forward)
        for part, replayed in zip((block, waited), graphs, strict=True):
            if not replayed:
                context.device.host_bound(part)
        block.merge(waited)
    else:
        block.merge(feed_forward)
        if not graphs[0]:
            context.device.host_bound(block)
    return block, feed_forward


def graphed(run: Run, part: str) -> bool:
    """Whether a CUDA graph holds a part of a layer ("attn", "mlp" or "moe"): all parts, unless the scope names some."""
    if run.kernels.cuda_graphs == "none":
        return False
    scope = run.args.get("cuda_graph_scope") or run.args.get("cuda_graph_modules") or ()
    names = scope.replace(",", " ").split() if isinstance(scope, str) else scope
    whole = not names or "full" in names or "full_iteration" in names or run.kernels.cuda_graphs == "full_iteration"
    return whole or part in names


def synchronises(run: Run) -> bool:
    """Whether the host waits for token counts in every mixture of experts: unless shapes are fixed by padding to the
    capacity, or Primus-Turbo's sync-free stages keep the counts on the device."""
    experts = run.model.moe
    assert experts is not None
    padded = experts.capacity_factor is not None and experts.pad_to_capacity
    return not padded and run.kernels.sync_free_moe_stage == 0


def selective(context: Context, moe: bool, feed_forward: Block) -> Cost:
    """What selective recomputation repeats of one layer: the forward of the modules it names (on a grid of several lists of
    modules, of each along the last axis)."""
    recompute = context.run.recompute
    if recompute.granularity != "selective":
        return Cost()
    names = dict.fromkeys(name for modules in recompute.lists for name in modules)
    costs = {name: module_again(context, moe, feed_forward, name) for name in names}
    rows = []
    for modules in recompute.lists:
        again = Cost()
        for name in modules:
            again.merge(costs[name])
        rows.append(again)
    return cost.beside_each_other(rows)


def module_again(context: Context, moe: bool, feed_forward: Block, module: str) -> Cost:
    """The forward of one module of a layer."""
    again = Cost()
    run, device = context.run, context.device
    size = traffic.ELEMENT_BYTES[run.precision.params_dtype]
    if module == "core_attn":
        again.merge(compute.attention_core(context).forward)
    elif (module == "mlp" and not moe) or (module == "moe" and moe):
        again.merge(feed_forward.forward)
    elif module == "layernorm":
        moved = traffic.norm(run.kernels, run.model.normalization, context.held.local * run.model.hidden_size, size)
        again.add(cost.MEMORY, device.memory(moved.forward_bytes), 2)
    elif module == "moe_act" and moe and context.routed is not None and run.model.moe is not None:
        outputs = context.routed.rows * (run.model.moe.ffn_hidden_size // run.parallel.etp)
        moved = traffic.activation(run, outputs, probs=True)
        again.add(cost.MEMORY, device.memory(moved.forward_bytes))
    elif module == "mla_up_proj" and run.model.mla is not None:
        for gemm in shapes.attention_gemms(run.model, run.parallel, context.held):
            if gemm.name in ("q_up", "kv_up"):
                again.merge(compute.linear(context, gemm).forward)
    elif module == "torchtitan_op":
        again.merge(compute.by_operation(context, feed_forward.forward if moe else None))
    elif module == "shared_experts" and moe:
        again.merge(compute.shared_experts(context).forward)
    return again


def recomputed_layers(recompute: Recompute, layers: tuple[int, ...], start: int, stop: int) -> Any:
    """How many of the layers at positions start..stop of a chunk are recomputed whole.

    uniform: all of them; block: those among the first `num_layers` of the chunk; an explicit list: the listed ids.
    """
    if recompute.granularity != "full":
        return 0
    if recompute.layer_ids is not None:
        return sum(1 for layer_id in layers[start:stop] if layer_id in recompute.layer_ids)
    if recompute.method == "block":
        count = 0 if recompute.num_layers is None else recompute.num_layers
        return minimum(maximum(count - start, 0), stop - start)
    return stop - start


class LayerTable:
    """Prices each kind of layer, and each kind of stage, once and on demand.

    `priced` keeps the prices of layers, embedding and head for other recipes that differ from this one in the pipeline
    split, the form of recomputation and the sharding of the optimizer alone (the search shares it over many).
    """

    __slots__ = ("contexts", "device", "kinds", "layers", "place", "priced", "run", "stages")

    def __init__(self, run: Run, device: Device, place: Placement, priced: dict[Any, Any] | None = None) -> None:
        self.priced = {} if priced is None else priced
        self.run = run
        self.device = device
        self.place = place
        self.contexts = contexts(run, device, place)
        self.layers: dict[tuple[bool, bool], Layer] = {}
        self.stages: dict[Any, Stage] = {}
        ids = run.recompute.layer_ids or ()
        layers = [layer for row in run.parallel.stages or () for chunk in row for layer in chunk.layers]
        self.kinds = {layer: (*self.kind_of(layer), layer in ids) for layer in layers}

    def stage(self, chunk: Chunk) -> Stage:
        """The stage of a chunk; chunks of the same layers, ends and recomputation share one."""
        key = (tuple([self.kinds[layer] for layer in chunk.layers]), chunk.embedding, chunk.loss, chunk.mtp)
        if key not in self.stages:
            self.stages[key] = chunk_stage(self, chunk)
        return self.stages[key]

    def kind_of(self, layer_id: int) -> tuple[bool, bool]:
        return self.run.model.is_moe_layer(layer_id), uses_fp8(self.run, layer_id)

    @property
    def measured(self) -> bool:
        """Whether measured layers count: they were trained whole."""
        return self.device.measured is not None and not lora.enabled(self.run)

    def layer(self, kind: tuple[bool, bool]) -> Layer:
        if kind not in self.layers:
            moe, fp8 = kind
            context = self.contexts[fp8]
            if not self.measured:
                self.layers[kind] = layer(context, moe, self.priced)
            else:
                from primus_lint.projection import upscale

                self.layers[kind] = upscale.layer(context, moe, layer)
        return self.layers[kind]

    def end(self, kind: str) -> Block | None:
        """The "embedding" or the "head"."""
        context = self.contexts[False]
        build = compute.embedding if kind == "embedding" else compute.head
        if not self.measured:
            if kind not in self.priced:
                self.priced[kind] = build(context)
            found: Block | None = self.priced[kind]
            return found
        from primus_lint.projection import upscale

        return upscale.end(context, kind, build)


def chunk_stage(table: LayerTable, chunk: Chunk) -> Stage:
    """Seconds of one (rank, virtual stage) for one micro-batch."""
    run = table.run
    forward, backward, weight, again = Cost(), Cost(), Cost(), Cost()
    weights: Any = 0
    experts: Any = 0
    unpaired = comm.unpaired(run)
    position = 0
    layers = chunk.layers
    while position < len(layers):
        kind = table.kind_of(layers[position])
        stop = position + 1
        while stop < len(layers) and table.kind_of(layers[stop]) == kind:
            stop += 1
        one = table.layer(kind)
        count = stop - position
        forward.merge(one.block.forward, count)
        backward.merge(one.block.backward, count)
        weight.merge(one.block.weight, count)
        if run.recompute.granularity is not None:
            again.merge(one.again, count)
            whole = recomputed_layers(run.recompute, layers, position, stop)
            again.merge(one.block.forward, whole)
            if run.recompute.early_stop and not kind[0]:
                again.merge(compute.last_product(table.contexts[kind[1]]), -1 * whole)
        forward.merge(one.block.alone, count * unpaired * 0.5)
        backward.merge(one.block.alone, count * unpaired * 0.5)
        weights = weights + one.block.weights * count
        experts = experts + one.block.experts * count
        position = stop
    blocks: list[Block | None] = []
    weights = weights + vocabulary_weights(run, chunk)
    if chunk.embedding:
        blocks.append(table.end("embedding"))
    last = table.kind_of(run.model.num_layers - 1)
    for depth in chunk.mtp:
        one = table.layer(last)
        blocks += [one.block, compute.mtp_extra(table.contexts[last[1]]), table.end("head")]
        again.merge(one.again)
        again.merge(one.block.forward, mtp_recomputed(run, depth))
    if chunk.loss:
        blocks.append(table.end("head"))
    for block in blocks:
        if block is not None:
            forward.merge(block.forward)
            backward.merge(block.backward)
            weight.merge(block.weight)
            weights = weights + block.weights
            experts = experts + block.experts
    count = len(layers) + len(chunk.mtp)
    added = traffic.accumulation(run, weights + experts)
    weight.add(cost.MEMORY, table.device.memory(added.backward_bytes))
    copied = traffic.unpacking(run, weights + experts)
    forward.add(cost.MEMORY, table.device.memory(copied.forward_bytes))
    backward.add(cost.MEMORY, table.device.memory(copied.backward_bytes))
    for part in (forward, backward, weight, again):
        slower = part.of(cost.COMPUTE) * table.device.straggling
        part.add(cost.STRAGGLER, (slower, slower * 0.5))
    window = backward.seconds + weight.seconds + again.seconds
    sharded = data_parallel.fsdp(run, table.device, table.place, weights, experts, forward.seconds, window, count)
    return Stage(forward, backward, weight, again, sharded, weights, experts, count)


def vocabulary_weights(run: Run, chunk: Chunk) -> Any:
    """Elements of embedding and head on a rank: one matrix each, shared when tied and on the same rank; a
    multi-token-prediction depth keeps its own copy of the embedding. 0 without a vocabulary, and where they are frozen."""
    vocab = padded_vocab(run.model, run.parallel.tp)
    if vocab is None or lora.enabled(run):
        return 0
    embedding, head = chunk.embedding or bool(chunk.mtp), chunk.loss or bool(chunk.mtp)
    matrices = int(embedding or head) if run.model.tied_embeddings else int(embedding) + int(head)
    return vocab // run.parallel.tp * run.model.hidden_size * matrices


def mtp_recomputed(run: Run, depth: int) -> int:
    """Whether a multi-token-prediction layer is recomputed whole: under uniform, or when an explicit list names it."""
    recompute = run.recompute
    if recompute.granularity != "full":
        return 0
    if recompute.layer_ids is not None:
        return int(run.model.num_layers + depth in recompute.layer_ids)
    return int(recompute.method != "block")
