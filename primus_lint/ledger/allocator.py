"""The caching allocator: rounding of single tensors, unsplit blocks, and what is reserved beyond what is allocated.

PyTorch's CUDACachingAllocator rounds each request up to 512 bytes. Requests up to 1 MiB come from 2 MiB segments,
those below 10 MiB from 20 MiB segments, larger ones from segments of their own, rounded up to 2 MiB. A free block of
the large pool is split only when more than 1 MiB would remain, so a tensor may hold up to 1 MiB more than it needs;
`memory_allocated` counts the whole block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, maximum, round_up, where
from primus_lint.ledger import blocks, graphs, transients

if TYPE_CHECKING:
    from primus_lint.ledger.first_step import Step
    from primus_lint.ledger.optimizer import StateBytes
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

MIB = 1 << 20
LEAST_WASTE_PERCENT, WASTE_PERCENT, MOST_WASTE_PERCENT = 17, 30, 48  # of the changing part, see `reserved`
ROUNDING_BYTES = 512
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB


def rounded(size_bytes: Any) -> Any:
    """Bytes that `memory_allocated` counts for one tensor."""
    return round_up(size_bytes, ROUNDING_BYTES)


def slack_bytes(size_bytes: Any) -> Any:
    """Bytes that a long-lived tensor holds beyond its size, on average over a segment filled with its like."""
    size = rounded(size_bytes)
    per_segment = LARGE_SEGMENT_BYTES // maximum(size, 1)
    left = LARGE_SEGMENT_BYTES - per_segment * size
    packed = where(left <= MIB, left // maximum(per_segment, 1), 0)
    tail = -size % SMALL_SEGMENT_BYTES
    alone = where(tail <= MIB, tail, 0)
    return size - size_bytes + where(size <= MIB, 0, where(size < 10 * MIB, packed, alone))


def slack_of(sizes: Sizes, numel: Any, width: int) -> Any:
    """`slack_bytes` of so many elements of some bytes each; of the same elements once."""
    if isinstance(numel, int):
        return slack_bytes(numel * width)
    found = sizes.once(("slack", id(numel), width), lambda: (numel, slack_bytes(numel * width)))
    return found[1]  # the array is kept with it, so that no other one gets its id


def replay_shift_bytes(sizes: Sizes, stage: Stage, state: StateBytes, last: bool, slack: int, step: Step | None) -> int:
    """What the replayed blocks of one recipe hold more (or less) than `slack`, the average of `state_slack_bytes`."""
    if not sizes.scalar or expandable(sizes):
        return 0
    moments = tuple(width for width in (state.exp_avg, state.exp_avg_sq) if width)
    found = blocks.replayed(sizes, stage, state.main, moments, last, transients.main_gradient_bytes(sizes, 1), step)
    return 0 if found is None else found - slack


def state_slack_bytes(sizes: Sizes, stage: Stage, state: StateBytes, last: bool) -> Any:
    """Unsplit blocks of buffers, weights, main parameters and moments of a rank: the average of segments filled with
    their like, the same for one recipe and for a grid. With expandable segments every block is split.

    With the distributed optimizer a rank has the tensors of its share of the parameters, and so has Megatron-FSDP, which
    stores weights, gradients and main parameters of a unit in one piece each.
    """
    if expandable(sizes):
        return 0
    index = (lambda grid: grid.last_index) if last else (lambda grid: 0)
    sharding = sizes.run.optimizer.sharding
    units = sharding == "megatron-fsdp"
    sharded = sharding == "distributed"
    total: Any = 0
    shares = []
    for grid in stage.grids:
        for buffer in grid.buffers:
            if units:
                break
            if sharded:
                total = total + slack_of(sizes, buffer.numel, sizes.e)
            total = total + slack_of(sizes, buffer.numel, sizes.grad)
        if grid.buffers and sharded:
            shares.append((grid.owned(index(grid)), grid.real))
        else:
            shares.append((1, grid.buffers[0].group if grid.buffers and units else 1))
    kinds: dict[Any, Any] = {}
    for chunk in stage.segments:
        for segment in chunk:
            for param in segment.params:
                key = (id(param.numel) if not isinstance(param.numel, int) else param.numel, param.expert)
                old = kinds.get(key)
                count = param.count * segment.repeats
                kinds[key] = (param.numel, param.expert, count if old is None else old[2] + count)
    for numel, expert, count in kinds.values():
        if not sharded and not units:
            total = total + count * slack_of(sizes, numel, sizes.e)
        each: Any = 0
        own = state[1:] if units else state
        for width in {width for width in own if width}:
            each = each + own.count(width) * slack_of(sizes, numel, width)
        owned, real = shares[expert]
        total = total + ceil_div(count * each * owned, maximum(real, 1))
    return total


def layer_slack_bytes(sizes: Sizes) -> Any:
    """What the block of a layer's packed projection holds beyond it: a hidden state that is freed is at most 1 MiB larger, so
    its block is not split (replayed from a real forward in tests/oracle). Other kept tensors count in the band alone."""
    run = sizes.run
    whole = run.model.mla is None and run.recompute.granularity != "full" and graphs.scope(run) is None
    if expandable(sizes) or not whole:
        return 0
    packed = rounded(sizes.S * (sizes.Aq + 2 * sizes.kq) * sizes.d * sizes.act)
    hidden = rounded(sizes.S * sizes.h * sizes.act)
    return where((packed > MIB) & (hidden > packed) & (hidden - packed <= MIB), hidden - packed, 0)


def state_tensors(sizes: Sizes, stage: Stage, state: StateBytes) -> int:
    """Main parameters and moments of a rank in the large pool, of one recipe."""
    split = sizes.run.optimizer.sharding in ("distributed", "megatron-fsdp")
    count = 0
    for chunk in stage.segments:
        for segment in chunk:
            for param in segment.params:
                grid = stage.grids[param.expert]
                group = grid.buffers[0].group if split and grid.buffers else 1
                large = sum(param.numel * width > MIB for width in state)
                count += ceil_div(param.count * segment.repeats * large, group)
    return count


def reserved(sizes: Sizes, steady_bytes: Any, peak_bytes: Any, waste_percent: int = WASTE_PERCENT) -> Any:
    """Reserved bytes at the peak.

    Long-lived tensors fill their segments; of the changing part (activations and transients) the allocator keeps more
    segments than it uses at once, because sizes alternate. SimuMax's published runs (8 ranks of 4 recipes, B200,
    allocated and reserved side by side) hold 17 to 48 % of the changing part on top, 30 % in the middle. With
    expandable segments only the rounding to 2 MiB remains.
    """
    changing = maximum(peak_bytes - steady_bytes, 0)
    waste = 0 if expandable(sizes) else changing * waste_percent // 100
    return round_up(peak_bytes + waste, SMALL_SEGMENT_BYTES)


def expandable(sizes: Sizes) -> bool:
    """Whether the environment asks PyTorch for expandable segments."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        try:
            text = str(sizes.run.args["env_" + name] or "")
        except KeyError:
            continue
        if "expandable_segments:true" in text.lower().replace(" ", ""):
            return True
    return False
