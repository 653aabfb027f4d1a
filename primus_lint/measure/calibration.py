"""A training run against its projection: factors by class of operation, and the error before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.store import CalibrationRun

if TYPE_CHECKING:
    from primus_lint.measure.training_log import TrainingLog
    from primus_lint.pipeline import Subject


def calibrate(subject: Subject, logged: TrainingLog, label: str, date: str) -> CalibrationRun:
    """The factors at which the projection of a recipe takes as long as its run did. "Before" is the projection without any
    calibration. Raises MeasureError when it cannot be projected, or no factor meets it."""
    from primus_lint.projection import project, why_not
    from primus_lint.projection.calibrate import LIMITS, factors

    run, accelerator = subject.run, subject.accelerator
    assert run is not None
    if accelerator is None:
        raise MeasureError(f"nothing is known of {subject.target.gpu}")
    before = project(run, accelerator, factors={})
    if before is None or why_not(run) is not None:
        raise MeasureError(f"the recipe cannot be projected: {why_not(run) or 'sizes do not divide'}")
    assert run.batch.num_microbatches is not None and run.parallel.dp is not None and run.target.world_size is not None
    samples = run.batch.num_microbatches * run.batch.micro_batch_size * run.parallel.dp
    tokens = samples * run.batch.seq_length
    measured_s = logged.seconds(tokens, run.target.world_size)
    found = factors([(run, measured_s)], accelerator)
    if not found:
        raise MeasureError(
            f"the run took {measured_s:.4g} s an iteration, the projection says {before.iteration_s:.4g} s: no factor between "
            f"{LIMITS[0]:g} and {LIMITS[1]:g} on compute explains that; is it the same recipe, device and size?"
        )
    after = project(run, accelerator, factors=found)
    assert after is not None
    return CalibrationRun(
        accelerator.name, run.framework, label, measured_s, before.iteration_s, after.iteration_s, found, date
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
