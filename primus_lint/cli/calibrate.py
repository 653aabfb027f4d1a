"""`primus-lint calibrate`: fit the projection of a device to a training run."""

from __future__ import annotations

import datetime
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from primus_lint.cli import clicks, common, options

if TYPE_CHECKING:
    from primus_lint.measure.calibration import Calibrated
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
@click.option("--dry-run", is_flag=True, help="Show what is learned, keep nothing.")
def command(log: str, config: str, store_path: str | None, dry_run: bool, **values: Any) -> None:
    """Compare LOG (Megatron-LM, Primus, TorchTitan or MaxText) with the projection of its recipe, and keep what it says of
    compute, host and communication. It holds for this device and framework from then on: for recipes of the same model
    most of it, for others what they share. Runs that agree are met. Memory is compared, and never fitted: it is computed
    exactly or it is wrong.
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
    found = calibrate(subject, logged, label, datetime.date.today().isoformat(), others)
    run = found.run
    _show(found, logged)
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
    from primus_lint.measure.store import Store

    if path is None or not os.path.exists(path) or subject.accelerator is None or subject.run is None:
        return []
    with Store(path) as store:
        runs = store.runs(subject.accelerator.name, subject.run.framework)
    return [run.lesson for run in runs if run.label != label]


def _show(found: Calibrated, logged: TrainingLog) -> None:
    run = found.run
    click.echo(
        f"measured   {run.measured_s:.4f} s an iteration ({logged.iterations} iterations, middle half within "
        f"{logged.spread:.1%})"
    )
    for name, seconds, width in zip(("before", "after"), (run.before_s, run.after_s), found.widths, strict=True):
        error = seconds / run.measured_s - 1
        click.echo(f"{name:11}{seconds:.4f} s, error {error:+.1%}, band {width:.0%} wide on a side")
    if max(run.measured_s / run.before_s, run.before_s / run.measured_s) > 1 + found.widths[0]:
        click.echo("the log lies outside the band of the projection: is it the same recipe, device and size?")
    click.echo(f"{found.note}; factor and share of each class in this one's time")
    for kind, seconds in found.before_s.items():
        if seconds > 0.005 * run.before_s:
            click.echo(f"  {kind:16}{found.after_s[kind] / seconds:8.3f}{seconds / run.before_s:8.0%}")
