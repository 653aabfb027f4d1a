"""The blocks of PyTorch's caching allocator that long-lived tensors end up in.

A free block of the large pool is split only when more than 1 MiB would remain, so a tensor may hold up to 1 MiB more
than it needs, and `memory_allocated` counts the whole block. Which tensors do is decided by the order in which Megatron
makes them: weights; with the distributed optimizer the two buffers, whereupon the weights' own storage is freed; one
main parameter after the other, each by way of a clone in the weights' dtype; at the first step the moments, one after
the other. Tensors up to 1 MiB come from the small pool, whose blocks are always split.

Replayed here with the allocator's own rules (best fit, splitting, merging of free neighbours), the first micro-batches
between states and moments where `first_step` has them; elsewhere they are left out. Learned positions come from the host
in fp32 before they are halved (Megatron-Core `LanguageModelEmbedding`, Megatron-LM `get_model`), and a loaded checkpoint
gives free segments back (`load_checkpoint`). Of the runs of ../shared/goldens that are off, most differ by a few half
MiB, and from one build of PyTorch or TransformerEngine to the next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import lru_cache
from typing import TYPE_CHECKING

from primus_lint.ledger import buffers, first_step

if TYPE_CHECKING:
    from primus_lint.ledger.buffers import Buffer
    from primus_lint.ledger.first_step import Step
    from primus_lint.ledger.params import Segment
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

MIB = 1 << 20
ROUNDING_BYTES = 512
SMALL_BYTES = MIB  # largest request of the small pool
SEGMENT_BYTES = 20 * MIB  # of the large pool, for requests below 10 MiB; larger ones get 2 MiB multiples of their own
POSITIONS = "position_embeddings.weight"
MOST_TENSORS = 400  # of a rank; beyond, single blocks no longer matter


class Block:
    """A block of a segment: size in bytes, whether in use, and its neighbours."""

    __slots__ = ("address", "after", "before", "size", "used")

    def __init__(self, address: int, size: int, before: Block | None, after: Block | None) -> None:
        self.address, self.size, self.used = address, size, True
        self.before, self.after = before, after


class Pool:
    """Both pools; only blocks of the large one are kept. `waste` is what blocks in use hold beyond their tensors."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []  # (size, address), ascending
        self.blocks: dict[int, Block] = {}
        self.top = 0
        self.waste = 0

    def take(self, size_bytes: int) -> Block | None:
        """A block for a tensor; None from the small pool."""
        size = -(-size_bytes // ROUNDING_BYTES) * ROUNDING_BYTES
        self.waste += size - size_bytes
        if size <= SMALL_BYTES:
            return None
        position = bisect_left(self.free, (size, 0))
        if position < len(self.free):
            block = self.blocks[self.free.pop(position)[1]]
            block.used = True
        else:
            segment = SEGMENT_BYTES if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            block = self.blocks[self.top] = Block(self.top, segment, None, None)
            self.top += segment + MIB
        left = block.size - size
        if left <= MIB:
            self.waste += left
            return block
        rest = Block(block.address + size, left, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self.blocks[rest.address] = rest
        self._release(rest)
        return block

    def give(self, block: Block | None, size_bytes: int) -> None:
        """Free the block of a tensor."""
        if block is None:
            self.waste -= -size_bytes % ROUNDING_BYTES
        else:
            self.waste -= block.size - size_bytes
            self._release(block)

    def empty(self) -> None:
        """Give free segments back to the device."""
        whole = [block for block in map(self.blocks.get, [address for _, address in self.free]) if block is not None]
        for block in whole:
            if block.before is None and block.after is None:
                self.free.remove((block.size, block.address))
                del self.blocks[block.address]

    def _release(self, block: Block) -> None:
        block.used = False
        if block.before is not None and not block.before.used:
            block = self._merge(block.before, block, block.before)
        if block.after is not None and not block.after.used:
            block = self._merge(block, block.after, block.after)
        insort(self.free, (block.size, block.address))

    def _merge(self, first: Block, second: Block, listed: Block) -> Block:
        """Join two free neighbours, of which one is in the list of free blocks."""
        del self.free[bisect_left(self.free, (listed.size, listed.address))]
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        del self.blocks[second.address]
        return first


def waste_bytes(
    weights: list[int], stores: list[int], owned: list[int], freed: bool, main: int, moments: tuple[int, ...],
    gradients: int = 0, loaded: bool = False, moved: int = 0, step: Step | None = None, resumed: bool = False,
) -> int:  # fmt: skip
    """Bytes beyond the tensors: `weights` and `stores` (buffers) in bytes, `owned` in elements, with `main`, `moments` and
    `gradients` (of the main parameters) bytes each; `freed`: the weights' own storage goes once the buffers are there;
    `loaded`: the moments are made anew beside those that a checkpoint was read into; `moved`: elements of a weight that comes
    from the host in fp32 and is halved; `step`: the first micro-batches; `resumed`: the moments are there before them, and what is free is not."""
    pool = Pool()
    held = [(pool.take(size), size) for size in weights]
    if moved:
        block = pool.take(4 * moved)
        held.append((pool.take(2 * moved), 2 * moved))
        pool.give(block, 4 * moved)
    for size in stores:
        pool.take(size)
    if freed:
        for block, size in held:
            pool.give(block, size)
    if main:
        for numel in owned:
            clone = pool.take(numel * 2)
            pool.take(numel * main)
            pool.give(clone, numel * 2)
    sizes = [numel * width for numel in owned for width in moments]
    if resumed:
        read = [(pool.take(size), size) for size in sizes] if loaded else []
        for size in sizes:
            pool.take(size)
        pool.empty()  # what was read is referred to until after that
        for block, size in read:
            pool.give(block, size)
    if step is not None:
        first_step.run(step, pool)
    for numel in owned if gradients else ():
        pool.take(numel * gradients)
    for size in () if resumed else sizes:
        pool.take(size)
    return pool.waste


def replayed(
    sizes: Sizes, stage: Stage, main: int, moments: tuple[int, ...], last: bool, gradients: int = 0,
    step: Step | None = None,
) -> int | None:  # fmt: skip
    """`waste_bytes` of a rank; None when it has too many tensors, or its states are split otherwise."""
    optimizer = sizes.run.optimizer
    if optimizer.sharding not in ("none", "distributed") or optimizer.cpu_offload or not sizes.scalar:
        return None
    segments = tuple(tuple(chunk) for chunk in stage.segments)
    stores = tuple(grid.buffers for grid in stage.grids)
    return _replayed(
        segments,
        stores,
        sizes.e,
        sizes.grad,
        optimizer.sharding == "distributed",
        main,
        moments,
        last,
        gradients,
        loads_beside(sizes),
        step,
        bool(sizes.run.args.get("resumed")),
    )


def loads_beside(sizes: Sizes) -> bool:
    """Whether the moments are copies of those that a checkpoint was read into: TransformerEngine's
    `FusedAdam.load_state_dict` makes new tensors while the loaded ones are still referred to. The distributed optimizer
    copies into its own, and what a `torch` checkpoint brings lies in host memory."""
    run = sizes.run
    plain = run.optimizer.sharding == "none" and run.optimizer.name == "adam"
    return bool(run.args.get("resumed")) and plain and run.args.get("ckpt_format") != "torch"


@lru_cache(maxsize=256)
def _replayed(
    segments: tuple[tuple[Segment, ...], ...], grids: tuple[tuple[Buffer, ...], ...], weight: int, gradient: int,
    sharded: bool, main: int, moments: tuple[int, ...], last: bool, gradients: int, loaded: bool, step: Step | None,
    resumed: bool,
) -> int | None:  # fmt: skip
    """Equal stages are replayed once."""
    everything = [segment for chunk in segments for segment in chunk]
    if sum(param.count * segment.repeats for segment in everything for param in segment.params) > MOST_TENSORS:
        return None
    params = [
        param
        for segment in everything
        for _ in range(segment.repeats)
        for param in segment.params
        for _ in range(param.count)
    ]
    stores: list[int] = []
    owned: list[int] = []
    for found, expert in zip(grids, (False, True), strict=True):
        chunks = [chunk for chunk in segments if any(param.expert is expert for part in chunk for param in part.params)]
        for buffer, chunk in zip(found, chunks, strict=True):
            if sharded:
                stores.append(buffer.numel * weight)
                owned += buffers.shards(list(chunk), expert, buffer, buffer.group - 1 if last else 0)
            stores.append(buffer.numel * gradient)
        if not sharded:
            owned += [param.numel for param in params if param.expert is expert]
    moved = sum(param.numel for param in params if param.name == POSITIONS) if weight == 2 else 0
    weights = [param.numel * weight for param in params if not moved or param.name != POSITIONS]
    return waste_bytes(weights, stores, owned, sharded, main, moments, gradients, loaded, moved, step, resumed)
