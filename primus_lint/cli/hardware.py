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
        devices = [device for item in names() if (device := accelerator(item)) is not None]
        name_width = max(len(device.name) for device in devices)
        label_width = max(len(device.label) for device in devices)
        for device in devices:
            size = gib(device.visible_hbm_bytes)
            click.echo(f"{device.name:{name_width}}  {device.label:{label_width}}  {size:>9} visible")
        return
    check_gpu(name, "device ")
    found = accelerator(name)
    assert found is not None
    lines = list(describe(found))
    width = max(len(label) for label, *_ in lines)
    for label, value, unit, source in lines:
        click.echo(f"{label:{width}}  {value} {unit or ''}".rstrip() + (f"   [{source}]" if source else ""))
