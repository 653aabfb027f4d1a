"""`primus-lint fix`, the same as `primus-lint --fix`."""

from __future__ import annotations

import sys
from typing import Any

import click

from primus_lint.cli import clicks, options


@click.command()
@click.argument("files", nargs=-1, required=True)
@clicks.options(options.FIX)
def command(files: tuple[str, ...], **values: Any) -> None:
    """Repair and tune FILES in place; print the unified diff.

    Exit status: 0 when nothing is left, 1 when findings remain (with --diff also when something would change), 2 when
    a file could not be checked.
    """
    from primus_lint.cli.run_fix import run_fix

    sys.exit(run_fix(files, values))
