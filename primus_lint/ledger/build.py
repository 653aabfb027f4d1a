"""`ledger(run)`: put the parts together, one account per class of rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum, minimum, where
from primus_lint.ledger import (
    allocator,
    band,
    checkpoint,
    device,
    first_step,
    graphs,
    host,
    later,
    lora,
    optimizer,
    peak,
    persistent,
    sharding,
    states,
    transients,
    weight_copies,
)
from primus_lint.ledger.heaviest import heaviest_ranks
from primus_lint.ledger.inflight import loads
from primus_lint.ledger.muon import layer_wise
from primus_lint.ledger.result import (
    ACTIVATION,
    ALLOCATOR,
    HOST,
    PERSISTENT,
    STATIC,
    TRANSIENT,
    Abstention,
    Item,
    Ledger,
    RankMemory,
)
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.stage_activations import Activations
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.hardware import Accelerator
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run
    from primus_lint.ledger.inflight import Loaded
    from primus_lint.ledger.peak import Peak
    from primus_lint.ledger.sharding import Holding
    from primus_lint.ledger.stage_activations import ChunkBytes
    from primus_lint.ledger.states import Stage

# Where the items come from.
BUFFERS = "Megatron-Core _ParamAndGradBuffer"
CACHES = "workspaces, caches and retained tensors of TransformerEngine, PyTorch and Megatron-Core"
BLOCKS = "PyTorch CUDACachingAllocator"
KEPT = "what autograd keeps in Megatron-Core and TransformerEngine modules; events of the schedule"
BACKWARD = "backward of Megatron-Core and TransformerEngine modules"
GRAPHS = "Megatron-Core TECudaGraphHelper, TransformerEngine make_graphed_callables"


def abstain(run: Run) -> tuple[str, ...]:
    """Why there can be no account of a recipe; empty when there is one."""
    reasons = []
    if run.model.kind != "gpt":
        reasons.append(f"{run.model.kind} models are not modelled")
    if run.model.vocab_size is None:
        reasons.append("the vocabulary size is not known: give it with --set vocab_size=N")
    reasons += lora.abstain(run)
    if run.parallel.stages is None:
        reasons.append("the pipeline split is illegal")
    if run.parallel.dp is None:
        reasons.append("the world size is not known")
    return tuple(reasons)


def chunks_of(run: Run, rank: int) -> tuple[Chunk, ...]:
    """The model chunks of a pipeline rank (of V schedules as folded by `ir.layout`)."""
    assert run.parallel.stages is not None
    return run.parallel.stages[rank]


def ledger(
    run: Run, accelerator: Accelerator | None = None, fixed: dict[int, Fixed] | None = None
) -> Ledger | Abstention:
    """The memory account of a recipe, or an `Abstention` that says why there is none.

    `run` must know its world size; lower it again for another one. With arrays in `run` all figures are arrays, the
    item formulas are not to be rendered, and padding and shards are tight upper bounds. `fixed` may be shared between
    recipes that differ in their form of recomputation alone.
    """
    reasons = abstain(run)
    if reasons:
        return Abstention(reasons)
    sizes = Sizes(run)
    ranks: list[RankMemory] = []
    parts = _Parts(sizes, accelerator, {} if fixed is None else fixed)
    for rank in range(run.parallel.pp) if sizes.scalar else heaviest_ranks(run):
        ranks += parts.rank(rank)
    return Ledger(tuple(ranks), run.not_modelled)


class Shard(NamedTuple):
    """A class of data-parallel ranks ("all", "first" or "last"): the elements whose optimizer state each of them has, how
    many there are, and what their blocks hold beyond the tensors of weights, buffers and states."""

    position: str
    dense: Any
    expert: Any
    count: Any
    slack: Any


class Fixed(NamedTuple):
    """The part of the account of a pipeline rank that no form of recomputation enters."""

    stage: Stage
    shards: list[Shard]
    common: dict[str, Item]


class _Parts:
    """What is computed once per recipe and shared by its ranks."""

    def __init__(self, sizes: Sizes, accelerator: Accelerator | None, fixed: dict[int, Fixed]) -> None:
        self.sizes = sizes
        self.fixed = fixed
        self.run = sizes.run
        self.activations = Activations(sizes)
        self.state = optimizer.state_bytes(sizes)
        self.accelerator = device.runtime_accelerator(sizes, accelerator)
        self.groups = device.communicators(sizes)

    def rank(self, pp_rank: int) -> list[RankMemory]:
        """The accounts of one pipeline rank: one, or one for the first and one for the last data-parallel index."""
        chunks = chunks_of(self.run, pp_rank)
        twins = [self.activations.twin(chunk) for chunk in chunks]
        candidates = loads(self.run, pp_rank, tuple(twins.index(twin) for twin in twins))
        if pp_rank not in self.fixed:
            self.fixed[pp_rank] = self.fixed_of(pp_rank, chunks, candidates)
        fixed = self.fixed[pp_rank]
        kept = [self.activations.chunk(chunk) for chunk in chunks]
        return [self.account(pp_rank, shard, fixed, candidates, chunks, kept) for shard in fixed.shards]

    def fixed_of(self, pp_rank: int, chunks: tuple[Chunk, ...], candidates: tuple[Loaded, ...]) -> Fixed:
        """What is fixed of a pipeline rank."""
        sizes = self.sizes
        stage = states.stage(sizes, pp_rank, chunks)
        per_stage = sizes.tp * sizes.cp * sizes.dp
        held = (sharding.holding(sizes, stage.dense), sharding.holding(sizes, stage.expert))
        first, last = (held[0].first, held[1].first), (held[0].last, held[1].last)
        muon = sizes.scalar and layer_wise(sizes)
        if not muon and (not sizes.scalar or first == last):
            shards = [("all", *first, per_stage)]
        else:
            shards = [("first", *first, per_stage - sizes.tp), ("last", *last, sizes.tp)]
            shards = [shard for shard in shards if shard[3] > 0]
        return Fixed(
            stage,
            [
                Shard(*shard, allocator.state_slack_bytes(sizes, stage, self.state, shard[0] != "first"))
                for shard in shards
            ],
            self.common_items(candidates, chunks, stage, held),
        )

    def common_items(
        self, candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...], stage: Stage, held: tuple[Holding, Holding]
    ) -> dict[str, Item]:
        """Items that do not depend on the data-parallel index."""
        sizes, run = self.sizes, self.run
        items: dict[str, Item] = {}
        if not isinstance(stage.frozen, int) or stage.frozen:
            items["weights frozen"] = Item(
                stage.frozen * sizes.e, STATIC, "{n} frozen elements x {e} B", {"n": stage.frozen, "e": sizes.e},
                "Primus LoRA",
            )  # fmt: skip
        for name, grid, mine in (("dense", stage.dense, held[0]), ("expert", stage.expert, held[1])):
            if not grid.buffers:
                continue
            items[f"weights {name}"] = Item(
                mine.weights * sizes.e, STATIC, "{stored} stored of {real} elements x {e} B",
                {"stored": mine.weights, "e": sizes.e, "real": grid.real}, BUFFERS,
            )  # fmt: skip
            items[f"gradients {name}"] = Item(
                mine.gradients * sizes.grad, STATIC, "{stored} elements x {g} B",
                {"stored": mine.gradients, "g": sizes.grad}, BUFFERS,
            )  # fmt: skip
        if run.precision.fp8_param:
            items["weights in FP8"] = Item(
                weight_copies.primary_bytes(sizes, chunks), STATIC, "FP8 primary weights instead of bf16 ones", {},
                "TransformerEngine quantized_model_init",
            )  # fmt: skip
        less, _ = sharding.fp8_gradient_shift(sizes, chunks)
        if not is_scalar(less) or less:
            items["gradients of FP8 weights"] = Item(
                -less, STATIC, "in bf16 beside others in fp32", {}, "Megatron-FSDP _resolve_group_grad_dtype"
            )
        moe = persistent.moe_layers(sizes, chunks)
        if moe and run.model.moe is not None and run.model.moe.expert_bias:
            items["router buffers"] = Item(
                persistent.router_buffer_bytes(sizes, moe), STATIC, "{n} layers x {E} experts x 6 B",
                {"n": moe, "E": sizes.E}, "expert bias and token counters",
            )  # fmt: skip
        for name, (value, text) in persistent.persistent(sizes, chunks, stage.segments).items():
            items[name] = Item(value, PERSISTENT, text, {}, CACHES)
        if graphs.scope(run) is not None:
            items["CUDA graph buffers"] = Item(
                graphs.buffer_bytes(sizes, candidates, chunks), PERSISTENT, "inputs, outputs and masks of the graphs in flight",
                {}, GRAPHS,
            )  # fmt: skip
        return items

    def account(
        self, pp_rank: int, shard: Shard, fixed: Fixed, candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...],
        kept: list[ChunkBytes],
    ) -> RankMemory:  # fmt: skip
        """One class of rank: optimizer state, activations at the peak, transients, allocator, device."""
        sizes, state = self.sizes, self.state
        position, dense, expert, count, slack = shard
        stage, _, common = fixed
        owned = dense + expert
        items = {name: item for name, item in common.items() if item.group == STATIC}
        last = position == "last"
        items.update(optimizer.items(sizes, self.state, stage, dense, expert, last))
        items.update((name, item) for name, item in common.items() if item.group != STATIC)
        numbers = optimizer.scales(self.run)
        if numbers:
            ends = [grid.last_index if position != "first" else 0 for grid in stage.grids]
            tensors = optimizer.owned_tensors(sizes, stage, *ends)
            items["state scales"] = Item(
                tensors * numbers * persistent.BLOCK, PERSISTENT, "{t} tensors of the optimizer x {s} numbers x {b} B",
                {"t": tensors, "s": numbers, "b": persistent.BLOCK}, "TransformerEngine FusedAdam",
            )  # fmt: skip
        step = self.first_step(chunks, common) if sizes.scalar else None
        shift = allocator.replay_shift_bytes(sizes, stage, state, position != "first", slack, step)
        items["unsplit blocks"] = Item(
            slack, PERSISTENT, "what the blocks of weights, buffers and states hold beyond their tensors", {},
            BLOCKS,
        )  # fmt: skip
        memory = RankMemory(pp_rank, position, count, items)
        memory.static_bytes = memory.total(STATIC)
        base = memory.static_bytes + memory.total(PERSISTENT)
        states_bytes = sum(item.bytes for name, item in items.items() if name.startswith("optimizer "))
        gradients = sum(item.bytes for name, item in items.items() if name.startswith("gradients "))
        coming = sharding.coming_gradients_bytes(sizes, gradients)
        main_gradients = transients.main_gradient_bytes(sizes, owned) + sharding.fp8_gradient_shift(sizes, chunks)[1]
        ahead = sharding.stays_whole_bytes(sizes, chunks, stage)
        steady = base - where(main_gradients > 0, coming, 0) + main_gradients + ahead
        memory.steady_allocated_bytes = steady + shift
        moments = sum(item.bytes for name, item in items.items() if name.startswith("optimizer moment"))
        weighed = peak.weights(sizes, chunks, self.activations, stage)
        found = peak.peak(sizes, candidates, weighed)
        activations = found.activations
        slack_kept = self.kept_slack_bytes(memory, chunks, found)
        self.activation_items(memory, chunks, kept, found, weighed.pending)
        weights = (stage.dense.real + stage.expert.real) * sizes.e
        retained = peak.retained_bytes(sizes, chunks, self.activations)
        moving = peak.moving_bytes(sizes, chunks) - retained
        # a first backward makes its gradients while it frees the activations: both are never there at once
        absent = where(sizes.m == 1, minimum(coming, activations), 0)
        beside_pool, capture = peak.with_graphs(sizes, candidates, chunks, self.activations, weighed, found)
        pooled = found.activations + found.working - beside_pool
        activations = activations + slack_kept
        held = base - absent + activations + moving + found.working
        memory.moments = {
            peak.MOMENT: held - pooled,
            "construction": memory.static_bytes - states_bytes - coming + weights,
        }
        for name, above in later.moments(sizes, chunks, stage, owned).items():
            memory.moments[name] = steady + above
        if sizes.run.args.get("torch") is not None:
            copies = band.compilation_bytes(sizes, chunks)
            if not is_scalar(copies) or copies:
                memory.moments["compilation of the loss"] = held - moments + copies
        if graphs.scope(sizes.run) is not None:
            warm = sizes.run.args.get("cuda_graph_warmup_steps") != 0  # captured after the first optimizer step
            memory.moments["capture of the CUDA graphs"] = base - moments * (not warm) + capture
            memory.moments["backward before the capture"] = (held - items["CUDA graph buffers"].bytes) * warm
            items["CUDA graph pool"] = Item(
                -pooled, ACTIVATION, "kept in the graphs' memory pool: reserved, not allocated", {}, GRAPHS
            )
        highest: Any = 0
        for name, value in memory.moments.items():
            if sizes.scalar and value > highest:
                memory.peak_moment = name
            highest = maximum(highest, value)
        memory.peak_allocated_bytes = highest + shift
        if shift:
            items["order of blocks"] = Item(shift, PERSISTENT, "replayed blocks against their average", {}, BLOCKS)
        if not is_scalar(absent) or absent:
            items["gradients not made yet"] = Item(-absent, TRANSIENT, "of the only micro-batch", {}, "torch FSDP2")
        if not is_scalar(retained) or retained:
            items["retained, in flight"] = Item(
                -retained, ACTIVATION, "inputs and dispatch that stay between steps: counted above already", {}, CACHES
            )
        extra = highest - base - activations + pooled + absent + retained  # all that the other items leave
        items["transients"] = Item(extra, TRANSIENT, "{extra} B above the kept tensors ({moment})",
                                   {"extra": extra, "moment": memory.peak_moment}, BACKWARD)  # fmt: skip
        allocated = maximum(highest, held)
        memory.peak_reserved_bytes = maximum(allocator.reserved(sizes, base, allocated), memory.peak_allocated_bytes)
        beyond = memory.peak_reserved_bytes - memory.peak_allocated_bytes
        items["allocator"] = Item(beyond, ALLOCATOR, "{v} B reserved beyond the peak", {"v": beyond}, BLOCKS)
        items.update(host.pinned_items(sizes, stage, owned, position == "last"))
        memory.host_bytes = memory.total(HOST)
        if sizes.scalar:
            items.update(host.loader_items(sizes, chunks))
            if checkpoint.saves(sizes.run):
                items.update(checkpoint.host_items(sizes, stage, state, owned))
        dummies = sum(item.bytes for name, item in common.items() if name == "dummy weight gradients")
        memory.doubts = band.doubts(sizes, candidates, chunks, stage, self.activations, moments, dummies)
        if sizes.scalar:
            tensors = allocator.state_tensors(sizes, stage, state)
            blocks = band.block_doubt(sizes, candidates, chunks, tensors, slack + shift)
            if blocks is not None:
                memory.doubts["allocator blocks"] = blocks
        below, above = memory.device_doubt_bytes
        least = allocator.reserved(sizes, base, allocated - below, allocator.LEAST_WASTE_PERCENT)
        most = allocator.reserved(sizes, base, allocated, allocator.MOST_WASTE_PERCENT)
        memory.reserved_low_bytes = minimum(least, memory.peak_reserved_bytes)
        memory.reserved_high_bytes = maximum(maximum(most, memory.peak_reserved_bytes), allocated + above)
        device.outside(sizes, memory, self.accelerator, self.groups, allocated, stage)
        return memory

    def first_step(self, chunks: tuple[Chunk, ...], common: dict[str, Item]) -> first_step.Step | None:
        """The first micro-batches of a rank, where they are written down."""
        shared = common["global buffer"].bytes if "global buffer" in common else 0
        workspace = persistent.torch_workspace_bytes(self.sizes)
        return first_step.step_of(self.sizes, chunks, shared, workspace, self.accelerator.compute_units or 0)

    def kept_slack_bytes(self, memory: RankMemory, chunks: tuple[Chunk, ...], found: Peak) -> Any:
        """What the blocks of kept tensors hold beyond them at the peak, as an item."""
        each = allocator.layer_slack_bytes(self.sizes)
        layers: Any = 0
        for index, chunk in enumerate(chunks):
            layers = layers + found.load.alive[index] * (len(chunk.layers) + len(chunk.mtp))
        total = layers * each
        if not is_scalar(total) or total:
            memory.items["unsplit blocks of activations"] = Item(
                total, ACTIVATION, "{n} layers in flight x {each} B beside their packed projections",
                {"n": layers, "each": each}, BLOCKS,
            )  # fmt: skip
        return total

    def activation_items(
        self, memory: RankMemory, chunks: tuple[Chunk, ...], kept: list[ChunkBytes], found: Peak, pending: list[Any]
    ) -> None:
        """One item per chunk and kind of activation, at the load of the peak; what is in host memory meanwhile."""
        if self.run.recompute.fine_grained_offload or self.run.recompute.cpu_offload_layers:
            host: Any = 0
            for index, chunk in enumerate(chunks):
                host = host + found.load.alive[index] * self.activations.host_bytes(chunk)
            memory.items["host activations"] = Item(
                host, HOST, "offloaded until backward", {}, "Megatron-Core activation offloading"
            )
        if not self.sizes.scalar:
            memory.items["activations"] = Item(
                found.activations,
                ACTIVATION,
                "",
                {},
                KEPT,
            )
            return
        for index, part in enumerate(kept):
            alive = found.load.alive[index]
            suffix = f" (chunk {index})" if len(kept) > 1 else ""
            for name, (value, text) in part.parts.items():
                memory.items[f"activations {name}{suffix}"] = Item(
                    alive * value, ACTIVATION, "{n} in flight x {each} B (" + text + ")",
                    {"n": alive, "each": value}, KEPT,
                )  # fmt: skip
            waiting = found.load.pending[index]
            if waiting:
                memory.items[f"pending weight gradients{suffix}"] = Item(
                    waiting * pending[index], ACTIVATION, "{n} micro-batches x {each} B of inputs and gradients",
                    {"n": waiting, "each": pending[index]}, "TransformerEngine WeightGradStore, Primus zero bubble",
                )  # fmt: skip
