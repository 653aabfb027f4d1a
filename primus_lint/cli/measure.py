"""`primus-lint measure`: times of a recipe's own layers, kernels and collectives, kept in the user's store."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from primus_lint.cli import clicks, common, options

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.measure.records import Measurement
    from primus_lint.measure.store import Store

PARTS = ("layers", "products", "attention", "memory", "collectives")


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@clicks.options(options.TARGET)
@click.option(
    "--store", "store_path", type=click.Path(dir_okay=False), help="The store (default: in the user's cache)."
)
@click.option(
    "--device", "kind", type=click.Choice(["cuda", "cpu"]), help="Measure here (default: a GPU if there is one)."
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a CPU (they are part of the device's name).")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Measure only this. Repeatable.")
@click.option("--seconds", default=0.5, show_default=True, help="Seconds for each time.")
@click.option("--dry-run", is_flag=True, help="Say what would be measured; needs no PyTorch.")
@click.option(
    "--import", "imports", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Read measurements."
)
@click.option("--operation", help="With --import: the collective of a log that does not name it.")
@click.option("--export", type=click.Path(dir_okay=False, allow_dash=True), help="Write the store as JSON lines.")
@click.option("--list", "listed", is_flag=True, help="Show what the store holds.")
def command(file: str | None, store_path: str | None, **values: Any) -> None:
    """Measure the layers of FILE (or of --model NAME) on the device at hand, one rank's share of each.

    Pipeline, expert and tensor parallelism are reduced until one device is enough; the projection puts collectives and
    schedule back. Under torchrun the collectives are measured as well. --import reads what others measured: JSON lines of
    --export, Primus benchmark artefacts, logs of nccl-tests, rccl-tests, hipblaslt-bench and rocblas-bench.
    """
    from primus_lint.measure.errors import MeasureError
    from primus_lint.measure.store import StoreError
    from primus_lint.measure.where import VARIABLE, default_path

    if store_path is not None:
        os.environ[VARIABLE] = store_path
    path = default_path()
    if path is None:
        raise common.UsageError("the store is switched off (PRIMUS_LINT_STORE=none): give --store PATH")
    try:
        sys.exit(_run(file, path, values))
    except (MeasureError, StoreError) as error:
        click.echo(f"primus-lint: {error}", err=True)
        sys.exit(2)


def _run(file: str | None, path: str, values: dict[str, Any]) -> int:
    from primus_lint.measure.store import Store

    if values["listed"] or values["export"]:
        with Store(path) as store:
            return _list(store) if values["listed"] else _export(store, values["export"])
    if values["imports"]:
        return _import(file, path, values)
    run = _recipe(file, values)
    if run is None and set(values["only"]) != {"collectives"}:
        raise common.UsageError("name a recipe (FILE) or a model (--model NAME) to measure")
    return _dry(run) if run is not None and values["dry_run"] else _measure(run, path, values)


def _recipe(file: str | None, values: dict[str, Any]) -> Run | None:
    """The recipe of a file, or of a model alone (bf16, micro-batch 1, its own or 4,096 tokens; --set changes them)."""
    if file is not None:
        checked = common.check_file(file, values)
        runs = [subject.run for subject in checked.subjects if subject.run is not None]
        if not runs:
            common.say_findings(checked)
            raise common.UsageError(f"{file} has no recipe that can be measured")
        return runs[0]
    if values["model"] is None:
        return None
    from primus_lint.measure.models import recipe_of

    return recipe_of(values["model"], common.make_options(values))


def _dry(run: Run) -> int:
    from primus_lint.measure import plan

    planned = plan.plan(run, 2**63)
    for note in planned.notes:
        click.echo(note)
    click.echo(f"parts: {', '.join(planned.kinds)} ({run.precision.params_dtype})")
    for gemm in planned.gemms:
        many = f"{gemm.groups} x " if gemm.is_grouped else ""
        click.echo(f"product {gemm.name}: {many}[{gemm.m:g}, {gemm.k}] x [{gemm.k}, {gemm.n}] and its two gradients")
    return 0


def _measure(run: Run | None, path: str, values: dict[str, Any]) -> int:
    from primus_lint.measure import device as devices

    torch = devices.import_torch()
    if values["threads"]:
        torch.set_num_threads(values["threads"])
    here = devices.find(values["kind"])
    from primus_lint.measure import collectives, plan, session

    process = collectives.Process(here) if collectives.started() else None
    first = process is None or process.rank == 0

    def say(text: str) -> None:
        if first:
            common.say(text)

    say(f"{here.label} ({here.name}), {here.stack}")
    wanted = tuple(part for part in values["only"] if part != "collectives")
    found: list[Measurement] = []
    if run is not None and (not values["only"] or wanted):
        planned = plan.plan(run, here.memory_bytes)
        for note in planned.notes:
            say(note)
        work = session.jobs(here, planned, values["seconds"], wanted)
        found += session.measure(here, work, say, (lambda timed: timed) if process is None else process.average)
    if process is not None and (not values["only"] or "collectives" in values["only"]):
        found += collectives.measure(here, process, values["seconds"], say)
    if process is not None:
        process.leave()
    if not first:
        _end(0)
    own = None if here.known else {
        "label": here.label, "kind": here.kind, "memory_bytes": here.memory_bytes, "units": here.units,
        "gpus_per_node": process.local_world if process else _gpus(torch, here),
    }  # fmt: skip
    status = _keep(path, found, {here.name: own} if own else {})
    if process is not None:
        _end(status)
    return status


def _end(status: int) -> NoReturn:
    """End one process of several at once: gloo's threads sometimes abort an interpreter that ends the usual way."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _gpus(torch: Any, here: Any) -> int:
    """Devices of this node: GPUs, or groups of as many threads as were used."""
    count = torch.cuda.device_count() if here.kind == "cuda" else (os.cpu_count() or 1) // here.units
    return max(int(count), 1)


