"""Host memory of a node: what offloading keeps there, what the data loader has ready, what a checkpoint stages.

Sources: PyTorch `DataLoader` (two batches ready a worker), Megatron-Core `GPTDataset` (fields of a sample, the mask that
`create_attention_mask_in_dataloader` makes), and those of `optimizer`, `offload` and `checkpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ledger import buffers
from primus_lint.ledger.optimizer import offloaded
from primus_lint.ledger.result import HOST, HOST_LOADER, HOST_SAVE, HOST_SAVE_FIRST, Item
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.result import Ledger, RankMemory
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

READY = 2  # prefetch_factor
FIELDS = 28  # bytes a token: tokens, labels and positions in int64, loss mask in fp32


class NodeMemory(NamedTuple):
    """Host bytes of the fullest node by item: `items` while a checkpoint is saved, `permanent` those there all the time."""

    items: dict[str, int]
    permanent: dict[str, int]

    @property
    def training_bytes(self) -> int:
        return sum(self.permanent.values())

    @property
    def saving_bytes(self) -> int:
        return sum(self.items.values())


def loader_items(sizes: Sizes, chunks: tuple[Chunk, ...]) -> dict[str, Item]:
    """Micro-batches that the data loader's workers have ready, on the first tensor-parallel rank of both end stages."""
    args = sizes.run.args
    workers = args.get("num_workers")
    if not workers or args.get("dataloader_type") == "external" or not any(c.embedding or c.loss for c in chunks):
        return {}
    mask = args.get("create_attention_mask_in_dataloader", True)
    each = sizes.seq * (FIELDS + (sizes.seq if mask else 0))
    text = "{w} workers x {r} micro-batches x {m} x {s} tokens x {f} B" + (
        " (attention mask: 1 B a pair)" if mask else ""
    )
    numbers = {"w": workers, "r": READY, "m": sizes.mbs, "s": sizes.seq, "f": each // sizes.seq}
    return {
        "host data loader": Item(
            workers * READY * sizes.mbs * each,
            HOST_LOADER,
            text,
            numbers,
            "PyTorch DataLoader, Megatron-Core GPTDataset",
        )
    }


def pinned_items(sizes: Sizes, stage: Stage, owned: int, last: bool) -> dict[str, Item]:
    """What PyTorch's pinned allocator adds to offloaded main parameters and gradients: every tensor's bytes are rounded up
    to a power of two (ATen `CachingHostAllocator`). Moments are not pinned."""
    run = sizes.run
    if not run.optimizer.cpu_offload or not sizes.scalar:
        return {}
    pieces: list[int] = []
    for expert, grid in enumerate(stage.grids):
        index = grid.last_index if last else 0
        position = 0
        for chunk in stage.segments:
            if not any(param.expert == bool(expert) for segment in chunk for param in segment.params):
                continue
            buffer = grid.buffers[position]
            position += 1
            if run.optimizer.sharding == "distributed":
                pieces += buffers.shards(chunk, bool(expert), buffer, index)
            else:
                pieces += [param.numel for param in buffers.backwards(chunk, bool(expert))]
    exact = sum(4 * piece for piece in pieces)
    rounded = sum(1 << (4 * piece - 1).bit_length() for piece in pieces)
    pinned = bool(run.args.get("pin_cpu_params", True)) + bool(run.args.get("pin_cpu_grads", True))
    away = offloaded(sizes, owned)
    extra = pinned * 4 * away * (rounded - exact) // max(exact, 1)
    return {
        "host pinned rounding": Item(
            extra, HOST, "{p} pinned copies of {n} elements, rounded up by {part:.1%}",
            {"p": pinned, "n": away, "part": (rounded - exact) / max(exact, 1)}, "PyTorch CachingHostAllocator",
        )
    }  # fmt: skip


def node(ledger: Ledger, world_size: int, gpus_per_node: int, tp: int) -> NodeMemory:
    """The fullest node of a run. Some node has at least the mean of all; a class of ranks that fills nodes by itself fills
    one."""
    local = min(gpus_per_node, world_size)
    wholes: dict[str, int] = {}
    for rank in ledger.ranks:
        for name, each in _on_a_node(rank, local, tp).items():
            wholes[name] = wholes.get(name, 0) + each * rank.count
    found = [{name: whole // world_size for name, whole in wholes.items()}]
    found += [_on_a_node(rank, local, tp) for rank in ledger.ranks if rank.count >= 2 * local]
    fullest = max(found, key=lambda items: sum(items.values()))
    saving = {
        name.removeprefix("host ")
        for rank in ledger.ranks
        for name, item in rank.items.items()
        if item.group in (HOST_SAVE, HOST_SAVE_FIRST)
    }
    return NodeMemory(fullest, {name: each for name, each in fullest.items() if name not in saving})


def _on_a_node(rank: RankMemory, local: int, tp: int) -> dict[str, int]:
    """Bytes by item of a node that has ranks of one class alone."""
    holders: dict[str, Any] = {
        HOST: local, HOST_LOADER: max(local // tp, 1), HOST_SAVE: local, HOST_SAVE_FIRST: min(tp, local)
    }  # fmt: skip
    return {
        name.removeprefix("host "): item.bytes * holders[item.group]
        for name, item in rank.items.items()
        if item.group in holders
    }
