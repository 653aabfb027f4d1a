"""What one micro-batch keeps in one model chunk: layers under every form of recomputation, and both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import beside, ceil_div, maximum, minimum, where
from primus_lint.ledger import graphs, head, params
from primus_lint.ledger.activations.experts import also_held_bytes
from primus_lint.ledger.activations.kind import Kind, kind_of, mtp_kind
from primus_lint.ledger.activations.layer import checkpoint_bytes, kept
from primus_lint.ledger.activations.offload import layers_on_device, offload
from primus_lint.ledger.activations.recompute import selective
from primus_lint.ledger.activations.tensors import total
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


class ChunkBytes(NamedTuple):
    """`parts` by name, kept by each micro-batch in flight; `working` is what recomputation brings back at a time."""

    parts: dict[str, tuple[Any, str]]  # name -> (bytes, what it is made of)
    working: Any
    kinds: tuple[Kind, ...]

    @property
    def bytes(self) -> Any:
        result: Any = 0
        for value, _ in self.parts.values():
            result = result + value
        return result


class LayerBytes(NamedTuple):
    """Of one layer of a kind that is not fully recomputed, for one micro-batch."""

    kept: Any
    mlp: Any  # of them, those of the MLP (with router, dispatch and experts)
    recomputed: Any  # what it brings back for its backward
    offloaded: Any
    pooled: Any  # in the memory pool of CUDA graphs
    experts: Any  # with a row per token of a routed expert
    also_held: Any  # that the token dispatcher holds between steps as well


class Activations:
    """Bytes per chunk, each kind of layer computed once."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.checkpoint = checkpoint_bytes(sizes)
        stages = sizes.run.parallel.stages or ()
        layers = [layer for row in stages for chunk in row for layer in chunk.layers]
        self.kinds = {layer: kind_of(sizes.run, layer) for layer in layers}
        self._layers: dict[Kind, LayerBytes] = {}
        self._twins: dict[Any, Chunk] = {}

    def twin(self, chunk: Chunk) -> Chunk:
        """The first chunk that has the same layers, ends and recomputation."""
        if chunk not in self._twins:
            ids = self.sizes.run.recompute.layer_ids or ()
            layers = tuple([(self.kinds[layer], layer in ids) for layer in chunk.layers])
            what = layers, chunk.embedding, chunk.loss, chunk.mtp, params.final_norm_here(self.sizes, chunk)
            self._twins[chunk] = self._twins.setdefault(what, chunk)
        return self._twins[chunk]

    def once(self, name: str, chunk: Chunk, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for equal chunks."""
        return self.sizes.once((name, self.twin(chunk)), make)

    def of(self, kind: Kind) -> LayerBytes:
        """A layer of a kind."""
        if kind not in self._layers:
            recompute = self.sizes.run.recompute
            everything = kept(self.sizes, kind)
            lists = recompute.lists if recompute.granularity == "selective" else ((),)
            rows = [self._selected(kind, everything, modules) for modules in lists]
            self._layers[kind] = LayerBytes(*(beside(list(values)) for values in zip(*rows, strict=True)))
        return self._layers[kind]

    def _selected(self, kind: Kind, everything: Tensors, modules: tuple[str, ...]) -> LayerBytes:
        """A layer with a list of modules recomputed."""
        selected = selective(self.sizes, kind, everything, modules) if modules else everything
        stay, leave = offload(self.sizes, selected)
        also_held = also_held_bytes(self.sizes, stay)
        back = total(everything) - total(selected) - also_held_bytes(self.sizes, everything) + also_held
        return LayerBytes(
            total(stay),
            total({name: value for name, value in stay.items() if not name.startswith(("attention.", "latent."))}),
            maximum(back, 0) + layers_on_device(self.sizes) * total(leave),
            total(leave),
            graphs.pool_bytes(self.sizes.run, kind, stay),
            total({name: value for name, value in stay.items() if name.startswith("experts.")}),
            also_held,
        )

    def layer(self, kind: Kind) -> Any:
        """Bytes kept by one layer of a kind that is not fully recomputed."""
        return self.of(kind).kept

    def expert_bytes(self, chunk: Chunk) -> tuple[Any, Any]:
        """Of tensors with a row per token of a routed expert: the bytes that one micro-batch keeps, and those of the
        layers that full recomputation brings back at a time."""
        found: tuple[Any, Any] = self.once("experts", chunk, lambda: self._expert_bytes(chunk))
        return found

    def _expert_bytes(self, chunk: Chunk) -> tuple[Any, Any]:
        layers, at_once = self._kept_whole(chunk)
        kept_bytes: Any = 0
        heaviest: Any = 0
        for kind, whole in layers:
            kept_bytes = kept_bytes + whole * self.of(kind).experts
            heaviest = maximum(heaviest, self.of(kind).experts)
        return kept_bytes, at_once * heaviest

    def also_held_bytes(self, chunk: Chunk) -> Any:
        """Of what one micro-batch keeps, the bytes that the token dispatchers hold between steps as well."""
        return self.once("also held", chunk, lambda: self._also_held_bytes(chunk))

    def _also_held_bytes(self, chunk: Chunk) -> Any:
        out: Any = 0
        for kind, whole in self._kept_whole(chunk)[0]:
            out = out + whole * self.of(kind).also_held
        return out

    def _kept_whole(self, chunk: Chunk) -> tuple[list[tuple[Kind, Any]], Any]:
        """The MoE layers of a chunk, MTP depths included, with 1 where full recomputation leaves all tensors and 0 where it
        drops them; and how many layers it brings back at a time."""
        kinds = [self.kinds[layer] for layer in chunk.layers]
        saved: list[Any] = [1] * len(kinds)
        at_once: Any = 0
        if self.sizes.run.recompute.granularity == "full":
            _, saved, at_once = self._full(chunk, kinds)
        kinds += [mtp_kind(self.sizes)] * len(chunk.mtp)
        saved = saved + [0 if self._mtp_checkpointed(depth) else 1 for depth in chunk.mtp]
        for kind in dict.fromkeys(kinds):
            self.layer(kind)
        return [(kind, whole) for kind, whole in zip(kinds, saved, strict=True) if kind.moe], at_once

    def pool_bytes(self, chunk: Chunk) -> Any:
        """Bytes that one micro-batch keeps in the memory pool of CUDA graphs instead of allocating them."""
        out: Any = 0
        for kind in [self.kinds[layer] for layer in chunk.layers] + [mtp_kind(self.sizes)] * len(chunk.mtp):
            self.layer(kind)
            out = out + self.of(kind).pooled
        return out

    def offloaded_bytes(self, chunk: Chunk) -> Any:
        """Bytes of the layer of a chunk that sends most to the host."""
        out: Any = 0
        for layer in chunk.layers:
            kind = self.kinds[layer]
            self.layer(kind)
            out = maximum(out, self.of(kind).offloaded)
        return out

    def host_bytes(self, chunk: Chunk) -> Any:
        """Bytes that one micro-batch keeps in host memory."""
        out: Any = 0
        for index, layer in enumerate(chunk.layers):
            kind = self.kinds[layer]
            whole = index < self.sizes.run.recompute.cpu_offload_layers
            out = out + (self.layer(kind) if whole else 0) + self.of(kind).offloaded
        return out

    def chunk(self, chunk: Chunk) -> ChunkBytes:
        """One model chunk."""
        found: ChunkBytes = self.once("chunk", chunk, lambda: self._chunk(chunk))
        return found

    def _chunk(self, chunk: Chunk) -> ChunkBytes:
        sizes = self.sizes
        run = sizes.run
        kinds = [self.kinds[layer] for layer in chunk.layers]
        parts: dict[str, tuple[Any, str]] = {}
        working: Any = 0
        if chunk.embedding:
            parts["embedding"] = (total(head.embedding(sizes)), "token ids, mask")
        saved: list[Any] = [True] * len(kinds)
        if run.recompute.granularity == "selective" or run.recompute.fine_grained_offload:
            for kind in dict.fromkeys(kinds):
                self.layer(kind)
                working = maximum(working, self.of(kind).recomputed)
        if run.recompute.cpu_offload_layers and kinds:
            # whole layers on the host: one on its way out or in, one at work
            saved = [index >= run.recompute.cpu_offload_layers for index in range(len(kinds))]
            working = 2 * self.layer(kinds[0])
        if run.recompute.granularity == "full" and kinds:
            inputs, saved, at_once = self._full(chunk, kinds)
            for kind in dict.fromkeys(kinds):
                working = maximum(working, at_once * (self.layer(kind) - self.of(kind).also_held))
            parts["recompute inputs"] = (inputs * self.checkpoint, "the input of each recomputed unit")
        for kind in dict.fromkeys(kinds):
            count: Any = 0
            for index, other in enumerate(kinds):
                if other == kind:
                    count = count + saved[index]
            name = ("moe layers" if kind.moe else "dense layers") + (" fp8" if kind.low else "")
            text = f"layers x {_shown(self.layer(kind))} B"
            parts[name] = (count * self.layer(kind), f"{count} {text}" if isinstance(count, int) else text)
        if params.final_norm_here(sizes, chunk):
            parts["final norm"] = (total(head.final_norm(sizes)), "input and statistics")
        if chunk.mtp:
            kind = mtp_kind(sizes)
            each: Any = 0
            for depth in chunk.mtp:
                checkpointed = self._mtp_checkpointed(depth)
                each = each + total(head.mtp(sizes, kind, checkpointed))
                if checkpointed:
                    working = maximum(working, total(head.mtp(sizes, kind, False)))
            parts["mtp"] = (each, f"{len(chunk.mtp)} depths")
        if chunk.loss:
            parts["output and loss"] = (total(head.loss(sizes)), "output layer's input and what the loss keeps")
        found = tuple(dict.fromkeys(kinds + ([mtp_kind(sizes)] if chunk.mtp else [])))
        return ChunkBytes(parts, working, found)

    def _mtp_checkpointed(self, depth: int) -> bool:
        """MTP depths are recomputed by `uniform`, or when Primus's list names them; never by `block`."""
        recompute = self.sizes.run.recompute
        if recompute.granularity != "full":
            return False
        if recompute.layer_ids is not None:
            return self.sizes.run.model.num_layers + depth in recompute.layer_ids
        return recompute.method == "uniform"

    def _full(self, chunk: Chunk, kinds: list[Kind]) -> tuple[Any, list[Any], Any]:
        """Full recomputation of a chunk: number of kept inputs, which layers keep everything, layers at work at a time.

        `block` recomputes the first `recompute_num_layers` layers of the chunk one by one, `uniform` all layers in
        units of that many, `recompute_layer_ids` the named layers one by one.
        """
        recompute = self.sizes.run.recompute
        count = len(kinds)
        if recompute.layer_ids is not None:
            chosen = [layer in recompute.layer_ids for layer in chunk.layers]
            return sum(chosen), [not named for named in chosen], 1 if any(chosen) else 0
        number = recompute.num_layers if recompute.num_layers is not None else 1
        if recompute.method == "block":
            saved = [where(number > index, 0, 1) for index in range(count)]
            return minimum(number, count), saved, where(number > 0, 1, 0)
        return ceil_div(count, number), [0] * count, minimum(number, count)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "an array of"
