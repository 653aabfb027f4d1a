"""The states of one rank: buffers of every model chunk, weights, gradients and the optimizer shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ledger import buffers, lora, params
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.buffers import Buffer
    from primus_lint.ledger.sizes import Sizes


class Grid(NamedTuple):
    """The dense or the expert parameters of a pipeline rank. `real` and `padded` count elements."""

    buffers: tuple[Buffer, ...]
    real: Any
    padded: Any

    def owned(self, index: Any) -> Any:
        """Real elements whose optimizer state the rank with this index of the sharding group keeps."""
        total: Any = 0
        for buffer in self.buffers:
            total = total + buffers.owned(buffer, index)
        return total

    @property
    def last_index(self) -> Any:
        return self.buffers[0].group - 1 if self.buffers else 0


class Stage(NamedTuple):
    """All trainable parameters of a pipeline rank, and their list chunk by chunk."""

    dense: Grid
    expert: Grid
    segments: list[list[params.Segment]]
    frozen: Any = 0  # elements outside the buffers, without gradient or state

    @property
    def grids(self) -> tuple[Grid, Grid]:
        return self.dense, self.expert


def stage(sizes: Sizes, pp_rank: int, chunks: tuple[Chunk, ...]) -> Stage:
    """The buffers of a pipeline rank, chunk by chunk."""
    segments = [params.chunk_segments(sizes, chunk) for chunk in chunks]
    frozen: Any = 0
    if lora.enabled(sizes.run):
        for part in segments:
            frozen = frozen + params.numel(part)
        segments = [lora.segments(sizes, chunk) for chunk in chunks]
    grids = []
    for expert in (False, True):
        made = []
        real: Any = 0
        padded: Any = 0
        for index, part in enumerate(segments):
            buffer = buffers.buffer(sizes, part, expert, pp_rank, index)
            if buffer is not None:
                made.append(buffer)
                real = real + buffer.unpadded
                padded = padded + buffer.numel
        grids.append(Grid(tuple(made), real, padded))
    return Stage(grids[0], grids[1], segments, frozen)


def indices(sizes: Sizes, rank: int) -> tuple[int, int]:
    """Position of a global rank in its dense and its expert sharding group.

    Megatron's rank order is tp, cp, ep, dp, pp from the fastest; with several optimizer instances a group is one
    consecutive part of the data-parallel ranks.
    """
    run = sizes.run
    world = sizes.tp * sizes.pp * sizes.cp * sizes.dp
    inside = rank % (world // sizes.pp)
    instances = run.optimizer.instances
    dense = (inside // sizes.tp) % (sizes.dpcp // instances)
    expert = (inside // (sizes.etp * sizes.ep)) % max(sizes.edp // instances, 1)
    return dense, expert
