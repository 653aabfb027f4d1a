"""Times of collectives under torchrun: NCCL, RCCL or gloo, as PyTorch calls them. Imports torch.

Groups of 2, 4, 8 ... ranks lie on consecutive ranks, as tensor-parallel groups do, and all groups of one size work at the
same time. Bytes are those of the whole tensor; of an all-to-all, what one rank sends in all. Before each collective every rank
computes a product, and the collective alone is timed: as in training it then waits for the last rank, and finds caches that
other work filled. A message to a peer is half of a round trip between the first ranks of two neighbouring halves.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from primus_lint.measure import timing
from primus_lint.measure.records import Measurement
from primus_lint.measure.session import SOURCE
from primus_lint.measure.timing import Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from primus_lint.measure.device import Here

FIRST_BYTES, LAST_BYTES = 2**12, {"cuda": 2**29, "cpu": 2**26}
PRODUCT = {"cuda": 4096, "cpu": 512}  # side of the square product before a collective: some 0.2 ms, some 5 ms


class Process:
    """This process among those that torchrun started."""

    def __init__(self, here: Here) -> None:
        """Join the process group (NCCL or RCCL on GPUs, gloo on CPUs)."""
        self.backend = "nccl" if here.kind == "cuda" else "gloo"
        if not dist.is_initialized():
            dist.init_process_group(self.backend)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.local_world = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.world)))
        self.device = here.device

    def average(self, timed: Timed) -> Timed:
        """The mean over all ranks."""
        values = torch.tensor(timed[:3], dtype=torch.float64, device=self.device)
        dist.all_reduce(values)
        median, low, high = (values / self.world).tolist()
        return Timed(median, low, high, timed.repetitions)

    def leave(self) -> None:
        """Wait for the others, then leave: a group that goes while a peer still works with it stops that peer."""
        dist.barrier()
        dist.destroy_process_group()

    def nodes(self, ranks: int) -> int:
        """Nodes that a group of consecutive ranks spans."""
        return -(-ranks // self.local_world)


def started() -> bool:
    """Whether torchrun (or another launcher) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def measure(here: Here, process: Process, budget_s: float, say: Callable[[str], None]) -> Iterator[Measurement]:
    """Every collective at every group size and message size; all ranks call it, and all get the measurements."""
    sizes = []
    size = FIRST_BYTES
    while size <= LAST_BYTES[here.kind]:
        sizes.append(size)
        size *= 2
    ranks = 2
    while ranks <= process.world:
        if process.world % ranks == 0:
            group = _group(process, ranks)
            for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"):
                if operation != "p2p" or ranks in (2, process.world):
                    yield from _curve(here, process, group, ranks, operation, sizes, budget_s, say)
        ranks *= 2


def _group(process: Process, ranks: int) -> Any:
    own = None
    for first in range(0, process.world, ranks):
        made = dist.new_group(list(range(first, first + ranks)))
        if first <= process.rank < first + ranks:
            own = made
    return own


def _curve(
    here: Here,
    process: Process,
    group: Any,
    ranks: int,
    operation: str,
    sizes: list[int],
    budget_s: float,
    say: Callable[[str], None],
) -> Iterator[Measurement]:
    nodes = process.nodes(ranks)
    stack = f"{here.stack}, {process.backend}"
    shape_ranks = 2 if operation == "p2p" else ranks
    for size in sizes:
        try:
            step = _step(operation, size, ranks, group, here, process)
            dist.barrier()
            timed = _timed(here, step, budget_s, None if operation == "p2p" else _product(here))
        except (RuntimeError, NotImplementedError) as error:
            say(f"{operation} over {ranks} ranks: not measured: {str(error).splitlines()[0]}")
            return
        if operation == "p2p":
            timed = timed.over(2)
        mean = process.average(timed)
        say(f"{operation}, {shape_ranks} ranks on {nodes} nodes, {size:,} bytes: {mean}")
        shape = {"bytes": size, "ranks": shape_ranks, "nodes": min(nodes, shape_ranks)}
        yield Measurement(
            here.name, stack, operation, "bytes", process.backend, shape, mean.median_s, mean.low_s, mean.high_s,
            mean.repetitions, datetime.date.today().isoformat(), SOURCE,
        )  # fmt: skip


def _timed(here: Here, step: Callable[[], Any], budget_s: float, work: Callable[[], Any] | None) -> Timed:
    """Seconds of `step`, behind `work` that is not counted. The repetitions must be the same on all ranks: rank 0 counts."""
    steps = [step] if work is None else [work, step]
    for _ in range(timing.WARM_UP):
        for each in steps:
            each()
    here.synchronize()
    probe = timing.phases(here, steps, 0.0)
    wanted = round(min(max(budget_s / sum(one.median_s for one in probe), timing.LEAST), 4 * timing.MOST))
    count = torch.tensor([wanted], dtype=torch.int64, device=here.device)
    dist.broadcast(count, 0)
    return timing.repeated(here, steps, int(count.item()))[-1]


def _product(here: Here) -> Callable[[], Any]:
    """A square product, as ranks compute one before they meet."""
    side = PRODUCT[here.kind]
    dtype = torch.bfloat16 if here.kind == "cuda" else torch.float32
    left = torch.ones((side, side), dtype=dtype, device=here.device)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)


def _step(operation: str, size: int, ranks: int, group: Any, here: Here, process: Process) -> Callable[[], Any]:
    elements = size // 4 // ranks * ranks
    whole = torch.zeros(elements, device=here.device)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if operation == "p2p":
        return _ping_pong(whole, ranks, process)
    if operation == "all_to_all":
        received = torch.zeros_like(whole)
        return lambda: dist.all_to_all_single(received, whole, group=group)
    part = torch.zeros(elements // ranks, device=here.device)
    if operation == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its newer name
        return lambda: gather(whole, part, group=group)
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return lambda: scatter(part, whole, group=group)


def _ping_pong(message: torch.Tensor, ranks: int, process: Process) -> Callable[[], Any]:
    """Each rank of the first half of a group with its peer in the second half, there and back."""
    place = process.rank % ranks
    half = ranks // 2
    peer = process.rank + half if place < half else process.rank - half

    def there_and_back() -> None:
        if place < half:
            dist.send(message, peer)
            dist.recv(message, peer)
        else:
            dist.recv(message, peer)
            dist.send(message, peer)

    return there_and_back
