"""`primus-lint check`: the default command."""

from __future__ import annotations

import sys
from typing import Any

import click

from primus_lint.cli import clicks, options


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True))
@clicks.options(options.CHECK)
def command(files: tuple[str, ...], **values: Any) -> None:
    """Check recipes: do they start, do they fit, how fast are they.

    FILES are files, directories or `-`. Exit status: 0 clean, 1 findings at or above --fail-on, 2 could not check.
    """
    if values["fix"] or values["diff"]:
        from primus_lint.cli.run_fix import run_fix

        sys.exit(run_fix(files, values))
    from primus_lint.cli.run import run_check

    sys.exit(run_check(files, values))
