"""`primus-lint explain`: a rule, a key, the origin chain of one value, or the memory of a file item by item."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from primus_lint.cli import clicks, common, options

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.readers.document import Value
    from primus_lint.subject import Subject


@click.command()
@click.argument("what")
@clicks.options(options.TARGET)
@click.option("--memory", is_flag=True, help="The memory items of a file, with formulas and sources.")
@click.option("--rank", type=click.IntRange(min=0), help="With --memory: this pipeline rank only.")
def command(what: str, memory: bool, rank: int | None, **values: Any) -> None:
    """Explain a rule (name or code), a key, one value (FILE:key), or a file's memory (FILE --memory)."""
    path, _, key = what.rpartition(":")
    if path and key and os.path.isfile(path):
        sys.exit(_value(common.check_file(path, values), key))
    if os.path.isfile(what):
        checked = common.check_file(what, values)
        if not checked.subjects:
            common.say_findings(checked)
            click.echo(f"{what}: not a training recipe that primus-lint reads", err=True)
            sys.exit(2)
        sys.exit(_memory(checked, rank) if memory else _file(checked))
    if path and os.path.isfile(path):
        raise common.UsageError(f"name the key behind the colon: {path}:KEY, or leave the colon out")
    sys.exit(_rule_or_key(what))


def _rule_or_key(what: str) -> int:
    from primus_lint.rules.catalogue import codes_by_name, documents

    code = codes_by_name().get(what) or codes_by_name().get(what.upper())
    if code is not None:
        rule = documents()[code]
        click.echo(f"{rule['name']} ({code}), {rule['severity']}, {rule['confidence']}")
        for field in ("what", "why"):
            click.echo(f"\n{field}: {' '.join(rule[field].split())}")
        for field in ("when", "require", "forbid"):
            if rule.get(field):
                click.echo(f"\n{field}: {' '.join(rule[field].split())}")
        versions = rule.get("versions")
        if versions:
            click.echo(f"\nholds {' '.join(f'{side} {version}' for side, version in versions.items())}")
        if rule["catalogue"]:
            click.echo(f"\ncatalogue of framework conditions: {', '.join(rule['catalogue'])}")
        for fix in rule["fix"]:
            click.echo(f"\nfix ({fix['safety']}): {fix['title']}")
        for example in rule.get("examples") or []:
            for kind in ("bad", "fixed", "good"):
                if kind in example:
                    click.echo(f"\n{kind}:\n{_example(example[kind])}")
        if rule.get("see"):
            click.echo(f"\nsee: {', '.join(rule['see'])}")
        return 0
    key = _key_of(what)
    if _key(key):
        return 0
    if os.path.lexists(what) or what.endswith(common.SUFFIXES):
        common.file_source(what)  # says why it cannot be read
    from difflib import get_close_matches

    from primus_lint.readers.tables import DEFAULT_VERSIONS, table

    rules = get_close_matches(what, list(codes_by_name()), 3, 0.6)
    keys = get_close_matches(key, {name for framework in DEFAULT_VERSIONS for name in table(framework)["keys"]}, 3, 0.6)
    near = [f"near {kind}: {', '.join(names)}" for kind, names in (("keys", keys), ("rules", rules)) if names]
    click.echo("; ".join([f"no rule, key or file is called {what!r}", *near]), err=True)
    return 2


def _example(example: Any) -> str:
    """What an example sets or says, as YAML, indented."""
    from textwrap import indent

    from primus_lint.source.render import render_value

    if isinstance(example, dict):
        example = "\n".join(f"{key}: {render_value(value)}" for key, value in example.items()) or "(nothing set)"
    return indent(str(example).rstrip(), "  ")


def _key_of(what: str) -> str:
    """The argument of a command-line flag, with or without its dashes in front; hyphens count as underscores."""
    if "-" not in what:
        return what
    from primus_lint.readers.tables import flags

    name = what.removeprefix("--")
    flag = flags().get(f"--{name}")
    return name.replace("-", "_") if flag is None else flag.key


def _key(name: str) -> bool:
    from primus_lint.readers.tables import DEFAULT_VERSIONS, table
    from primus_lint.rules.catalogue import documents
    from primus_lint.rules.checks.key_states import STANDS_FOR
    from primus_lint.source.render import render_value

    found = False
    for framework in DEFAULT_VERSIONS:
        facts_of_key = table(framework)["keys"].get(name)
        if facts_of_key is None:
            continue
        found = True
        click.echo(f"{name} ({framework})")
        for field in ("type", "default", "choices", "state", "note"):
            if facts_of_key.get(field) is not None:
                click.echo(f"  {field}: {render_value(facts_of_key[field])}")
        if facts_of_key.get("scope") is not None:
            click.echo(f"  read only with {facts_of_key['scope']}")
        instead = facts_of_key.get("to") or (STANDS_FOR.get(name) if framework == "primus-megatron" else None)
        if instead is not None:
            click.echo(f"  the key that works{' elsewhere' if facts_of_key.get('scope') else ''}: {instead}")
    if found:
        rules = [rule for rule in documents().values() if name in rule["names"] or name in (rule.get("keys") or ())]
        for rule in rules:
            click.echo(f"  rule: {rule['name']} ({rule['code']})")
    return found


