"""Snapshots of Primus's presets: facts (key, value, place) of every file below `primus/configs`, one file a line.

The form of `presets.json`: `{"version", "commit", "source", "files": {NAME: {"digest", "keys": [ENTRY, ...]}}}` with
NAME such as `models/megatron/llama3_8B.yaml` and ENTRY = [key, key line, key column, value line, value column, value
length, value] plus the raw text where it says more than the value (variables, quotes). A section's value is
`{"keys": [ENTRY, ...]}`. Every file stands on one line, so that a reader parses only the files that it needs.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from primus_lint.resources import data_root

if TYPE_CHECKING:
    from primus_lint.source.node import Node
    from primus_lint.source.text import SourceText

NEWEST = "fd1eeabb"
_INDENT = '\n  "'


class SnapshotError(Exception):
    """A snapshot that cannot be found or made."""


class Snapshot:
    """A snapshot on disk; `facts` parses one file of it."""

    __slots__ = ("_text", "path", "version")

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = path
        with open(path, encoding="utf-8") as file:
            self._text = file.read()
        head = self._text[:2000]
        at = head.find('"version": "')
        self.version = head[at + 12 : head.find('"', at + 12)] if at >= 0 else os.path.basename(path)

    def facts(self, name: str) -> dict[str, Any] | None:
        """{"digest", "keys"} of a preset; None if the snapshot has no such file."""
        needle = f'{_INDENT}{name}": '
        at = self._text.find(needle)
        if at < 0:
            return None
        at += len(needle)
        end = self._text.find("\n", at)
        facts: dict[str, Any] = json.loads(self._text[at:end].rstrip(","))
        return facts

    def names(self) -> list[str]:
        """Every file of the snapshot, sorted."""
        found = []
        at = self._text.find(_INDENT)
        while at >= 0:
            at += len(_INDENT)
            found.append(self._text[at : self._text.find('"', at)])
            at = self._text.find(_INDENT, at)
        return found


def snapshot_path(version: str | None = None) -> str:
    """Path of a snapshot: of a shipped version, or `version` itself when it names a file. Raises SnapshotError."""
    if version and (os.sep in version or version.endswith(".json")):
        return version
    root = os.path.join(data_root("schemas"), "primus")
    path = os.path.join(root, version or NEWEST, "presets.json")
    if not os.path.isfile(path):
        shipped = sorted(os.listdir(root)) if os.path.isdir(root) else []
        raise SnapshotError(f"no snapshot of Primus {version or NEWEST!r}; shipped: {', '.join(shipped) or 'none'}")
    return path


def digest(data: bytes) -> str:
    """A short digest of a preset's bytes: an unchanged file of a checkout needs no parsing."""
    try:
        from _blake2 import blake2b  # hashlib loads OpenSSL for this
    except ImportError:
        from hashlib import blake2b
    text: str = blake2b(data, digest_size=12).hexdigest()
    return text


def take_snapshot(directory: str, version: str) -> dict[str, Any]:
    """Facts of every YAML file below `directory`/primus/configs.

    Raises SnapshotError where there is none, or where a preset is not readable as a mapping with string keys.
    """
    root = os.path.join(directory, "primus", "configs")
    if not os.path.isdir(root):
        raise SnapshotError(f"{directory} is no Primus checkout: it has no folder primus/configs")
    files: dict[str, Any] = {}
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".yaml", ".yml")):
                path = os.path.join(folder, name)
                files[os.path.relpath(path, root).replace(os.sep, "/")] = _file_facts(path)
    return {
        "kind": "primus-presets",
        "version": version,
        "source": "https://github.com/AMD-AGI/Primus",
        "what": "every file below primus/configs: [key, key line, key column, line, column, length, value, raw]",
        "files": dict(sorted(files.items())),
    }


def write_snapshot(directory: str, version: str, path: str) -> int:
    """Take a snapshot and write it; the number of files in it. Raises SnapshotError, OSError."""
    snapshot = take_snapshot(directory, version)
    files = snapshot.pop("files")
    head = json.dumps(snapshot, indent=1)[:-2]
    lines = [f"  {json.dumps(name)}: {json.dumps(facts, separators=(',', ':'))}" for name, facts in files.items()]
    text = head + ',\n "files": {\n' + ",\n".join(lines) + "\n }\n}\n"
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return len(files)


def _file_facts(path: str) -> dict[str, Any]:
    from primus_lint.source.spans import SpanDoc
    from primus_lint.source.text import SourceText

    source = SourceText.from_path(path)
    doc = SpanDoc.parse(source)
    if doc.fatal or doc.root is None or doc.root.kind != "mapping":
        raise SnapshotError(f"{path}: {doc.problems[0].message if doc.problems else 'not a mapping'}")
    return {"digest": digest(source.data), "keys": _entries(doc.root, source)}


def _entries(node: Node, source: SourceText) -> list[list[Any]]:
    entries = []
    for entry in node.entries:
        key, child = entry.key, entry.value
        if type(key.value) is not str:
            raise SnapshotError(f"{source.path}: key {key.raw} is no string")
        absent = child.start == child.end
        start, end = (key.start, key.start) if absent else (child.start, child.end)
        facts = [key.value, *source.position(key.start), *source.position(start), end - start]
        if child.kind == "mapping":
            entries.append([*facts, {"keys": _entries(child, source)}])
            continue
        value = child.value
        facts.append(value)
        if child.kind == "scalar" and (child.raw != _plain_text(value) or "${" in child.raw):
            facts.append(child.raw)
        elif child.kind == "sequence" and "${" in child.raw:
            facts.append(json.dumps(value))
        try:
            json.dumps(facts)
        except TypeError as error:
            raise SnapshotError(f"{source.path}: {key.value}: {error}") from None
        entries.append(facts)
    return entries


def _plain_text(value: Any) -> str:
    """The usual way to write a value; where a file writes it so, the raw text need not be stored."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
