"""DualPipe and DualPipeV: micro-batches enter from both ends of the pipeline and forward overlaps backward.

Source: DeepSeek-V3 technical report (arXiv 2412.19437) and its published order of steps
(github.com/deepseek-ai/DualPipe; torch `ScheduleDualPipeV` is the same for the folded form).
"""

from __future__ import annotations

from .events import Event


def dualpipe(pp: int, rank: int, microbatches: int) -> list[Event]:
    """DualPipe for one rank: micro-batches 0..m/2-1 travel from rank 0 up as chunk 0, the others down as chunk 1.

    Raises ValueError unless pp is even and the micro-batches are even in number and at least 2*pp.
    """
    if pp % 2:
        raise ValueError(f"dualpipe needs an even number of ranks, got pp={pp}")
    if microbatches % 2 or microbatches < 2 * pp:
        raise ValueError(f"dualpipe needs an even number of micro-batches, at least {2 * pp}, got {microbatches}")
    half = microbatches // 2
    near = min(rank, pp - 1 - rank)
    swap = rank >= pp // 2
    return [
        Event(kind, rank, index + half * (phase ^ swap), phase ^ swap, fused)
        for kind, phase, index, fused in _two_way(pp // 2, near, half)
    ]


def dualpipev(pp: int, rank: int, microbatches: int) -> list[Event]:
    """DualPipeV for one rank: the folded half of DualPipe. Raises ValueError with fewer than 2*pp micro-batches."""
    if microbatches < 2 * pp:
        raise ValueError(f"dualpipev needs at least {2 * pp} micro-batches, got {microbatches}")
    return [Event(kind, rank, index, phase, fused) for kind, phase, index, fused in _two_way(pp, rank, microbatches)]


def _two_way(depth: int, rank: int, microbatches: int) -> list[tuple[str, int, int, bool]]:
    """(kind, phase, index, fused) on the rank that is `rank` steps from its end of a fold of `depth` ranks.

    Phase 0 travels towards the fold, phase 1 comes back; `microbatches` of each.
    """
    order: list[tuple[str, int, int, bool]] = []
    count = {(kind, phase): 0 for kind in "FB" for phase in (0, 1)}
    late: list[tuple[int, int]] = []  # weight gradients put off, oldest first

    def forward(phase: int, fused: bool = False) -> None:
        order.append(("F", phase, count["F", phase], fused))
        count["F", phase] += 1

    def backward(phase: int, split: bool = False) -> None:
        index = count["B", phase]
        count["B", phase] += 1
        order.append(("B", phase, index, not split))
        if split:
            late.append((phase, index))
        else:
            order.append(("W", phase, index, False))

    def weight() -> None:
        phase, index = late.pop(0)
        order.append(("W", phase, index, False))

    after = depth - rank - 1  # ranks between this one and the fold
    for _ in range(2 * after):
        forward(0)
    for _ in range(rank + 1):
        forward(0)
        forward(1)
    for _ in range(after):
        backward(1, split=True)
        weight()
        forward(1)
    for step in range(microbatches - 2 * depth + rank + 1):
        forward(0, fused=step > 0 or after > 0)
        backward(1)
        forward(1, fused=True)
        backward(0)
    for _ in range(after):
        backward(1)
        forward(1, fused=True)
        backward(0)
    # Of the last 2*(rank+1) backwards with nothing to overlap, the later half puts its weight gradients off.
    for step in range(2 * (rank + 1)):
        backward(1 - step % 2, split=step >= rank + 1)
    for _ in range(after):
        weight()
        backward(0, split=True)
    for _ in range(rank + 1):
        weight()
    return order
