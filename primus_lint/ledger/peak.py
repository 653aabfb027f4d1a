"""The peak of forward and backward: the heaviest load of the schedule with what its event needs for the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum, where
from primus_lint.ledger import graphs, head, persistent, sharding, transients
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.inflight import Loaded
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.stage_activations import Activations
    from primus_lint.ledger.states import Stage


MOMENT = "backward of the last forward"  # name of this moment; `walk` says which event it is


class Peak(NamedTuple):
    """`activations`: bytes of the micro-batches in flight; `working`: what the event itself needs besides; `load`: the
    load at which their sum is largest (of one recipe; the last candidate on a grid)."""

    activations: Any
    working: Any
    load: Loaded


class Weights(NamedTuple):
    """Bytes per chunk: of a micro-batch alive, of one pending, and of a forward and backward event while it runs."""

    alive: list[Any]
    pending: list[Any]
    forward: list[Any]
    backward: list[Any]


def weights(sizes: Sizes, chunks: tuple[Chunk, ...], activations: Activations, stage: Stage) -> Weights:
    """The weights of a rank's chunks.

    On the chunk with the loss the backward begins there: what the loss keeps is gone when the layers begin, so the
    larger of both moments counts.
    """
    whole = sharding.whole_bytes(sizes, chunks, stage)
    made: dict[int, tuple[Any, Any, Any, Any]] = {}  # equal chunks have one account
    rows = []
    for chunk in chunks:
        found = activations.chunk(chunk)
        if id(found) not in made:
            made[id(found)] = _weights(sizes, chunk, activations, whole)
        rows.append(made[id(found)])
    alive, pending, forward, backward = (list(values) for values in zip(*rows, strict=True))
    return Weights(alive, pending, forward, backward)


def _weights(sizes: Sizes, chunk: Chunk, activations: Activations, whole: sharding.Whole) -> tuple[Any, Any, Any, Any]:
    """The weights of one chunk: alive, pending, forward, backward."""
    found = activations.chunk(chunk)
    work: Any = 0
    beside: Any = 0
    for kind in found.kinds:
        work = maximum(work, transients.backward_bytes(sizes, kind, activations.of(kind).mlp) + found.working)
    if sizes.run.schedule.overlap_moe_ep:  # the layer that the forward beside it has just made
        for kind in found.kinds:
            beside = maximum(beside, activations.layer(kind))
        beside = where(sizes.m == 1, 0, beside)
    # of the last layer to run backward: the others' tensors are gone by then
    gone = found.bytes - found.bytes // max(len(chunk.layers), 1)
    work = work + maximum(whole.first, whole.last - gone)
    ahead: Any = 0
    if chunk.loss:
        ahead = head.logits_transient_bytes(sizes)
        kept = found.parts["output and loss"][0]
        loss = maximum(ahead, head.weight_gradient_bytes(sizes))
        work = maximum(kept + loss + whole.forward, work) - kept
    return found.bytes, transients.pending_bytes(sizes, chunk), ahead + whole.forward, work + beside


def retained_bytes(sizes: Sizes, chunks: tuple[Chunk, ...], activations: Activations) -> Any:
    """What stays between steps (inputs, dispatch) and is of micro-batches in flight at the peak, counted with them there."""
    retained = persistent.retained_input_bytes(sizes, chunks)
    for chunk in chunks:
        retained = retained + activations.also_held_bytes(chunk)
    return retained


def moving_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """What forward and backward have beside the kept tensors at any event: pipeline transfers and the batch."""
    moving = transients.pipeline_bytes(sizes)
    if any(chunk.embedding or chunk.loss for chunk in chunks):
        moving = moving + transients.batch_bytes(sizes)
    return moving


def peak(sizes: Sizes, candidates: tuple[Loaded, ...], found: Weights) -> Peak:
    """The heaviest candidate load of a rank."""
    best: Peak | None = None
    for load in candidates:
        held: Any = 0
        for chunk, alive in enumerate(load.alive):
            held = held + alive * found.alive[chunk]
            if not is_scalar(load.pending[chunk]) or load.pending[chunk]:
                held = held + load.pending[chunk] * found.pending[chunk]
        extra = {"F": found.forward, "B": found.backward}.get(load.kind)
        working = 0 if extra is None else extra[load.chunk]
        if best is None:
            best = Peak(held, working, load)
        elif sizes.scalar:
            if held + working > best.activations + best.working:
                best = Peak(held, working, load)
        else:
            total = maximum(held + working, best.activations + best.working)
            activations = maximum(held, best.activations)
            best = Peak(activations, total - activations, load)
    assert best is not None
    return best


def with_graphs(
    sizes: Sizes, candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...], activations: Activations, weighed: Weights,
    found: Peak,
) -> tuple[Any, Any]:  # fmt: skip
    """With CUDA graphs of layers: the changing part of the peak that is allocated while they are replayed, and what their
    capture allocates on top of the states. Without: all of the changing part, and nothing."""
    if graphs.scope(sizes.run) is None:
        return found.activations + found.working, 0
    pooled = [activations.pool_bytes(chunk) for chunk in chunks]
    replay = peak(sizes, candidates, beside_pool(sizes, chunks, activations, weighed))
    nothing = [0] * len(chunks)
    capture = peak(sizes, candidates, weighed._replace(alive=pooled, pending=nothing, forward=nothing))
    return replay.activations + replay.working, capture.activations + capture.working


def beside_pool(sizes: Sizes, chunks: tuple[Chunk, ...], activations: Activations, weighed: Weights) -> Weights:
    """The weights without what lies in the memory pool of CUDA graphs."""
    if graphs.scope(sizes.run) is None:
        return weighed
    pooled = [activations.pool_bytes(chunk) for chunk in chunks]
    return weighed._replace(alive=[alive - pool for alive, pool in zip(weighed.alive, pooled, strict=True)])
