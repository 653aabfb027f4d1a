"""`primus-lint server`: the language server for editors, over standard input and output (extra `lsp`)."""

from __future__ import annotations

from typing import Any

import click

from primus_lint.cli import clicks, common, options


@click.command()
@clicks.options(options.TARGET)
@click.option("--stdio", is_flag=True, help="Accepted and ignored: the server always talks over stdio.")
def command(stdio: bool, **values: Any) -> None:
    """Language server over stdio: diagnostics, hover, code actions and completion in the editor.

    Target and version options hold for every file, as for `check`; settings files and target comments work too.
    """
    common.make_options(values)  # a wrong option is said before the editor waits for an answer
    try:
        from primus_lint.server.app import create
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise common.UsageError("the language server needs pygls: pip install 'primus-lint[lsp]'") from None
    create(values).start_io()
