"""References generated from the code: commands with their options, settings with their types."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

import click

from primus_lint import resources
from primus_lint.cli.options import COMMANDS
from primus_lint.settings import KEYS
from tools.docs.markdown import code, table


def command_line() -> str:
    """Every command: usage, words, options."""
    parts = []
    for name, (module, _) in COMMANDS.items():
        command: click.Command = importlib.import_module(f"primus_lint.cli.{module}").command
        context = click.Context(command, info_name=f"primus-lint {name}")
        usage = " ".join([f"primus-lint {name}", *command.collect_usage_pieces(context)])
        parts += [f"### {name}", f"    {usage}", _words(command)]
        rows = [row for param in command.params if (row := _option(param, context)) is not None]
        if rows:
            parts.append(table(["option", "what", "default"], rows))
    return "\n\n".join(part for part in parts if part)


def _words(command: click.Command) -> str:
    text = (command.help or "").replace("\b", "")
    return "\n\n".join(" ".join(block.split()) for block in text.split("\n\n"))


def _option(param: click.Parameter, context: click.Context) -> tuple[str, str, str] | None:
    if not isinstance(param, click.Option) or param.hidden or "--help" in param.opts:
        return None
    names = ", ".join(code(name) for name in param.opts)
    if isinstance(param.type, click.Choice):
        names += " " + code("|".join(str(choice) for choice in param.type.choices))
    elif not param.is_flag:
        names += " " + code(param.metavar or param.type.name.upper())
    more = " Repeatable." if param.multiple and "Repeatable" not in (param.help or "") else ""
    default = "" if param.is_flag or param.default in (None, (), "") or param.multiple else code(str(param.default))
    return names, (param.help or "") + more, default if "Sentinel" not in default else ""


def settings() -> str:
    """Every setting: type, default, words, from the published schema."""
    with open(os.path.join(resources.data_root("schemas"), "settings.json"), encoding="utf-8") as file:
        schema: dict[str, Any] = json.load(file)
    known = schema["properties"]
    missing = set(KEYS) ^ set(known)
    if missing:
        raise ValueError(f"settings and their schema differ: {sorted(missing)}")
    rows = [(code(key), _type(known[key]), _default(known[key]), known[key].get("description", "")) for key in known]
    targets = known["targets"]["items"]["properties"]
    own = [(code(key), _type(facts), facts.get("description", "")) for key, facts in targets.items()]
    return "\n\n".join(
        [
            table(["setting", "type", "default", "what"], rows),
            "Keys of an entry of `targets`:",
            table(["key", "type", "what"], own),
        ]
    )


def _type(facts: dict[str, Any]) -> str:
    if "enum" in facts:
        return " or ".join(code(str(choice)) for choice in facts["enum"])
    kind = facts.get("type", "")
    if kind == "array":
        item = facts.get("items", {}).get("type", "")
        return "array of tables" if item == "object" else f"list of {item}s"
    return {"object": "table", "integer": "whole number"}.get(str(kind), str(kind))


def _default(facts: dict[str, Any]) -> str:
    return code(json.dumps(facts["default"])) if "default" in facts else ""


GENERATED = {"cli": command_line, "settings": settings}
