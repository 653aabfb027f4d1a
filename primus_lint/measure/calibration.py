"""A training run against its projection: what it teaches, and the error before and after."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.store import CalibrationRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from primus_lint.measure.training_log import TrainingLog
    from primus_lint.projection.calibrate import Lesson
    from primus_lint.subject import Subject


class Calibrated(NamedTuple):
    """A run to keep, its recipe's seconds by class without calibration and with this run and those before it, and how wide
    the band is on either side."""

    run: CalibrationRun
    before_s: dict[str, float]
    after_s: dict[str, float]
    widths: tuple[float, float]
    note: str


def calibrate(
    subject: Subject, logged: TrainingLog, label: str, date: str, others: Sequence[Lesson] = ()
) -> Calibrated:
    """What a run teaches, beside the lessons of other runs of its device and framework. "Before" is the projection without
    any calibration. Raises MeasureError when the recipe cannot be projected, or the log cannot be of it."""
    from primus_lint.projection import cost, project, why_not
    from primus_lint.projection.calibrate import LIMIT, NOTHING, learn, lesson

    run, accelerator = subject.run, subject.accelerator
    assert run is not None
    if accelerator is None:
        raise MeasureError(f"nothing is known of {subject.target.gpu}")
    before = project(run, accelerator, learned=NOTHING)
    if before is None or why_not(run) is not None:
        raise MeasureError(f"the recipe cannot be projected: {why_not(run) or 'sizes do not divide'}")
    assert run.batch.num_microbatches is not None and run.parallel.dp is not None and run.target.world_size is not None
    samples = run.batch.num_microbatches * run.batch.micro_batch_size * run.parallel.dp
    tokens = samples * run.batch.seq_length
    measured_s = logged.seconds(tokens, run.target.world_size)
    found = lesson(run, measured_s, accelerator)
    if found is None:
        raise MeasureError(
            f"the run took {measured_s:.4g} s an iteration, the projection says {before.iteration_s:.4g} s, more than "
            f"{math.exp(LIMIT):g} times off: is it the same recipe, device and size?"
        )
    learned = learn((*others, found), found.model)
    after = project(run, accelerator, learned=learned)
    assert after is not None
    return Calibrated(
        CalibrationRun(
            accelerator.name,
            run.framework,
            label,
            measured_s,
            before.iteration_s,
            after.iteration_s,
            found.model,
            dict(zip(cost.KINDS, found.weights, strict=True)),
            date,
        ),
        before.breakdown_s,
        after.breakdown_s,
        (before.high_s / before.iteration_s - 1, after.high_s / after.iteration_s - 1),
        learned.note(),
    )


def memory_lines(subject: Subject, logged: TrainingLog) -> list[str]:
    """Memory that the log holds beside what the ledger says, for the worst rank."""
    ledger = subject.ledger
    if ledger is None:
        return []
    worst = ledger.worst_rank
    pairs = (
        ("peak allocated", logged.max_allocated_bytes, worst.peak_allocated_bytes),
        ("peak reserved", logged.max_reserved_bytes, worst.peak_reserved_bytes),
        ("device", logged.device_bytes, (worst.device_low_bytes + worst.device_high_bytes) // 2),
    )
    return [
        f"memory, {name}: logged {own / 2**30:.2f} GiB, computed {computed / 2**30:.2f} GiB, error {computed / own - 1:+.1%}"
        for name, own, computed in pairs
        if own
    ]
