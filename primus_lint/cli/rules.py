"""`primus-lint rules`: the catalogue."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--catalogue", is_flag=True, help="List the framework conditions that are covered instead.")
def command(form: str, catalogue: bool) -> None:
    """List the rules: code, name, severity, and what each is about."""
    from primus_lint.rules.catalogue import documents

    rules = sorted(documents().values(), key=lambda rule: rule["code"])
    if catalogue:
        covered: dict[str, list[str]] = {}
        for rule in rules:
            for item in rule["catalogue"]:
                covered.setdefault(item, []).append(rule["name"])
        if form == "json":
            click.echo(json.dumps(covered, indent=1))
            return
        for item in sorted(covered):
            click.echo(f"{item:18}{', '.join(covered[item])}")
        return
    if form == "json":
        click.echo(json.dumps(rules, indent=1))
        return
    width = max(len(rule["name"]) for rule in rules)
    for rule in rules:
        click.echo(f"{rule['code']}  {rule['name']:{width}}  {rule['severity']:8}{' '.join(rule['what'].split())}")
    click.echo(f"{len(rules)} rules")
