"""Measuring a plan: every part and kernel of a recipe on the device at hand, with progress. Imports torch."""

from __future__ import annotations

import datetime
import gc
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.measure import kernels, parts
from primus_lint.measure.plan import Plan, layer_shape, layer_weights
from primus_lint.measure.records import Measurement
from primus_lint.projection import compute, shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from primus_lint.ir.run import Run
    from primus_lint.measure.device import Here
    from primus_lint.measure.timing import Timed

SOURCE = "primus-lint measure"
COPIED_BYTES = (2**20, 2**23, 2**26, 2**28)
MOST_UPDATED = 2**26  # elements of one optimizer measurement


class Job(NamedTuple):
    """One thing to measure: `run` gives times by layout."""

    operation: str
    dtype: str
    shape: dict[str, Any]
    label: str
    run: Callable[[], dict[str, Timed]]


def jobs(here: Here, plan: Plan, budget_s: float, only: tuple[str, ...]) -> list[Job]:
    """Everything to measure of a plan; `only` of "layers", "products", "attention", "memory" (all of them when empty)."""
    wanted = only or ("layers", "products", "attention", "memory")
    found: list[Job] = []
    run = plan.run
    dtype = run.precision.params_dtype
    if "layers" in wanted:
        found += [
            Job(kind, dtype, layer_shape(run, kind), kind.replace("_", " "), _part(here, run, kind, budget_s))
            for kind in plan.kinds
        ]
        found.append(_optimizer(here, run, budget_s))
    if "products" in wanted:
        found += [job for gemm in plan.gemms for job in _product(here, run, gemm, budget_s)]
    if "attention" in wanted and not compute.unfused(run) and run.parallel.cp == 1:
        found.append(_attention(here, run, budget_s))
    if "memory" in wanted:
        for size in COPIED_BYTES:
            found.append(
                Job("memory", "fp32", {"bytes": size}, f"sum of {size >> 20} MiB", _memory(here, size, budget_s))
            )
    return found


def measure(
    here: Here, work: list[Job], say: Callable[[str], None], average: Callable[[Timed], Timed] = lambda timed: timed
) -> Iterator[Measurement]:
    """Run the jobs one after the other; `say` gets a line for each. `average` combines the times of several ranks.

    A job that the device or this PyTorch cannot run is said and left out.
    """
    today = datetime.date.today().isoformat()
    for number, job in enumerate(work, 1):
        where = f"[{number}/{len(work)}] {job.label}"
        try:
            times = job.run()
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            say(f"{where}: not measured: {str(error).splitlines()[0]}")
            continue
        finally:
            gc.collect()
        for layout, timed in times.items():
            combined = average(timed)
            say(f"{where}, {layout}: {combined}")
            yield Measurement(
                here.name, here.stack, job.operation, job.dtype, layout, job.shape, combined.median_s, combined.low_s,
                combined.high_s, combined.repetitions, today, SOURCE,
            )  # fmt: skip


def _part(here: Here, run: Run, kind: str, budget_s: float) -> Callable[[], dict[str, Timed]]:
    return lambda: parts.part(here, run, kind, budget_s)


def _memory(here: Here, size: int, budget_s: float) -> Callable[[], dict[str, Timed]]:
    return lambda: {"elementwise": kernels.memory(here, size, budget_s)}


def _optimizer(here: Here, run: Run, budget_s: float) -> Job:
    """The update of as many equal tensors as a layer has, of a layer's size in all (of MOST_UPDATED at most)."""
    kind = "dense_layer" if run.model.moe is None else "moe_layer"
    each = min(layer_weights(run, kind), MOST_UPDATED) // 4
    name = "sgd" if run.optimizer.name == "sgd" else "adam"
    dtype = run.precision.params_dtype
    count = 4 * max(min(run.model.num_layers, MOST_UPDATED // max(4 * each, 1)), 1)

    def update() -> dict[str, Timed]:
        return {name: kernels.optimizer(here, name, dtype, [each] * count, budget_s)}

    return Job(
        "optimizer", dtype, {"elements": each * count}, f"{name} step of {each * count / 1e6:.1f} M weights", update
    )


def _product(here: Here, run: Run, gemm: Any, budget_s: float) -> list[Job]:
    """The three passes of a product, by its own dtype; experts one call each or all in one, as the recipe runs them."""
    dtype = gemm.dtype or run.precision.params_dtype
    found = []
    for layout, (m, n, k) in kernels.passes(gemm).items():
        label = f"product {gemm.name} {m} x {n} x {k}"
        if not gemm.is_grouped:
            found.append(
                Job("gemm", dtype, {"m": m, "n": n, "k": k}, label, _gemm(here, dtype, layout, m, n, k, budget_s))
            )
            continue
        groups = round(gemm.groups)
        shape = {"groups": groups, "m": round(gemm.m), "n": round(gemm.n), "k": round(gemm.k)}
        shape["calls"] = 1 if shapes.single_kernel(run) else groups
        one = _grouped(here, dtype, layout, groups, (m, n, k), shape["calls"] == 1, budget_s)
        found.append(Job("grouped_gemm", dtype, shape, f"{groups} of {label}", one))
    return found


def _gemm(
    here: Here, dtype: str, layout: str, m: int, n: int, k: int, budget_s: float
) -> Callable[[], dict[str, Timed]]:
    return lambda: {layout: kernels.product(here, dtype, layout, m, n, k, budget_s)}


def _grouped(
    here: Here, dtype: str, layout: str, groups: int, size: tuple[int, int, int], one: bool, budget_s: float
) -> Callable[[], dict[str, Timed]]:
    if one:
        return lambda: {layout: kernels.batched(here, dtype, layout, groups, *size, budget_s)}
    return lambda: {layout: kernels.product(here, dtype, layout, *size, budget_s, groups=groups)}


def _attention(here: Here, run: Run, budget_s: float) -> Job:
    shape = compute.attention_shape(run)

    def both() -> dict[str, Timed]:
        forward, backward = kernels.attention(here, run.precision.params_dtype, shape, budget_s)
        return {"causal forward": forward, "causal backward": backward}

    key = {
        "batch": shape.batch, "heads": shape.heads, "kv_heads": shape.kv_heads, "seq": shape.seq_length,
        "dim_qk": shape.key_dim, "dim_v": shape.value_dim,
    }  # fmt: skip
    return Job("attention", run.precision.params_dtype, key, f"attention {shape.heads} heads, {shape.seq_length}", both)
