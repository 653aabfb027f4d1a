"""Completion: keys and values of a recipe, presets, GPU kinds and rule names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lsprotocol import types

from primus_lint.server import effect, keys
from primus_lint.server.cursor import Cursor, cursor_at
from primus_lint.server.keys import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from primus_lint.server.analysis import Analysis
    from primus_lint.subject import Subject

TOP_LEVEL = ("work_group", "user_name", "exp_name", "workspace", "extends", "env", "platform", "modules")
MODULES = ("pre_trainer", "sft_trainer")
MODULE = ("framework", "config", "model", "overrides")
FRAMEWORKS = ("megatron", "torchtitan", "maxtext", "megatron_bridge")
DEGREES = (1, 2, 4, 8, 16, 32, 64)


def completion(analysis: Analysis, offset: int) -> list[types.CompletionItem]:
    """What may stand at an offset."""
    source = analysis.source
    line, column = source.position(offset)
    before = source.line_text(line)[: column - 1]
    comment = re.search(r"#\s*primus-lint:\s*(.*)$", before)
    if comment is not None:
        return _in_comment(comment[1], analysis, offset)
    form = analysis.checked.document.format
    if form == "shell":
        word = re.search(r"--[\w-]*$", before)
        return [] if word is None else _flags(analysis, offset - len(word[0]), offset, frozenset(), "")
    cursor = cursor_at(source.text, offset)
    if cursor is None:
        return []
    if cursor.path[:1] == ("MODEL_ARGS",) or "\nMODEL_ARGS:" in "\n" + source.text:
        return _megatron_yaml(analysis, cursor)
    return _primus(analysis, cursor)


def _primus(analysis: Analysis, cursor: Cursor) -> list[types.CompletionItem]:
    path, depth = cursor.path, len(cursor.path)
    if cursor.key is not None:
        if depth == 2 and path[0] == "modules":
            return _items(_module_values(analysis, cursor), analysis, cursor)
        return _values(analysis, cursor) if path[:1] == ("modules",) and path[2:3] == ("overrides",) else []
    if depth == 0:
        return _items(((key, "", "") for key in TOP_LEVEL if key not in cursor.taken), analysis, cursor, ": ")
    if path == ("modules",):
        return _items(((key, "", "") for key in MODULES if key not in cursor.taken), analysis, cursor, ":")
    if depth == 2 and path[0] == "modules":
        return _items(((key, "", "") for key in MODULE if key not in cursor.taken), analysis, cursor, ": ")
    if path[:1] == ("modules",) and path[2:3] == ("overrides",):
        framework = _framework(analysis, cursor)
        return _keys(analysis, cursor, framework, path[3:])
    return []


def _keys(analysis: Analysis, cursor: Cursor, framework: str, below: tuple[str, ...]) -> list[types.CompletionItem]:
    """Keys of a framework below a section of nested keys (flat frameworks have none)."""
    prefix = "".join(part + "." for part in below)
    found = []
    for key, facts in keys.keys(framework).items():
        name = key[len(prefix) :]
        if not key.startswith(prefix) or not name or "." in name or name in cursor.taken:
            continue
        if facts.get("state") in keys.GONE:
            continue
        detail = keys.about({field: facts[field] for field in ("type", "default", "choices") if field in facts})
        section = facts.get("type") == "section"
        about = "\n\n".join(keys.about(facts))
        item = _item(name, "".join(detail).replace("`", ""), about, analysis, cursor, ":" if section else ": ")
        item.kind = types.CompletionItemKind.Module if section else _PROPERTY
        item.sort_text = ("0" if facts.get("state", "live") == "live" else "1") + name
        found.append(item)
    return found


def _values(analysis: Analysis, cursor: Cursor) -> list[types.CompletionItem]:
    """Values of a key, each with what it does where that is computed."""
    assert cursor.key is not None
    framework = _framework(analysis, cursor)
    key = ".".join((*cursor.path[3:], cursor.key))
    facts = keys.facts_of(framework, key)
    values = keys.choices(facts)
    subject = _subject(analysis, cursor)
    if not values and keys.is_count(facts) and subject is not None and key in _tuned():
        values = list(DEGREES)
    default = facts.get("default")
    entries = []
    for value in values:
        line = "" if subject is None else effect.effect(subject, key, value).line()
        entries.append((text(value), line, "the default" if value == default else ""))
    return _items(entries, analysis, cursor)


def _module_values(analysis: Analysis, cursor: Cursor) -> Iterator[tuple[str, str, str]]:
    """Frameworks, module presets, model presets."""
    from primus_lint.readers.presets import find_checkout, open_store

    if cursor.key == "framework":
        yield from ((name, "", "") for name in FRAMEWORKS)
        return
    folder = {"config": "modules", "model": "models"}.get(cursor.key or "")
    if folder is None:
        return
    root = analysis.options.primus_root or find_checkout(analysis.path)
    store = open_store({}, root, None)
    for name in store.names(f"{folder}/{_framework(analysis, cursor)}"):
        yield name, store.description, ""


def _megatron_yaml(analysis: Analysis, cursor: Cursor) -> list[types.CompletionItem]:
    if cursor.path != ("MODEL_ARGS",):
        return []
    if cursor.key is None:
        start = analysis.source.text.rfind("\n", 0, cursor.start) + 1
        written = analysis.source.text[start : cursor.end]
        begin = start + len(written) - len(written.lstrip())
        return _flags(analysis, begin, cursor.end, cursor.taken, ": ")
    from primus_lint.readers.tables import flags

    flag = flags(analysis.checked.document.framework_version).get(cursor.key)
    if flag is None:
        return []
    values = list(flag.choices or ()) or ([True] if "bool" in flag.type else [])
    return _items(((text(value), "", "") for value in values), analysis, cursor)


def _flags(analysis: Analysis, start: int, end: int, taken: frozenset[str], behind: str) -> list[types.CompletionItem]:
    from primus_lint.readers.tables import flags

    cursor = Cursor((), None, start, end, taken, "")
    table = flags(analysis.checked.document.framework_version)
    rows = ((name, flag.type, flag.key) for name, flag in table.items() if name not in taken)
    return _items(rows, analysis, cursor, behind)


def _in_comment(written: str, analysis: Analysis, offset: int) -> list[types.CompletionItem]:
    """Behind `# primus-lint:`: the word itself, rule names, GPU kinds."""
    word = re.search(r"[\w-]*$", written)
    assert word is not None
    cursor = Cursor((), None, offset - len(word[0]), offset, frozenset(), "")
    if re.match(r"(file-)?ignore\[[^\]]*$", written):
        from primus_lint.rules.catalogue import documents

        shown = {finding.name for finding in analysis.checked.findings}
        rules = sorted(documents().values(), key=lambda rule: (rule["name"] not in shown, rule["name"]))
        return _items(((rule["name"], rule["code"], rule["what"]) for rule in rules), analysis, cursor)
    if re.search(r"target\s(.*\s)?gpu=[\w-]*$", written):
        from primus_lint.hardware import names

        return _items(((name, "", "") for name in names()), analysis, cursor)
    if re.match(r"target\s", written):
        parts = ("gpu=", "nodes=", "world_size=", "gpus_per_node=")
        return _items(((name, "", "") for name in parts), analysis, cursor)
    if " " not in written:
        words = ("ignore[", "file-ignore[", "target ")
        return _items(((name, "", "") for name in words), analysis, cursor)
    return []


def _subject(analysis: Analysis, cursor: Cursor) -> Subject | None:
    """The section around the cursor of the text without its line, where what-ifs are computed."""
    other = analysis.again(cursor.without)
    for subject in other.checked.subjects:
        if subject.section.name == cursor.path[1] and effect.modelled(subject):
            return subject
    return None


def _framework(analysis: Analysis, cursor: Cursor) -> str:
    """The key tables of the module around the cursor: what its `framework:` says, else Megatron's."""
    from primus_lint.source.spans import SpanDoc

    doc = SpanDoc.parse_text(cursor.without, analysis.path)
    node = doc.node((*cursor.path[:2], "framework"))
    name = node.scalar if node is not None and node.kind == "scalar" else "megatron"
    if cursor.key in ("config", "model"):
        return name
    return "primus-megatron" if name == "megatron" else name


def _tuned() -> tuple[str, ...]:
    from primus_lint.tune.space import TUNED

    return TUNED


_PROPERTY = types.CompletionItemKind.Property


def _items(
    entries: Iterable[tuple[str, str, str]], analysis: Analysis, cursor: Cursor, behind: str = ""
) -> list[types.CompletionItem]:
    items = []
    for index, (label, detail, about) in enumerate(entries):
        item = _item(label, detail, about, analysis, cursor, behind)
        item.sort_text = f"{index:05}"
        items.append(item)
    return items


def _item(label: str, detail: str, about: str, analysis: Analysis, cursor: Cursor, behind: str) -> types.CompletionItem:
    colon = analysis.source.text.startswith(":", cursor.end)  # the key stands there already
    return types.CompletionItem(
        label,
        kind=_PROPERTY if behind else types.CompletionItemKind.Value,
        detail=detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, about) if about else None,
        text_edit=types.TextEdit(analysis.positions.range(cursor.start, cursor.end), label + ("" if colon else behind)),
        filter_text=label,
    )
