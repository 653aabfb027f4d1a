"""`primus-lint config`: which settings and which target hold for a file, and why."""

from __future__ import annotations

import sys
from typing import Any

import click

from primus_lint.cli import clicks, common, options


@click.command()
@click.argument("file", type=click.Path(exists=True))
@clicks.options(options.TARGET)
def command(file: str, **values: Any) -> None:
    """Show the settings and the target that hold for FILE, each with its source."""
    import os

    from primus_lint.readers import read
    from primus_lint.settings import load_settings
    from primus_lint.target import resolve_target

    chosen = common.make_options(values)
    settings = load_settings(file)
    good = common.settings_problems(settings, set())
    click.echo(f"settings: {settings.path or 'none found: defaults'}")
    for name in ("profile", "fail_on", "framework_version"):
        _show(name, getattr(settings, name))
    for layer in reversed(settings.layers):
        if layer is not settings:
            click.echo(f"  extends {layer.path}")
        for name in ("select", "extend_select", "ignore", "rule_paths"):
            _show(name, getattr(layer, name))
    ignored = settings.ignored_in(file)
    if ignored:
        click.echo(f"  ignored in this file: {', '.join(ignored)}")
    source = None if os.path.isdir(file) else common.file_source(file)
    document = None if source is None else read(source, env=chosen.env, set_values=chosen.set_values)
    target, assumed = resolve_target(
        file, source, settings, gpu=chosen.gpu, nodes=chosen.nodes, world_size=chosen.world_size,
        gpus_per_node=chosen.gpus_per_node, document=document,
    )  # fmt: skip
    click.echo(f"target: gpu {target.gpu or 'unknown'}, world size {target.world_size or 'unknown'}")
    for item in assumed:
        click.echo(f"  {item.what} = {item.value} from {item.source}")
    sys.exit(0 if good else 2)


def _show(name: str, value: object) -> None:
    if value:
        click.echo(f"  {name.replace('_', '-')} = {value!r}")
