"""The command line: one file per command, each imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from primus_lint import __version__
from primus_lint.cli.common import UsageError
from primus_lint.cli.options import COMMANDS, spelled_out

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Imports a command when it is called; anything that is not a command goes to `check`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"primus_lint.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and ctx.resilient_parsing:  # the shell completes the first word
            return super().parse_args(ctx, args)
        if not args or (args[0] not in COMMANDS and args[0] not in ("--help", "-h", "--version")):
            if not ctx.resilient_parsing:
                _refuse_slip(args[0] if args else "-")
            args = ["check", *args]
        return super().parse_args(ctx, spelled_out(args) if args[0] == "check" else args)

    def invoke(self, ctx: click.Context) -> Any:
        """A wrong use that a command finds out later is click's usage error, with exit status 2."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise click.UsageError(str(error)) from None
        except KeyboardInterrupt:  # click would exit with 1, which says "findings"
            sys.exit(130)
        except BrokenPipeError:  # here as well
            from primus_lint.__main__ import give_up

            give_up()

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The first word: a command, or what `check` takes."""
        check = self.get_command(ctx, "check")
        assert check is not None
        context = click.Context(check, parent=ctx, info_name="check")
        found = [*super().shell_complete(ctx, incomplete), *check.shell_complete(context, incomplete)]
        if not incomplete.startswith("-"):
            found += [
                item
                for param in check.params
                if param.name == "files"
                for item in param.shell_complete(context, incomplete)
            ]
        return list({(item.type, item.value): item for item in found}.values())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


def _refuse_slip(word: str) -> None:
    """A usage error where the first word is no file, but nearly a command."""
    if word[:1] == "-" or os.path.lexists(word):
        return
    from difflib import get_close_matches

    if near := get_close_matches(word, COMMANDS, 1, 0.7):
        raise click.UsageError(f"{word} is no command, file or folder; did you mean {near[0]}?")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="primus-lint")
def cli() -> None:
    """Check, explain and fix distributed LLM-training recipes before a GPU is taken.

    `primus-lint FILES` checks; `primus-lint --fix FILES` rewrites and prints the diff. See `primus-lint check --help`.
    """
