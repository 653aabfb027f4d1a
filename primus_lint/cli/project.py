"""`primus-lint project`: memory by pipeline rank and projected speed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from primus_lint.cli import clicks, common, options

if TYPE_CHECKING:
    from primus_lint.subject import Subject

BAR = 48


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@clicks.options(options.TARGET)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(file: str, form: str, **values: Any) -> None:
    """Memory of every pipeline rank and projected speed of FILE on its target."""
    checked = common.check_file(file, values)
    if checked.unreadable or not checked.subjects:
        common.say_findings(checked)
        click.echo(f"primus-lint: {file} cannot be projected", err=True)
        sys.exit(2)
    if form == "json":
        from primus_lint.report.json_report import file_data

        click.echo(json.dumps(file_data(checked, common.repository_root(common.working_directory())), indent=1))
    else:
        for subject in checked.subjects:
            _show(subject)
    errors = [f for f in checked.findings if f.severity == "error" and f.suppressed is None]
    for finding in errors:
        click.echo(f"error[{finding.name}]: {finding.message}", err=True)
    nothing = all(subject.ledger is None and subject.projection is None for subject in checked.subjects)
    sys.exit(1 if errors else 2 if nothing else 0)


def _show(subject: Subject) -> None:
    from primus_lint.ledger.walk import peak_words
    from primus_lint.units import gib

    if not subject.modelled:
        click.echo("\n".join(subject.not_modelled))
        return
    if subject.target.world_size is None:
        from primus_lint.units import gpus

        sizes = subject.legal_world_sizes if subject.grid_known else []
        legal = f"; legal are {gpus(sizes)}" if sizes else ""
        click.echo(f"no world size is known: give --nodes or --world-size{legal}", err=True)
        return
    ledger, accelerator = subject.ledger, subject.accelerator
    for text in subject.no_memory:
        click.echo(f"memory: not computed: {text}")
    if ledger is not None:
        capacity = accelerator.visible_hbm_bytes if accelerator else max(r.device_high_bytes for r in ledger.ranks)
        name = accelerator.label if accelerator else "no GPU kind known"
        click.echo(f"memory by pipeline rank ({name}, {gib(capacity)} visible)")
        for rank in ledger.ranks:
            groups = [("#", "static"), ("=", "persistent"), ("+", "activation"), ("-", "transient")]
            bar = "".join(sign * round(BAR * rank.total(group) / capacity) for sign, group in groups)
            band = f"{gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}"
            over = "  OVER" if rank.device_low_bytes > capacity else ""
            if not over and accelerator is not None and rank.device_high_bytes > capacity:
                over = "  MAY BE OVER"
            label = f"{rank.pp_rank}" + ("" if rank.dp == "all" else f" {rank.dp} dp rank")
            click.echo(f"  rank {label:16}|{bar[: BAR + 12]:{BAR}}| {band}{over}")
        click.echo("  # states  = persistent  + activations  - transients")
        worst = ledger.worst_rank
        most = worst.peak_moment if subject.run is None else peak_words(subject.run, worst)
        click.echo(f"items of pipeline rank {worst.pp_rank}, most at: {most}")
        for item_name, item in worst.items.items():
            if item.bytes:
                click.echo(f"  {item_name:34}{gib(item.bytes):>12}  {item.formula}")
    projection = subject.projection
    if projection is None:
        for text in subject.no_time:
            click.echo(f"time: not projected: {text}")
        return
    click.echo("time of one step")
    for key, value, _, tiers in projection.explain():
        if abs(value) >= 5e-6:  # shown as 0.00 ms
            click.echo(f"  {key:34}{value * 1e3:>12,.2f} ms  {tiers}".rstrip())
    if projection.notes:
        from primus_lint.projection.upscale import account

        for line in account(projection):
            click.echo(f"  {line}")
    if subject.fits is False:
        click.echo("  it does not fit: what it would take if it did")
    click.echo(
        f"  iteration {projection.iteration_s:.3f} s [{projection.low_s:.3f}, {projection.high_s:.3f}], "
        f"{projection.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {projection.model_tflops_per_gpu:,.1f} TFLOP/s/GPU, "
        f"MFU {projection.mfu:.1%}, bubble {projection.bubble_fraction:.1%}, {projection.source}"
    )
