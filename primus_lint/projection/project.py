"""Run -> Projection: seconds of one training step, with a band, a breakdown and what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from primus_lint.formula import is_scalar, maximum, sqrt
from primus_lint.projection import cost, data_parallel, flops, optimizer, pipeline
from primus_lint.projection.cost import Cost
from primus_lint.projection.layers import LayerTable, Stage
from primus_lint.projection.placement import Placement, place
from primus_lint.projection.shapes import single_kernel
from primus_lint.projection.traffic import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import Run
    from primus_lint.projection.calibrate import Learned
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.device import Device

Found = TypeVar("Found")
# What kernels, collectives and schedule together do not tell (clocks under sustained power, kernel generations, cold
# caches): the spread of whole steps around the sum of their parts. It is common to all recipes on a device and software,
# so that it widens the band of an iteration but not that of a comparison (`spreads_s`).
COMMON_SPREAD = 0.10


class Projection:
    """Time of one step of a recipe. All fields may be arrays over a grid; seconds are per optimizer step.

    `breakdown_s` adds up to `iteration_s`: the slowest pipeline rank's, with `bubble` for its waits.
    `tiers` names, for every class of operation, the ways its rates were found. `source`: "simulated" when no rate was
    measured on this kind of device, "mixed" when some were (the pipeline, overlap and upscaling are always computed).
    `notes`: layers that were measured and how they were carried here, and what was calibrated on published runs.
    """

    __slots__ = (
        "breakdown_s", "bubble_fraction", "high_s", "iteration_s", "low_s", "mfu", "model_tflops_per_gpu", "notes",
        "per_stage_s", "place", "source", "spreads_s", "stages", "tiers", "tokens_per_s_per_gpu",
    )  # fmt: skip

    def __init__(self, **values: Any) -> None:
        self.iteration_s: Any = values["iteration_s"]
        self.low_s: Any = values["low_s"]
        self.high_s: Any = values["high_s"]
        self.tokens_per_s_per_gpu: Any = values["tokens_per_s_per_gpu"]
        self.model_tflops_per_gpu: Any = values["model_tflops_per_gpu"]  # None without a vocabulary
        self.mfu: Any = values["mfu"]
        self.bubble_fraction: Any = values["bubble_fraction"]
        self.breakdown_s: dict[str, Any] = values["breakdown_s"]
        self.spreads_s: dict[str, Any] = values["spreads_s"]
        self.per_stage_s: list[Any] = values["per_stage_s"]  # busy seconds per micro-batch of every pipeline rank
        self.stages: tuple[tuple[Stage, ...], ...] = values["stages"]
        self.place: Placement = values["place"]
        self.source: str = values["source"]
        self.tiers: dict[str, tuple[str, ...]] = values["tiers"]
        self.notes: tuple[str, ...] = values["notes"]

    def as_json(self) -> dict[str, Any]:
        """The `time` object of a batch or report line."""
        return {
            "iteration_s": self.iteration_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "model_tflops_per_gpu": self.model_tflops_per_gpu,
            "mfu": self.mfu,
            "bubble_fraction": self.bubble_fraction,
            "breakdown_s": dict(self.breakdown_s),
            "source": self.source,
            "tiers": {kind: list(names) for kind, names in self.tiers.items()},
            "notes": list(self.notes),
        }

    def explain(self) -> list[tuple[str, Any, Any, str]]:
        """Rows (class, seconds, share of the step, tiers of its rates) of the breakdown, in class order."""
        return [
            (kind, seconds, seconds / self.iteration_s, ", ".join(self.tiers.get(kind, ())))
            for kind, seconds in self.breakdown_s.items()
        ]


def why_not(run: Run) -> str | None:
    """The reason for which a recipe cannot be projected; None when it can."""
    if run.target.gpu is None:
        return "no GPU is named"
    if run.target.world_size is None:
        return "no world size is given"
    if run.model.kind != "gpt":
        return f"{run.model.kind} models are not modelled"
    if run.parallel.stages is None:
        return "the pipeline split is illegal"
    if run.model.vocab_size is None:
        return "the vocabulary size is not known: give it with --set vocab_size=N"
    if run.parallel.dp is None or run.parallel.edp is None or run.batch.num_microbatches is None:
        return "the batch or the data-parallel size is not known"
    if is_scalar(run.parallel.dp, run.parallel.edp) and min(run.parallel.dp, run.parallel.edp) < 1:
        return "one replica needs more GPUs than there are"
    if is_scalar(run.batch.num_microbatches) and run.batch.num_microbatches < 1:
        return "the global batch is smaller than one micro-batch on every data-parallel rank"
    return None


def project(
    run: Run,
    accelerator: Accelerator | None,
    node: NodeType | None = None,
    ledger: Any = None,
    learned: Learned | None = None,
    priced: dict[Any, Any] | None = None,
) -> Projection | None:
    """Seconds of one step of a legal recipe; None when `why_not(run)` gives a reason.

    `accelerator` and `node` are entries of hardware_db (`node` None: the accelerator's usual one with the target's GPUs
    per node). `learned`: what training runs say (None: those in the user's store, if any), see `calibrate`. `priced` may be shared between
    recipes, see `LayerTable`. Sizes that do not divide (an illegal recipe) give a meaningless number or None, never an
    exception: legality is decided elsewhere.
    """
    return _computed(run, accelerator, lambda device: project_on(run, device, priced), node, learned)


def step_seconds(run: Run, accelerator: Accelerator | None, priced: dict[Any, Any] | None = None) -> Timing | None:
    """`project` without breakdown and band, for grids: their seconds are the same."""
    return _computed(run, accelerator, lambda device: timing(run, device, priced), banded=False)


def rank_work(run: Run, accelerator: Accelerator | None, priced: dict[Any, Any] | None = None) -> Work | None:
    """What the ranks do in `step_seconds`, without when they do it."""
    return _computed(run, accelerator, lambda device: work(run, device, priced), banded=False)


def _computed(
    run: Run, accelerator: Accelerator | None, compute: Callable[[Device], Found], node: NodeType | None = None,
    learned: Learned | None = None, banded: bool = True,
) -> Found | None:  # fmt: skip
    """What is computed of a recipe on a device; None where it cannot be."""
    from primus_lint.projection.device import Device

    if why_not(run) is not None or accelerator is None:
        return None
    try:
        return compute(Device(accelerator, node, run, learned, banded=banded))
    except (ArithmeticError, TypeError, ValueError):
        return None  # sizes of a wrong kind or beyond floating point: the rules that read them say so


class Work(NamedTuple):
    """The stages of every pipeline rank, whatever the schedule."""

    place: Placement
    stages: tuple[tuple[Stage, ...], ...]
    microbatches: Any

    def times(self, link_s: Any) -> pipeline.Times:
        """Seconds of the stages, with so many between neighbours."""
        return pipeline.Times(
            [[stage.forward_s for stage in row] for row in self.stages],
            [[stage.backward_s for stage in row] for row in self.stages],
            [[stage.weight_s for stage in row] for row in self.stages],
            link_s,
        )

    @property
    def per_stage_s(self) -> list[Any]:
        """Busy seconds per micro-batch of every pipeline rank."""
        return [seconds / self.microbatches for seconds in pipeline.busy(self.times(0.0), self.microbatches)]


class Timing(NamedTuple):
    """What a step is made of. `span` without `sends` between stages; `once`: data parallelism; `update`: the optimizer."""

    iteration_s: Any
    work: Work
    span: pipeline.Span
    sends: Pair
    once: Cost
    update: Cost


def work(run: Run, device: Device, priced: dict[Any, Any] | None = None) -> Work:
    """What the ranks do on an already built device."""
    assert run.parallel.stages is not None
    where = place(run.parallel, device.domain_gpus)
    table = LayerTable(run, device, where, priced)
    stages = tuple(tuple(table.stage(chunk) for chunk in row) for row in run.parallel.stages)
    return Work(where, stages, maximum(run.batch.num_microbatches, 1))


def timing(run: Run, device: Device, priced: dict[Any, Any] | None = None) -> Timing:
    """The parts of a step on an already built device."""
    done = work(run, device, priced)
    where, stages, microbatches = done
    link = device.send_between_stages(_boundary_bytes(run), where)
    kind, group = run.schedule.kind, run.parallel.microbatch_group_size
    times = done.times(0.0 if run.schedule.overlap_p2p and kind == "interleaved" else link[0])
    span = pipeline.makespan(kind, times, microbatches, group)
    waits = span
    if not is_scalar(times.link_s) or times.link_s:
        waits = pipeline.makespan(kind, done.times(0.0), microbatches, group)
    sends = span.makespan_s - waits.makespan_s
    relative = link[1] / maximum(link[0], 1e-12)
    # The drain ends on rank 0: its gradients are the last to be ready, and its first forward hides gathers.
    first = stages[0]
    chunks = len(first)
    waiting = (chunks - 1) * len(stages)  # chunk times that pass on rank 0 behind the last gradient of its last chunk
    backward_s = times.backward[0][0] + times.weight[0][0]
    forward_s = times.forward[0][0]
    if chunks > 1:
        backward_s = backward_s * (1 + waiting)
        forward_s = forward_s * (1 + waiting)
    weights, experts = _held(first)
    once = data_parallel.step(run, device, where, weights, experts, backward_s, forward_s)
    update = _slowest_update(run, device, where, stages)
    iteration_s = waits.makespan_s + sends + once.seconds + update.seconds
    return Timing(iteration_s, done, waits, (sends, sends * relative), once, update)


def project_on(run: Run, device: Device, priced: dict[Any, Any] | None = None) -> Projection:
    """`project` on an already built device."""
    return _finish(run, device, timing(run, device, priced))


def _boundary_bytes(run: Run) -> Any:
    """Bytes of one micro-batch between two stages, per rank: the hidden state, over tp if sequence parallel."""
    from primus_lint.projection.shapes import tokens

    size = 4 if run.precision.fp32_residual else ELEMENT_BYTES[run.precision.params_dtype]
    return tokens(run).local * run.model.hidden_size * size


def _finish(run: Run, device: Device, step: Timing) -> Projection:
    """The breakdown of the slowest rank, and the band."""
    iteration_s, span = step.iteration_s, step.span
    where, stages, microbatches = step.work
    total = Cost(dict.fromkeys(cost.CLASSES, cost.ZERO))
    for stage, count in _of_slowest(stages, span.busy_s):
        total.merge(stage.whole, count * microbatches)
    waits = maximum(span.makespan_s - total.seconds, 0.0)  # rounding may leave less than nothing
    total.add(cost.BUBBLE, (waits, waits * _relative(total)))
    total.add(cost.PP, step.sends)
    total.merge(step.once)
    total.merge(step.update)
    of_parts = total.spread_seconds / iteration_s
    variance = of_parts * of_parts
    notes = [*device.notes, *device.in_situ_notes()]
    if device.learned is not None:
        explained = cost.BAND**2 * device.learned.explained(total.parts, iteration_s)
        variance = maximum(variance - explained, 0.0)
        notes.append(device.learned.note())
    relative = sqrt(variance + COMMON_SPREAD * COMMON_SPREAD)
    # what the step really trains: the global batch where it divides, as it must
    tokens = microbatches * run.batch.micro_batch_size * run.parallel.dp * run.batch.seq_length
    tokens_per_s = tokens / iteration_s / run.target.world_size
    per_token = flops.model_flops_per_token(run)
    model_flops = None if per_token is None else tokens_per_s * per_token
    return Projection(
        iteration_s=iteration_s,
        low_s=iteration_s / (1 + relative),
        high_s=iteration_s * (1 + relative),
        tokens_per_s_per_gpu=tokens_per_s,
        model_tflops_per_gpu=None if model_flops is None else model_flops / 1e12,
        mfu=None if model_flops is None else model_flops / device.peak_flops(run),
        bubble_fraction=span.bubble_fraction if len(stages) > 1 else 0.0 * iteration_s,
        breakdown_s={kind: pair[0] for kind, pair in total.parts.items()},
        spreads_s={kind: pair[1] for kind, pair in total.parts.items()},
        per_stage_s=step.work.per_stage_s,
        stages=stages,
        place=where,
        source=device.source,
        tiers={kind: tuple(sorted(names)) for kind, names in device.tiers.items()},
        notes=tuple(notes),
    )


def _relative(total: Cost) -> Any:
    return total.spread_seconds / maximum(total.seconds, 1e-12)


def _held(row: tuple[Stage, ...]) -> tuple[Any, Any]:
    weights: Any = 0
    experts: Any = 0
    for stage in row:
        weights = weights + stage.weights
        experts = experts + stage.experts
    return weights, experts


def _of_slowest(stages: tuple[tuple[Stage, ...], ...], busy_s: list[Any]) -> list[tuple[Stage, Any]]:
    """Every distinct stage, and how many of it the (first) slowest rank holds."""
    most: Any = busy_s[0]
    for seconds in busy_s[1:]:
        most = maximum(most, seconds)
    counts: dict[int, Any] = {}
    distinct: dict[int, Stage] = {}
    left: Any = 1
    for row, seconds in zip(stages, busy_s, strict=True):
        here = (seconds >= most) * left
        left = left - here
        for stage in row:
            counts[id(stage)] = counts.get(id(stage), 0) + here
            distinct[id(stage)] = stage
    return [(stage, counts[key]) for key, stage in distinct.items()]


def _slowest_update(run: Run, device: Device, where: Placement, stages: tuple[tuple[Stage, ...], ...]) -> Cost:
    """The optimizer step of the rank with the most to update (all wait for it in the gradient norm)."""
    most_weights: Any = 0
    most_experts: Any = 0
    tensors = 0
    for row in stages:
        weights, experts = _held(row)
        most_weights = maximum(most_weights, weights)
        most_experts = maximum(most_experts, experts)
        tensors = max(tensors, sum(stage.layers for stage in row))
    per_layer: Any = 8
    if run.model.moe is not None and not single_kernel(run):
        per_layer = 8 + 2 * (run.model.moe.num_experts // run.parallel.ep)  # one tensor per expert and matrix
    return optimizer.step(run, device, where, most_weights, most_experts, tensors * per_layer)
