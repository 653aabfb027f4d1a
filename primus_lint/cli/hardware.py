"""`primus-lint hardware`: the devices that primus-lint knows, with the source of every number."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the devices, or show one with the source of every number."""
    from primus_lint.cli.common import check_gpu
    from primus_lint.hardware import accelerator, describe, names
    from primus_lint.units import gib

    if name is None:
        for item in names():
            found = accelerator(item)
            assert found is not None
            click.echo(f"{found.name:12}{found.label:26}{gib(found.visible_hbm_bytes):>12} visible")
        return
    check_gpu(name)
    found = accelerator(name)
    assert found is not None
    for label, value, unit, source in describe(found):
        click.echo(f"{label:34}{value} {unit or ''}".rstrip() + (f"   [{source}]" if source else ""))