def _value(checked: Checked, key: str) -> int:
    """The origin chain of one value, and what the framework makes of it."""
    name = _key_of(key.rpartition("overrides.")[2] if key.startswith("modules.") else key)
    shown = False
    for subject in checked.subjects:
        value = subject.section.values.get(name)
        if value is not None:
            shown = True
            _chain(subject, name, value)
        else:
            shown |= _default(subject, name)
    top = checked.document.top_level.get(name)
    if top is not None:
        shown = True
        click.echo(f"{name} = {top.value!r} (top level)")
    if not shown:
        message = f"{name} is not set in {checked.path} or its presets, and is no key of its framework"
        if not checked.subjects and checked.document.problems:
            message = f"{checked.path} cannot be read so far: {checked.document.problems[0].message}"
        click.echo("; ".join([message, *_near_keys(checked, name)]), err=True)
        return 2
    return 0


def _near_keys(checked: Checked, name: str) -> list[str]:
    from difflib import get_close_matches

    names: set[str] = set()
    for subject in checked.subjects:
        names.update(subject.section.values)
        if subject.section.framework == "megatron":
            names.update(subject.lowered.namespace)
    near = get_close_matches(name, names, 3, 0.6)
    return [f"near keys: {', '.join(near)}"] if near else []


def _default(subject: Subject, name: str) -> bool:
    if subject.section.framework != "megatron" or name not in subject.lowered.namespace:
        if (*subject.section.node_path, *name.split(".")) not in subject.document.lost:
            return False
        click.echo(f"{subject.section.name}: {name} is not set")
        _lost(subject, name)
        return True
    click.echo(f"{subject.section.name}: {name} = {subject.lowered.namespace[name]!r}")
    click.echo("  the framework's default: nothing sets it")
    _lost(subject, name)
    _adjusted(subject, name)
    return True


def _chain(subject: Subject, name: str, value: Value) -> None:
    click.echo(f"{subject.section.name}: {name} = {value.value!r}")
    for index, origin in enumerate(value.origins):
        where = f"{origin.path}:{origin.line}:{origin.column}" if origin.line else (origin.path or "")
        state = "used" if index == 0 else "overridden"
        text = f"  {state:11}{origin.value!r} from {origin.layer} {where}".rstrip()
        if origin.raw is not None and origin.variable is not None:
            text += f"  written {origin.raw}"
        if origin.note:
            text += f"  ({origin.note})"
        click.echo(text)
    _lost(subject, name)
    _adjusted(subject, name)


def _lost(subject: Subject, name: str) -> None:
    """What a parent set, where the section that it stood in is replaced as a whole."""
    lost = subject.document.lost.get((*subject.section.node_path, *name.split(".")))
    if lost is not None:
        by, value = lost
        section = ".".join(str(part) for part in by.key_path)
        click.echo(
            f"  {'lost':11}{value.value!r} from {value.origin.layer} {value.origin.path}:{value.origin.line}:"
            f"{value.origin.column}  ({by.path}:{by.line}:{by.column} replaces the whole section `{section}` "
            f"by {'nothing' if by.value is None else repr(by.value)})"
        )


def _adjusted(subject: Subject, name: str) -> None:
    if subject.section.framework != "megatron":
        return
    for change in subject.lowered.adjustments:
        if change.key == name:
            click.echo(f"  then {change.value!r}: {change.reason}")


def _file(checked: Checked) -> int:
    """What a file resolves to: sections, presets, and every value that the file itself sets."""
    document = checked.document
    click.echo(f"{checked.path}: {document.format}")
    for preset in document.presets:
        click.echo(f"  reads {preset}")
    for subject in checked.subjects:
        section = subject.section
        click.echo(f"{section.name}: framework {section.framework}, model {section.model}")
        for key, value in section.values.items():
            if value.origin.path == document.path:
                click.echo(f"  {key} = {value.value!r}  (line {value.origin.line})")
    return 2 if checked.unreadable else 0


def _memory(checked: Checked, rank: int | None) -> int:
    from primus_lint.report.memory_table import lines

    for subject in checked.subjects:
        if subject.target.world_size is None:
            from primus_lint.units import gpus

            sizes = subject.legal_world_sizes if subject.modelled and subject.grid_known else []
            legal = f"; legal are {gpus(sizes)}" if sizes else ""
            click.echo(f"no world size is known: give --nodes or --world-size{legal}", err=True)
            return 2
        ledger = subject.ledger
        if ledger is None:
            click.echo("no memory account: " + "; ".join(subject.no_memory), err=True)
            return 2
        if rank is not None and all(item.pp_rank != rank for item in ledger.ranks):
            click.echo(f"there is no pipeline rank {rank}", err=True)
            return 2
        if len(checked.subjects) > 1:
            click.echo(f"{subject.section.name}:")
        for line in lines(subject, rank):
            click.echo(line)
    return 0
