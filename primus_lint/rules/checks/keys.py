"""Keys that nothing knows, that stand at the wrong level, or that are no keys at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import (
    keys_of,
    listed,
    name_of,
    nearest,
    removed_of,
    say,
    written,
)
from primus_lint.rules.checks.other_frameworks import homes, owner
from primus_lint.rules.finding import Change, Finding, Fix, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.subject import Subject

# What an experiment may have at its top level: Primus reads these.
TOP_LEVEL = frozenset(
    ("work_group", "user_name", "exp_name", "workspace", "platform", "env", "extends", "bases", "modules")
)
MISPLACED = frozenset(("model", "models", "module", "overrides", "config", "framework"))  # what belongs under `modules`
MANY = 100
META = frozenset(("trainer_class", "trainable", "sink_level", "file_sink_level", "stderr_sink_level"))


def unknown(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys that the framework does not know: a misspelling where a known key is near. Not all where they are very many."""
    for number, finding in enumerate(_unknown(subject, rule)):
        if number == MANY:
            message = (
                f"more than {MANY} keys are no keys of {label(subject)}: this one and those behind it are not listed"
            )
            yield say(rule, subject, message, finding.keys, severity="warning", at_key=True)
            return
        yield finding


def _unknown(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    name = name_of(subject)
    if name in ("", "megatron") or (name == "torchtitan" and not subject.section.meta):
        return  # the parsers of Megatron and of TorchTitan have rules of their own
    table = keys_of(subject)
    unsure = [key for key, _ in written(subject) if key not in table and not is_environment_name(key)]
    known = known_names(subject) if unsure else frozenset()
    given = {key for key, _ in written(subject)} if unsure else set()
    told: set[str] = set()
    for key in unsure:
        root, dot, _ = key.partition(".")
        if root in told:
            continue
        if dot and root not in known and not any(name.startswith(root + ".") for name in known):
            told.add(root)
            inside = [name[len(root) + 1 :] for name in unsure if name.startswith(root + ".")]
            yield _section(rule, subject, key, root, known, [name for name in inside if name in known])
            continue
        if name == "primus-megatron" and key not in removed_of(subject):
            found = _flag(key, subject)
            if found is not None:
                yield _say_flag(rule, subject, key, *found, taken=found[0] in given)
                continue
        near = _model_field(key) if name == "megatron_bridge" else None
        if near is None and (key in known or _inside(key, known)):
            continue
        what = "is attached to the configuration and read by nothing"
        if name in ("maxtext", "megatron_bridge"):
            what = "is dropped"
        elif name == "primus-megatron":
            what = "is put on the arguments and read by nothing"
        near = near or nearest(key, _siblings(key, known))
        right = homes(key, table) if near is None and name == "torchtitan" else []
        other = None if right or (name == "torchtitan" and near) else owner(key, subject)
        if other is not None and (near is None or near != other[1]):
            yield _foreign(rule, subject, key, *other, what)
            continue
        if right:
            message = f"{key} is no key of {label(subject)}, {' and '.join(right)} {'is' if len(right) == 1 else 'are'}: it {what}"
            yield say(rule, subject, message, (key,), at_key=True)
            continue
        if near is None:
            message = f"{key} is no key of {label(subject)}: it {what}"
            yield say(rule, subject, message, (key,), severity="warning", confidence="derived", at_key=True)
            continue
        fixes: tuple[Fix, ...] = (Fix(f"rename it to {near}", "safe", (Change("rename", key, near),)),)
        if near in given:
            fixes, what = (), f"{what}; {near} is set as well: delete this one, or that one and rename this"
        yield say(
            rule,
            subject,
            f"{key} is no key of {label(subject)}, {near} is: it {what}",
            (key,),
            fixes=fixes,
            at_key=True,
        )


def _foreign(rule: dict[str, Any], subject: Subject, key: str, framework: str, here: str | None, what: str) -> Finding:
    """A key of another framework; an error where the section's own has another name for the same setting."""
    message = f"{key} is a key of {framework}, not of {label(subject)}: it {what}"
    if here is None:
        return say(rule, subject, message, (key,), severity="warning", confidence="derived", at_key=True)
    return say(rule, subject, f"{message}; the setting is called {here} here", (key,), at_key=True)


def _section(
    rule: dict[str, Any], subject: Subject, key: str, root: str, known: frozenset[str], meant: list[str]
) -> Finding:
    """A whole mapping that nothing reads, told once at its own name; `key` is the first key in it, `meant` those that
    would be read one level above."""
    origin = subject.section.values[key].origin
    path = origin.key_path[: len(origin.key_path) - key.count(".")]
    beside = len(path) == 3 and path[0] == "modules"  # at the level of `overrides`
    near = nearest(root, ("overrides",)) if beside else None
    near = near or nearest(root, {name.partition(".")[0] for name in known if "." in name})
    place = None
    document = subject.document
    entry = document.doc.entry(path) if document.doc is not None and origin.path == document.path else None
    if entry is not None and document.source is not None:
        span = (entry.key.start, entry.key.end)
        place = Place(document.path, *document.source.position(span[0]), span)
    if near is None:
        message = f"{root} is no section of {label(subject)}: nothing reads it, nor what stands in it"
        severity = "warning"
        if meant:
            message += f"; {listed(meant)} {'stands' if len(meant) == 1 else 'stand'} one level too deep"
            severity = rule["severity"]
        return say(rule, subject, message, (key,), severity=severity, confidence="derived", place=place, key_path=path)
    fixes: tuple[Fix, ...] = ()
    taken = entry is None or (document.doc is not None and document.doc.entry((*path[:-1], near)) is not None)
    if not taken:
        fixes = (Fix(f"rename it to {near}", "safe", (Change("rename", root, near),)),)
    message = f"unknown key {root}; did you mean {near}? Nothing reads what stands in it"
    finding = say(rule, subject, message, (key,), place=place, key_path=path)
    finding.fixes = fixes
    return finding


def _flag(key: str, subject: Subject) -> tuple[str, bool] | None:
    """(argument, switched off) for the name of a Megatron flag that is not the argument's own name."""
    from primus_lint.lower.megatron.versions import key_table
    from primus_lint.readers.tables import flags

    flag = flags(key_table(subject.version)).get("--" + key.replace("_", "-"))
    return None if flag is None or flag.key == key else (flag.key, flag.off)


def _say_flag(rule: dict[str, Any], subject: Subject, key: str, argument: str, off: bool, taken: bool) -> Finding:
    """A command-line flag written as a key: Primus knows arguments by their own names."""
    right = f"{argument}: false" if off else argument
    message = f"{key} is a command-line flag of Megatron, not a key: write {right}; as it stands nothing reads it"
    if taken:
        message += f"; {argument} is set as well: delete this one, or that one and rename this"
    fixes = () if off or taken else (Fix(f"rename it to {argument}", "safe", (Change("rename", key, argument),)),)
    return say(rule, subject, message, (key,), fixes=fixes, at_key=True)


def label(subject: Subject) -> str:
    return {
        "primus-megatron": "Primus's Megatron backend",
        "torchtitan": "TorchTitan",
        "maxtext": "MaxText",
        "megatron_bridge": "the recipe",
    }.get(name_of(subject), subject.section.framework)


def known_names(subject: Subject) -> frozenset[str]:
    """Every key that some code may read, of any state; unknown ones are what is left."""
    names = {*keys_of(subject), *removed_of(subject), *META}
    if name_of(subject) == "megatron_bridge":
        from primus_lint.readers.tables import table
        from primus_lint.rules.checks.bridge import arguments, refused

        data = table("megatron_bridge")
        names.update(data["config"])
        names.update(arguments(subject) or ())
        names.update(refused(subject))
    if name_of(subject) == "primus-megatron":
        from primus_lint.lower.megatron.versions import key_table
        from primus_lint.readers.tables import table

        version = key_table(subject.version)
        for framework in ("megatron", "megatron-config"):
            names.update(table(framework, version)["keys"])
        names.update(table("megatron", version).get("extra", ()))
    return frozenset(names)


def _inside(key: str, known: frozenset[str]) -> bool:
    """Whether a dotted key lies in a section whose keys are free: a known mapping without tabled leaves."""
    parts = key.split(".")
    for end in range(len(parts) - 1, 0, -1):
        section = ".".join(parts[:end])
        if section in known:
            return not any(name.startswith(section + ".") for name in known)
    return False


def _model_field(key: str) -> str | None:
    """The field of Megatron-Bridge's model that a key under `model` misspells. Providers of one's own may have more fields,
    so that a name like none of the known ones is left alone."""
    from primus_lint.readers.tables import table

    block, dot, field = key.partition(".")
    if block != "model" or not dot or "." in field:
        return None
    fields = {name for provider in table("megatron_bridge")["providers"].values() for name in provider}
    fields.update(table("megatron-config", "d3528a21")["keys"])
    near = None if field in fields else nearest(field, fields)
    return None if near is None else f"model.{near}"


def _siblings(key: str, known: frozenset[str]) -> list[str]:
    """Known keys of the same depth; a dotted key is first compared inside its own section."""
    section, _, _ = key.rpartition(".")
    inside = [name for name in known if name.rpartition(".")[0] == section]
    return inside or [name for name in known if name.count(".") == key.count(".")]


def is_environment_name(key: str) -> bool:
    """A name in the manner of environment variables: capitals, digits and underscores."""
    return len(key) > 2 and key.isupper() and key.replace("_", "").isalnum()


def environment_names(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Environment variables written as keys: none is exported."""
    if not name_of(subject):
        return
    found = [key for key, _ in written(subject) if is_environment_name(key)]
    if found:
        message = (
            f"{listed(found)} look{'s' if len(found) == 1 else ''} like environment variables: keys are not exported; "
            "write them under `env:` at the top level"
        )
        labels = tuple((key, "not exported") for key in found[1:])
        yield say(rule, subject, message, tuple(found), labels=labels, at_key=True)


def strays(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Training keys at the top level of an experiment: nothing reads them there."""
    document = subject.document
    if document.format == "megatron-yaml":
        flags = [key for key in document.top_level if key.startswith("--")]
        if flags:
            yield _stray(rule, subject, flags, "MODEL_ARGS")
        return
    if document.format != "primus" or subject.section is not document.sections[0]:
        return
    known = _section_names(subject)
    roots: dict[str, Any] = {}
    blocks: list[str] = []
    for key, value in document.top_level.items():
        root = key.split(".")[0]
        if root in TOP_LEVEL or value.origin.path != document.path:
            continue
        if root in known:
            roots.setdefault(root, value)
        elif root in MISPLACED and root not in blocks:
            blocks.append(root)
    for root in blocks:
        message = f"a top-level `{root}` is read by nothing: modules, their presets and overrides stand under `modules`"
        yield say(rule, subject, message, (root,), place=_place(subject, root), key_path=(root,))
    if not roots:
        return
    yield _stray(rule, subject, list(roots), ".".join(str(part) for part in subject.section.node_path))


def _stray(rule: dict[str, Any], subject: Subject, names: list[str], where: str) -> Finding:
    """Keys of the top level that belong under `where`, as one finding."""
    places = [_place(subject, root) for root in names]
    message = (
        f"{listed(names, 8)} stand{'s' if len(names) == 1 else ''} at the top level, where nothing reads "
        f"{'it' if len(names) == 1 else 'them'}: move {'it' if len(names) == 1 else 'them'} under {where}"
    )
    return say(
        rule, subject, message, tuple(names), place=places[0], key_path=(names[0],),
        related=tuple(place._replace(message=f"{name} too") for name, place in zip(names[1:], places[1:], strict=True)),
    )  # fmt: skip


def _section_names(subject: Subject) -> set[str]:
    """First parts of the keys that some module of the document could have."""
    names: set[str] = set()
    for section in subject.document.sections:
        names.update(key.split(".")[0] for key in section.values)
    names.update(key.split(".")[0] for key in keys_of(subject))
    if name_of(subject) == "megatron_bridge":
        from primus_lint.readers.tables import table

        names.update(key.split(".")[0] for key in table("megatron_bridge")["config"])
    return names


def _place(subject: Subject, root: str) -> Place:
    """Where a key stands at the top level."""
    document = subject.document
    if document.doc is not None and document.source is not None:
        entry = document.doc.entry((root,))
        if entry is not None:
            line, column = document.source.position(entry.key.start)
            return Place(document.path, line, column, (entry.key.start, entry.key.end))
    return Place(document.path, 1, 1)
