"""`primus-lint calibrate`: fit the projection of a device to a training run."""

from __future__ import annotations

import datetime
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from primus_lint.cli import clicks, common, options

if TYPE_CHECKING:
    from primus_lint.measure.store import CalibrationRun
    from primus_lint.measure.training_log import TrainingLog
    from primus_lint.projection.calibrate import Lesson
    from primus_lint.subject import Subject


@click.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--config", "config", required=True, type=click.Path(exists=True, dir_okay=False), help="The run's recipe."
)
@clicks.options(options.TARGET)
@click.option(
    "--store", "store_path", type=click.Path(dir_okay=False), help="The store (default: in the user's cache)."
)
@click.option("--dry-run", is_flag=True, help="Show the factors, keep nothing.")
def command(log: str, config: str, store_path: str | None, dry_run: bool, **values: Any) -> None:
    """Compare LOG (Megatron-LM, Primus, TorchTitan or MaxText) with the projection of its recipe, and keep what it says of
    compute, host and communication. The factors hold for this device and framework from then on. One run moves them about
    half of the way, because recipes differ among themselves as well; runs that agree are met. Memory is
    compared, and never fitted: it is computed exactly or it is wrong.
    """
    from primus_lint.measure.errors import MeasureError
    from primus_lint.measure.store import StoreError
    from primus_lint.measure.where import VARIABLE, default_path

    if store_path is not None:
        os.environ[VARIABLE] = store_path
    path = default_path()
    if path is None and not dry_run:
        raise common.UsageError("the store is switched off (PRIMUS_LINT_STORE=none): give --store PATH, or --dry-run")
    try:
        sys.exit(_calibrate(log, config, None if dry_run else path, values))
    except (MeasureError, StoreError) as error:
        click.echo(f"primus-lint: {error}", err=True)
        sys.exit(2)


def _calibrate(log: str, config: str, path: str | None, values: dict[str, Any]) -> int:
    from primus_lint.measure import training_log
    from primus_lint.measure.calibration import calibrate, memory_lines
    from primus_lint.measure.store import Store

    with open(log, encoding="utf-8", errors="replace") as file:
        logged = training_log.read(file)
    checked = common.check_file(config, values)
    subject = next((subject for subject in checked.subjects if subject.run is not None), None)
    if subject is None:
        common.say_findings(checked)
        raise common.UsageError(f"{config} has no recipe that can be projected")
    if subject.target.gpu is None or subject.target.world_size is None:
        raise common.UsageError("calibration needs the run's GPU kind and size: give --gpu and --nodes or --world-size")
    label = f"{os.path.basename(log)} {os.path.basename(config)}"
    others = _others(path, subject, label)
    run, factors = calibrate(subject, logged, label, datetime.date.today().isoformat(), others)
    _show(run, factors, len(others), logged)
    for line in memory_lines(subject, logged):
        click.echo(line)
    if path is not None:
        with Store(path, write=True) as store:
            store.add_run(run)
            count = len(store.runs(run.device, run.framework))
        click.echo(f"kept in {path}: {count} run(s) of {run.device} with {run.framework}")
    return 0


def _others(path: str | None, subject: Subject, label: str) -> list[Lesson]:
    """What the store has learned from other runs of the same device and framework."""
    import math

    from primus_lint.measure.store import Store
    from primus_lint.projection.calibrate import Lesson

    if path is None or not os.path.exists(path) or subject.accelerator is None or subject.run is None:
        return []
    with Store(path) as store:
        runs = store.runs(subject.accelerator.name, subject.run.framework)
    return [Lesson(math.log(run.measured_s / run.before_s), run.shares) for run in runs if run.label != label]


def _show(run: CalibrationRun, factors: dict[str, float], others: int, logged: TrainingLog) -> None:
    from primus_lint.projection.calibrate import by_kind

    click.echo(
        f"measured   {run.measured_s:.4f} s an iteration ({logged.iterations} iterations, middle half within "
        f"{logged.spread:.1%})"
    )
    for name, seconds in (("before", run.before_s), ("after", run.after_s)):
        click.echo(f"{name:11}{seconds:.4f} s, error {seconds / run.measured_s - 1:+.1%}")
    click.echo(f"factors of {others + 1} run(s), and the share of each kind in this one's time")
    for kind, factor in by_kind(factors).items():
        click.echo(f"  {kind:16}{factor:8.3f}{run.shares[kind]:8.0%}")
