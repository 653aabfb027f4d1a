"""Benchmark artefacts of Primus projection (`--save-benchmark`, schema 1 and 2) -> measurements.

The artefact has times in milliseconds by layer number, "embedding" and "output", and the degrees of the benchmark, but not
the model: the recipe that was benchmarked must be given. A layer's time holds the tensor-parallel collectives of the
benchmark, and its all-to-alls, which are taken off when the artefact tells them apart. The "output" is the logits product
without the loss, so that its forward is kept as a product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ir.record import replace
from primus_lint.measure.errors import MeasureError
from primus_lint.measure.imports import Given, device_of
from primus_lint.measure.plan import layer_shape
from primus_lint.measure.records import Measurement

if TYPE_CHECKING:
    from primus_lint.ir.run import Run

REPETITIONS = 64  # of its benchmark, which keeps the median only


def measurements(data: dict[str, Any], given: Given, date: str, source: str) -> list[Measurement]:
    """The layers of an artefact. Raises MeasureError."""
    if given.run is None:
        raise MeasureError(
            f"{source} does not hold the model: give the recipe that was benchmarked, `measure FILE --import ...`"
        )
    metadata, results = data.get("metadata") or {}, data["profiling_results"]
    if not isinstance(metadata, dict) or not isinstance(results, dict):
        raise MeasureError(f"{source}: metadata and profiling_results are objects")
    device = device_of(given, _devices(str(metadata.get("gpu_arch") or "")), source)
    run = at_benchmark(given.run, metadata)
    versions = metadata.get("framework_versions") or {}
    stack = (
        ", ".join(f"{name} {version}" for name, version in sorted(versions.items()) if version) or "primus projection"
    )
    found: list[Measurement] = []

    def keep(operation: str, layout: str, shape: dict[str, Any], time_ms: float) -> None:
        dtype = "fp8" if operation in ("dense_layer", "moe_layer") and run.precision.fp8 else run.precision.params_dtype
        if time_ms > 0:
            seconds = time_ms * 1e-3
            found.append(
                Measurement(
                    device, stack, operation, dtype, layout, shape, seconds, seconds, seconds,
                    REPETITIONS, date, source,
                )
            )  # fmt: skip

    for name, result in results.items():
        if not isinstance(result, dict):
            continue
        forward_ms, backward_ms = _ms(result, "forward_time_ms"), _ms(result, "backward_time_ms")
        if name.isdigit():
            kind = "moe_layer" if result.get("type") == "moe" else "dense_layer"
            mlp = result.get("mlp") or {}
            exchanged = _ms(mlp, "a2a_forward_time_ms"), _ms(mlp, "a2a_backward_time_ms")
            inside = run.parallel.tp > 1 or (kind == "moe_layer" and run.parallel.ep > 1)
            if inside and run.parallel.tp == 1 and all(exchanged):
                forward_ms, backward_ms, inside = forward_ms - exchanged[0], backward_ms - exchanged[1], False
            shape = {**layer_shape(run, kind), **({"communication": 1} if inside else {})}
            keep(kind, "forward", shape, forward_ms)
            keep(kind, "backward", shape, backward_ms)
        elif name == "embedding":
            keep(name, "forward", layer_shape(run, name), forward_ms)
            keep(name, "backward", layer_shape(run, name), backward_ms)
        elif name == "output":
            from primus_lint.projection import shapes

            gemm = shapes.head_gemm(run.model, run.parallel, shapes.tokens(run))
            if gemm is not None:
                keep("gemm", "TN", {"m": gemm.m, "n": gemm.n, "k": gemm.k}, forward_ms)
    if not found:
        raise MeasureError(f"{source} has no layer with a time")
    return found


def at_benchmark(run: Run, metadata: dict[str, Any]) -> Run:
    """The recipe at the degrees of the benchmark, which keeps the experts of a rank: fewer of them in all."""
    tp, ep = _degree(metadata, "benchmark_tp", run.parallel.tp), _degree(metadata, "benchmark_ep", run.parallel.ep)
    run = replace(run, parallel=replace(run.parallel, tp=tp, ep=ep, etp=min(run.parallel.etp, tp)))
    moe = run.model.moe
    if moe is None:
        return run
    local = moe.num_experts // _degree(metadata, "original_ep", ep)
    experts = metadata.get("benchmark_num_experts") or local * ep
    return replace(run, model=replace(run.model, moe=replace(moe, num_experts=int(experts))))


def _degree(metadata: dict[str, Any], name: str, otherwise: Any) -> int:
    value = metadata.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MeasureError(f"metadata.{name} is a positive whole number, not {value!r}")
    return value


def _ms(result: dict[str, Any], name: str) -> float:
    value = result.get(name, 0.0)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _devices(arch: str) -> list[str]:
    """Accelerators of an architecture ("gfx942:sramecc+:xnack-") or of a name."""
    from primus_lint.hardware import accelerator, names
    from primus_lint.measure.device import canonical

    chip = arch.partition(":")[0].lower()
    found = [name for name in names() if getattr(accelerator(name), "arch", "") == chip]
    if not found and arch:
        name, known = canonical(arch)
        found = [name] if known else []
    return found
