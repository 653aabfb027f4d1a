"""`ledger(run)`: put the parts together, one account per class of rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, where
from primus_lint.ledger import allocator, buffers, device, head, optimizer, params, persistent, transients
from primus_lint.ledger.activations.layer import checkpoint_bytes, layer_bytes
from primus_lint.ledger.activations.tensors import total
from primus_lint.ledger.inflight import compositions
from primus_lint.ledger.result import (
    ACTIVATION,
    ALLOCATOR,
    DEVICE,
    PERSISTENT,
    STATIC,
    TRANSIENT,
    Abstention,
    Item,
    Ledger,
    RankMemory,
)
from primus_lint.ledger.sizes import Sizes

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run

FOLDED = ("zbv", "v-half", "v-min", "dualpipev")


def abstain(run: Run) -> tuple[str, ...]:
    """Why there can be no account of a recipe; empty when there is one."""
    reasons = []
    if run.model.kind != "gpt":
        reasons.append(f"{run.model.kind} models are not modelled")
    if run.model.vocab_size is None:
        reasons.append("the vocabulary size is not known")
    if run.parallel.stages is None:
        reasons.append("the pipeline split is illegal")
    if run.parallel.dp is None:
        reasons.append("the world size is not known")
    return tuple(reasons)


def chunks_of(run: Run, rank: int) -> tuple[Chunk, ...]:
    """The model chunks of a pipeline rank; V schedules fold the second half of the virtual stages back."""
    stages = run.parallel.stages
    assert stages is not None
    if run.schedule.kind in FOLDED and run.parallel.vpp == 2:
        pp = run.parallel.pp
        return (stages[rank][0], stages[pp - 1 - rank][1])
    return stages[rank]


def ledger(run: Run, accelerator: Any = None) -> Ledger | Abstention:
    """The memory account of a recipe, or an `Abstention` that says why there is none.

    `run` must know its world size; lower it again for another one. With arrays in `run` all figures are arrays, the
    item formulas are not to be rendered, and padding and shards are tight upper bounds.
    """
    reasons = abstain(run)
    if reasons:
        return Abstention(reasons)
    sizes = Sizes(run)
    ranks: list[RankMemory] = []
    parts = _Parts(sizes)
    for rank in range(run.parallel.pp):
        ranks += parts.rank(rank)
    return Ledger(tuple(ranks), run.not_modelled)


class _Parts:
    """What is computed once per recipe and shared by its ranks."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.run = sizes.run
        self._layer: dict[bool, Any] = {}
        self._transient: dict[bool, Any] = {}
        self.checkpoint = checkpoint_bytes(sizes)

    def layer(self, moe: bool) -> Any:
        if moe not in self._layer:
            self._layer[moe] = layer_bytes(self.sizes, moe)
        return self._layer[moe]

    def chunk_activations(self, chunk: Chunk) -> dict[str, Any]:
        """Bytes kept by one micro-batch in one chunk, by kind; `_working` is what recomputation brings back at once."""
        sizes, run = self.sizes, self.run
        recompute, model = run.recompute, run.model
        out: dict[str, Any] = {}
        count = len(chunk.layers)
        moe = sum(model.is_moe_layer(layer) for layer in chunk.layers)
        working: Any = 0
        if recompute.granularity == "full":
            if recompute.layer_ids is not None:
                ids = set(recompute.layer_ids)
                chosen = [layer for layer in chunk.layers if layer in ids]
                saved_moe = sum(model.is_moe_layer(layer) for layer in chosen)
                dense_left = count - moe - (len(chosen) - saved_moe)
                moe_left = moe - saved_moe
                inputs: Any = len(chosen)
            elif recompute.method == "block":
                limit = recompute.num_layers if recompute.num_layers is not None else count
                inputs = where(limit < count, limit, count)
                prefix = [0]
                for layer in chunk.layers:
                    prefix.append(prefix[-1] + model.is_moe_layer(layer))
                saved_moe = _pick(prefix, inputs)
                moe_left = moe - saved_moe
                dense_left = count - moe - (inputs - saved_moe)
            else:
                each = recompute.num_layers if recompute.num_layers is not None else 1
                inputs = -(-count // each)
                dense_left = moe_left = 0
            if count:
                out["recompute inputs"] = inputs * self.checkpoint
                heaviest: Any = 0
                if moe < count:
                    heaviest = maximum(heaviest, self.layer(False))
                if moe:
                    heaviest = maximum(heaviest, self.layer(True))
                per_unit = recompute.num_layers if recompute.method == "uniform" and recompute.num_layers else 1
                working = where(inputs > 0, heaviest * where(per_unit < count, per_unit, count), 0)
        else:
            dense_left, moe_left = count - moe, moe
        if count - moe:
            out["dense layers"] = dense_left * self.layer(False)
        if moe:
            out["moe layers"] = moe_left * self.layer(True)
        if chunk.embedding:
            out["embedding"] = total(head.embedding(sizes))
        if params.final_norm_here(sizes, chunk):
            out["final norm"] = total(head.final_norm(sizes))
        if chunk.mtp:
            kind = params.last_layer_is_moe(sizes)
            out["mtp"] = len(chunk.mtp) * (total(head.mtp(sizes)) + self.layer(kind))
        if chunk.loss:
            out["output and loss"] = total(head.loss(sizes, 1 + model.mtp_num_layers))
        out["_working"] = working
        return out

    def rank(self, pp_rank: int) -> list[RankMemory]:
        """The accounts of one pipeline rank: one, or one for the first and one for the last data-parallel index."""
        sizes, run = self.sizes, self.run
        chunks = chunks_of(run, pp_rank)
        dense_buffers: list[buffers.Buffer] = []
        expert_buffers: list[buffers.Buffer] = []
        weights: dict[str, Any] = {"dense": 0, "expert": 0}
        for index, chunk in enumerate(chunks):
            segments = params.chunk_segments(sizes, chunk)
            for expert, found in ((False, dense_buffers), (True, expert_buffers)):
                made = buffers.buffer(sizes, segments, expert, pp_rank, index)
                if made is not None:
                    found.append(made)
                    weights["expert" if expert else "dense"] += made.unpadded
        if sizes.scalar and run.optimizer.sharding == "distributed":
            shards = []
            for position in ("first", "last"):
                owned = []
                for found in (dense_buffers, expert_buffers):
                    owned.append(sum(buffers.owned(b, 0 if position == "first" else b.group - 1) for b in found))
                shards.append((position, owned[0], owned[1]))
            if shards[0][1:] == shards[1][1:]:
                shards = [("all", *shards[0][1:])]
        elif run.optimizer.sharding == "distributed":
            dense = sum(buffers.owned(b, 0) for b in dense_buffers)
            expert = sum(buffers.owned(b, 0) for b in expert_buffers)
            shards = [("all", dense, expert)]
        else:
            shards = [("all", weights["dense"], weights["expert"])]
        common = self.common_items(pp_rank, chunks, dense_buffers, expert_buffers, weights)
        per_stage = sizes.tp * sizes.cp * sizes.dp
        out = []
        for position, dense_owned, expert_owned in shards:
            count = per_stage
            if len(shards) == 2:
                last = sizes.tp * 1
                count = last if position == "last" else per_stage - last
            out.append(self.account(pp_rank, position, count, chunks, dense_owned, expert_owned, weights, common))
        return out

    def common_items(
        self, pp_rank: int, chunks: tuple[Chunk, ...], dense: list[Any], expert: list[Any], weights: dict[str, Any]
    ) -> dict[str, Item]:
        """Items that do not depend on the data-parallel index."""
        sizes, run = self.sizes, self.run
        items: dict[str, Item] = {}
        for name, found in (("dense", dense), ("expert", expert)):
            if not found:
                continue
            real = sum(b.unpadded for b in found)
            padded = sum(b.numel for b in found)
            stored = padded if run.optimizer.sharding == "distributed" else real
            items[f"weights {name}"] = Item(
                stored * sizes.e, STATIC, "{stored} elements x {e} B ({padding} of padding)",
                {"stored": stored, "e": sizes.e, "padding": stored - real}, "ledger rule 2: parameter buffer",
            )  # fmt: skip
            items[f"gradients {name}"] = Item(
                padded * sizes.grad, STATIC, "{padded} elements x {g} B", {"padded": padded, "g": sizes.grad},
                "ledger rule 2: gradient buffer",
            )  # fmt: skip
        moe = persistent.moe_layers(sizes, chunks)
        small = {
            "gemm workspaces": persistent.workspace_bytes(sizes, moe > 0),
            "rope table": persistent.rope_table_bytes(sizes),
            "gather buffer": persistent.gather_buffer_bytes(sizes) if any(c.loss for c in chunks) else 0,
        }
        router = persistent.router_buffer_bytes(sizes, moe)
        if moe and run.model.moe is not None and run.model.moe.expert_bias:
            items["router buffers"] = Item(router, STATIC, "{n} layers x {E} experts x 6 B",
                                           {"n": moe, "E": sizes.E}, "expert bias and token counters")  # fmt: skip
        for name, value in small.items():
            items[name] = Item(value, PERSISTENT, "{value} B", {"value": value}, "ledger rule 5")
        return items

    def account(
        self, pp_rank: int, position: str, count: Any, chunks: tuple[Chunk, ...], dense: Any, expert: Any,
        weights: dict[str, Any], common: dict[str, Item],
    ) -> RankMemory:  # fmt: skip
        """One class of rank: optimizer state, activations at the peak, transients, allocator, device."""
        sizes = self.sizes
        state = optimizer.state_bytes(sizes)
        owned = dense + expert
        items: dict[str, Item] = {}
        for name, each in (
            ("main parameters", state.main),
            ("moment 1", state.exp_avg),
            ("moment 2", state.exp_avg_sq),
        ):
            if each:
                items[f"optimizer {name}"] = Item(
                    owned * each, STATIC, "({dense} dense + {expert} expert) owned elements x {each} B",
                    {"dense": dense, "expert": expert, "each": each}, "ledger rule 3",
                )  # fmt: skip
        weights_items = {k: v for k, v in common.items() if v.group == STATIC}
        items = {**weights_items, **items, **{k: v for k, v in common.items() if v.group != STATIC}}
        memory = RankMemory(pp_rank, position, count, items)
        memory.static_bytes = memory.total(STATIC)
        memory.steady_allocated_bytes = memory.static_bytes + memory.total(PERSISTENT)
        self.activations(memory, pp_rank, chunks)
        activations = memory.total(ACTIVATION)
        transient = self.layer_transients(chunks)
        steady = memory.steady_allocated_bytes
        all_weights = weights["dense"] + weights["expert"]
        moments = {
            "backward of the last forward": steady + activations + transient,
            "optimizer step": steady + transients.optimizer_step_bytes(sizes, owned),
            "construction": memory.total(STATIC) - owned * state.total + all_weights * sizes.e,
        }
        memory.moments = moments
        peak: Any = 0
        for name, value in moments.items():
            if sizes.scalar and value > peak:
                memory.peak_moment = name
            peak = maximum(peak, value)
        memory.peak_allocated_bytes = peak
        extra = maximum(peak - steady - activations, 0)
        items["transients"] = Item(extra, TRANSIENT, "{extra} B above the kept tensors at the {moment}",
                                   {"extra": extra, "moment": memory.peak_moment}, "ledger: transients")  # fmt: skip
        memory.peak_reserved_bytes = allocator.reserved(steady, peak)
        items["allocator"] = Item(memory.peak_reserved_bytes - peak, ALLOCATOR, "{v} B reserved beyond the peak",
                                  {"v": memory.peak_reserved_bytes - peak}, "ledger: allocator")  # fmt: skip
        low, high = device.context_bytes(sizes)
        groups = device.communicators(sizes)
        items["runtime context"] = Item(high, DEVICE, "{low} to {high} B", {"low": low, "high": high}, "ledger: device")
        comm_low, comm_high = device.COMMUNICATOR_BYTES
        items["communicators"] = Item(groups * comm_high, DEVICE, "{n} groups x up to {each} B",
                                      {"n": groups, "each": comm_high}, "ledger: device")  # fmt: skip
        memory.device_low_bytes = peak + low + groups * comm_low
        memory.device_high_bytes = memory.peak_reserved_bytes + high + groups * comm_high
        return memory

    def layer_transients(self, chunks: tuple[Chunk, ...]) -> Any:
        """The largest working set of a backward on this rank: a layer's, or the loss's."""
        sizes, run = self.sizes, self.run
        out: Any = 0
        for chunk in chunks:
            moe = any(run.model.is_moe_layer(layer) for layer in chunk.layers) or bool(chunk.mtp and run.model.moe)
            dense = any(not run.model.is_moe_layer(layer) for layer in chunk.layers)
            layer: Any = 0
            if dense:
                layer = maximum(layer, transients.backward_bytes(sizes, False))
            if moe:
                layer = maximum(layer, transients.backward_bytes(sizes, True))
            layer = layer + self.chunk_activations(chunk)["_working"]
            out = maximum(out, layer)
            if chunk.loss:
                out = maximum(out, head.logits_transient_bytes(sizes))
        return out

    def activations(self, memory: RankMemory, pp_rank: int, chunks: tuple[Chunk, ...]) -> None:
        """Add the activation items of the heaviest composition."""
        per_chunk = [self.chunk_activations(chunk) for chunk in chunks]
        sums = [sum(value for name, value in kinds.items() if name != "_working") for kinds in per_chunk]
        best: Any = None
        chosen: tuple[Any, ...] = ()
        options = compositions(self.run, pp_rank)
        for counts in options:
            weight: Any = 0
            for number, each in zip(counts, sums, strict=True):
                weight = weight + number * each
            if best is None or not self.sizes.scalar or weight > best:
                best = weight if best is None else maximum(best, weight)
                chosen = counts
        if not self.sizes.scalar:
            memory.items["activations"] = Item(best, ACTIVATION, "", {}, "ledger rules 4 and 6")
            return
        for index, kinds in enumerate(per_chunk):
            for name, value in kinds.items():
                if name == "_working":
                    continue
                label = f"activations {name}" + (f" (chunk {index})" if len(per_chunk) > 1 else "")
                memory.items[label] = Item(
                    chosen[index] * value, ACTIVATION, "{n} micro-batches in flight x {each} B",
                    {"n": chosen[index], "each": value}, "ledger rules 4 and 6",
                )  # fmt: skip


def _pick(table: list[int], index: Any) -> Any:
    """table[index] for an integer or an array of them."""
    if isinstance(index, int):
        return table[index]
    import numpy as np

    return np.take(np.asarray(table), index)
