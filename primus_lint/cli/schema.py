"""`primus-lint schema`: published JSON Schemas, and preset snapshots of a Primus checkout."""

from __future__ import annotations

import os
import sys

import click

from primus_lint import resources


@click.command()
@click.argument("kind", required=False)
@click.option("--from-primus", type=click.Path(exists=True, file_okay=False), help="A Primus checkout to snapshot.")
@click.option("--version", "version", help="With --from-primus: the name of the snapshot.")
@click.option("--output", type=click.Path(), help="With --from-primus: where to write it.")
def command(kind: str | None, from_primus: str | None, version: str | None, output: str | None) -> None:
    """Print a JSON Schema (KIND: experiment, report, rule, settings, hardware), or snapshot the presets of a Primus checkout."""
    if from_primus is not None:
        from primus_lint.readers.snapshot import write_snapshot

        if output is None or version is None:
            raise click.UsageError("--from-primus wants --version NAME and --output FILE")
        written = write_snapshot(from_primus, version, output)
        click.echo(f"{written}", err=True)
        return
    folder = resources.data_root("schemas")
    kinds = sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".json") and name != "models.json")
    if kind is None:
        click.echo("\n".join(kinds))
        return
    kind = {"experiment": "primus-experiment", "report": "report-v1"}.get(kind, kind)
    if kind not in kinds:
        raise click.UsageError(f"no schema {kind!r}; there are: {', '.join(kinds)}")
    with open(os.path.join(folder, kind + ".json"), encoding="utf-8") as file:
        sys.stdout.write(file.read())