def _import(file: str | None, path: str, values: dict[str, Any]) -> int:
    from primus_lint.measure import imports

    named = values["gpu"]
    if named is not None:
        from primus_lint.target import canonical_gpu

        named = canonical_gpu(named)
    run = _recipe(file, values)
    found = []
    for name in values["imports"]:
        found += imports.read(name, imports.Given(named, run, values["operation"]))
    return _keep(path, found, {})


def _keep(path: str, found: list[Measurement], own: dict[str, dict[str, Any]]) -> int:
    """Store what is plausible, and say what is not."""
    from primus_lint.hardware import accelerator, node_type
    from primus_lint.measure import plausible
    from primus_lint.measure.store import Store

    kept = []
    for row in found:
        shipped = None if row.device in own else accelerator(row.device)
        reason = plausible.why_not(row, shipped, None if shipped is None else node_type(row.device))
        if reason is None:
            kept.append(row)
        else:
            common.say(f"rejected: {row.operation} {row.layout} {row.shape} on {row.device}: {reason}")
    with Store(path, write=True) as store:
        for name, facts in own.items():
            store.add_device(name, facts)
        store.add(kept)
    devices = ", ".join(sorted({row.device for row in kept})) or "nothing"
    click.echo(f"{len(kept)} measurements kept in {path} ({devices}), {len(found) - len(kept)} rejected")
    return 0 if kept else 1


def _list(store: Store) -> int:
    for device, operation, dtype, stack, count, date in store.summary():
        click.echo(f"{device:24}{operation:16}{dtype:8}{count:>6}  {date}  {stack}")
    return 0


def _export(store: Store, target: str) -> int:
    import json

    with click.open_file(target, "w", encoding="utf-8") as out:
        for row in store.rows():
            out.write(json.dumps(row.as_json(), separators=(",", ":")) + "\n")
    return 0
