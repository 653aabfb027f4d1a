"""How many recipes a second the array forms judge: memory alone, and memory with time.

A grid holds the degrees, the micro-batch, the global batch, the number of recomputed layers and the overlap switches of
one structure (pipeline split, form of recomputation) as axes that broadcast, as in the search; the recipes counted are
those whose sizes divide. A sample of every grid is evaluated alone, through the lowering and the scalar forms, and must
give the same time, and a memory that is the grid's or (padding and shards of a grid are tight upper bounds) hardly less.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.hardware import Accelerator
    from primus_lint.ir.run import Run

TIME_TOLERANCE = 1e-9
MEMORY_TOLERANCE = 0.01  # by which a grid's memory may lie above a recipe's own
SAMPLE = 3  # recipes of every grid that are evaluated alone


class Case(NamedTuple):
    """A model on a machine, and the values of every axis of its grids."""

    model: str
    gpu: str
    world_size: int
    args: dict[str, Any]
    axes: dict[str, tuple[int, ...]]
    splits: tuple[tuple[int, int], ...]  # pipeline size, virtual stages


DENSE = Case(
    "llama3.1-70b", "h100", 512,
    {"bf16": True, "seq_length": 8192, "use_distributed_optimizer": True},
    {"tp": (1, 2, 4, 8), "cp": (1, 2, 4, 8), "mbs": (1, 2, 4, 8), "gbs": (512, 1024, 1536, 2048, 4096),
     "layers": (1, 2, 4, 8), "reduce": (0, 1), "gather": (0, 1)},
    ((1, 1), (2, 1), (4, 1), (4, 5), (8, 1), (8, 5)),
)  # fmt: skip
EXPERTS = Case(
    "qwen3-30b-a3b", "mi355x", 256,
    {"bf16": True, "seq_length": 4096, "use_distributed_optimizer": True, "moe_grouped_gemm": True,
     "moe_token_dispatcher_type": "alltoall", "expert_tensor_parallel_size": 1},
    {"tp": (1, 2, 4), "ep": (1, 2, 4, 8, 16, 32), "mbs": (1, 2, 4, 8), "gbs": (512, 1024, 4096),
     "layers": (1, 2, 4, 8), "reduce": (0, 1), "gather": (0, 1)},
    ((1, 1), (2, 1), (4, 1), (4, 3)),
)  # fmt: skip
RECOMPUTES: tuple[dict[str, Any], ...] = (
    {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1},
    {"recompute_granularity": "selective"},
)
NAMES = {
    "tp": "tensor_model_parallel_size", "cp": "context_parallel_size", "ep": "expert_model_parallel_size",
    "mbs": "micro_batch_size", "gbs": "global_batch_size", "layers": "recompute_num_layers",
    "reduce": "overlap_grad_reduce", "gather": "overlap_param_gather",
}  # fmt: skip


class Grid(NamedTuple):
    """One structure: a Run whose degrees are arrays with a dimension each (they broadcast), the accelerator, which elements
    are legal, and the arguments of every element."""

    run: Run
    accelerator: Accelerator
    columns: dict[str, Any]
    keep: Any
    case: Case
    args: dict[str, Any]

    @property
    def size(self) -> int:
        return int(self.keep.sum())


def recipes_per_second(seconds: float = 2.0, workers: int = 2) -> dict[str, float]:
    """{"memory_recipes_per_s", "memory_time_recipes_per_s"}: rates of `workers` processes side by side, each going through
    all grids for at least `seconds`. Raises AssertionError when a sampled recipe differs from its scalar form."""
    check([grid for case in (DENSE, EXPERTS) for grid in grids(case)])
    if workers == 1:
        rates = [rate(seconds)]
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(workers) as pool:
            rates = list(pool.map(rate, [seconds] * workers))
    return {
        "memory_recipes_per_s": sum(one[0] for one in rates),
        "memory_time_recipes_per_s": sum(one[1] for one in rates),
    }


def rate(seconds: float) -> tuple[float, float]:
    """Recipes a second of one process: memory alone, memory and time."""
    from primus_lint.ledger import ledger
    from primus_lint.projection import project

    made = [grid for case in (DENSE, EXPERTS) for grid in grids(case)]

    def memory(grid: Grid) -> None:
        ledger(grid.run, grid.accelerator)

    def both(grid: Grid) -> None:
        ledger(grid.run, grid.accelerator)
        project(grid.run, grid.accelerator)

    found = []
    for work in (memory, both):
        for grid in made:
            work(grid)  # caches are warm in a search, too
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for grid in made:
                work(grid)
                done += grid.size
        found.append(done / (time.perf_counter() - start))
    return found[0], found[1]


def grids(case: Case) -> Iterator[Grid]:
    """The grids of a case, one per split and form of recomputation."""
    import numpy as np

    from primus_lint.hardware import accelerator
    from primus_lint.ir.record import replace

    found = accelerator(case.gpu)
    assert found is not None
    for (pp, vpp), recompute in itertools.product(case.splits, RECOMPUTES):
        keys = {"pipeline_model_parallel_size": pp, **recompute}
        if vpp > 1:
            keys["num_virtual_stages_per_pipeline_rank"] = vpp
        names = [name for name in case.axes if name != "layers" or "recompute_num_layers" in recompute]
        columns = dict(zip(names, np.ix_(*(np.array(case.axes[name]) for name in names)), strict=True))
        cp, ep = columns.get("cp", 1), columns.get("ep", 1)
        dp = case.world_size // (columns["tp"] * cp * pp)
        microbatches = columns["gbs"] // (columns["mbs"] * dp)
        keep = (dp * columns["tp"] * cp * pp == case.world_size) & (columns["gbs"] % (columns["mbs"] * dp) == 0)
        keep = keep & (case.world_size % (ep * pp) == 0)
        keep = keep & (columns["gather"] <= columns["reduce"])  # gathering needs reducing
        if vpp > 1:
            keep = keep & (microbatches % pp == 0)
        keep = np.broadcast_to(keep, tuple(len(case.axes[name]) for name in names))
        args = {**case.args, **keys}
        base = scalar(case, args, {name: case.axes[name][0] for name in names})
        parallel = replace(
            base.parallel, tp=columns["tp"], cp=cp, ep=ep, dp=dp, edp=case.world_size // (ep * base.parallel.etp * pp),
            etp=base.parallel.etp if "ep" in columns else columns["tp"], sequence_parallel=columns["tp"] > 1,
        )  # fmt: skip
        if "ep" not in columns:
            parallel = replace(parallel, edp=case.world_size // (columns["tp"] * pp))
        batch = replace(
            base.batch, micro_batch_size=columns["mbs"], global_batch_size=columns["gbs"],
            num_microbatches=np.maximum(microbatches, 1),
        )  # fmt: skip
        optimizer = replace(
            base.optimizer, overlap_grad_reduce=columns["reduce"] == 1, overlap_param_gather=columns["gather"] == 1
        )
        run = replace(base, parallel=parallel, batch=batch, optimizer=optimizer)
        if "layers" in columns:
            run = replace(run, recompute=replace(base.recompute, num_layers=columns["layers"]))
        yield Grid(run, found, columns, keep, case, args)


def scalar(case: Case, args: dict[str, Any], point: dict[str, int]) -> Run:
    """One element of a grid, lowered from its own arguments."""
    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron import lower
    from primus_lint.readers.batch import read_batch

    own = {**args, **{NAMES[name]: value for name, value in point.items()}, "sequence_parallel": point["tp"] > 1}
    own.update({NAMES[name]: bool(point[name]) for name in ("reduce", "gather")})
    document = read_batch({"framework": "megatron", "model": case.model, "args": own})
    run = lower(document.sections[0], Target(case.gpu, case.world_size), "d3528a21", "megatron").run
    assert run is not None
    return run


def check(made: list[Grid]) -> None:
    """Compare a sample of every grid with its scalar form. Raises AssertionError."""
    import numpy as np

    from primus_lint.ledger import Ledger, ledger
    from primus_lint.projection import project

    draw = random.Random(5)
    for grid in made:
        account, projection = ledger(grid.run, grid.accelerator), project(grid.run, grid.accelerator)
        assert isinstance(account, Ledger) and projection is not None, grid.args
        highest = np.zeros(grid.keep.shape)
        for rank in account.ranks:
            highest = np.maximum(highest, rank.device_high_bytes)
        times = np.broadcast_to(projection.iteration_s, grid.keep.shape)
        legal = [tuple(place) for place in np.argwhere(grid.keep).tolist()]
        for index in draw.sample(legal, SAMPLE):
            point = {
                name: int(np.broadcast_to(column, grid.keep.shape)[index]) for name, column in grid.columns.items()
            }
            run = scalar(grid.case, grid.args, point)
            alone, own = ledger(run, grid.accelerator), project(run, grid.accelerator)
            assert isinstance(alone, Ledger) and own is not None, point
            assert abs(times[index] / own.iteration_s - 1) < TIME_TOLERANCE, (point, times[index], own.iteration_s)
            more = highest[index] / max(int(rank.device_high_bytes) for rank in alone.ranks) - 1
            assert -TIME_TOLERANCE < more < MEMORY_TOLERANCE, (point, more)
