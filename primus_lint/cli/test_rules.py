"""`primus-lint test-rules`: run the examples of rule files, yours or the shipped ones."""

from __future__ import annotations

import os
import sys

import click


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False))
def command(folder: str | None) -> None:
    """Run the examples of the rules in FOLDER (default: the shipped catalogue)."""
    from primus_lint import resources
    from primus_lint.rules.catalogue import use_rule_paths
    from primus_lint.rules.compile import RuleError
    from primus_lint.rules.examples import run_examples

    try:
        if folder is not None and os.path.abspath(folder) != resources.data_root("rules"):
            use_rule_paths((os.path.abspath(folder),))
            from primus_lint.rules.own import doubts

            for line in doubts((os.path.abspath(folder),)):
                click.echo(f"primus-lint: warning: {line}", err=True)
        results = run_examples(folder or resources.data_root("rules"))
    except RuleError as error:
        click.echo(f"primus-lint: {error}", err=True)
        sys.exit(2)
    if not results:
        click.echo(f"primus-lint: {folder}: no rule with examples below this folder", err=True)
        sys.exit(2)
    failed = [result for result in results if result.problem]
    for result in failed:
        click.echo(f"FAILED {result.code} example {result.number}: {result.problem}")
    click.echo(f"{len(results) - len(failed)} examples passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)
