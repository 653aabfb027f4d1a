"""Where presets come from: a Primus checkout, or the shipped snapshot; and files that `extends` names.

A store keeps what it parsed for the life of the process: a preset is read once however many experiments use it. Files
of a checkout are looked at again (size and time of change) before their parsed form is used again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from primus_lint.readers.files import Body, body_of_facts, body_of_text
from primus_lint.readers.snapshot import Snapshot, SnapshotError, digest, snapshot_path

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIGS = os.path.join("primus", "configs")
MAX_FILE_BYTES = 16 << 20
_Signature = tuple[int, int] | None  # (size, time of change); None: not on disk


class Store:
    """Bodies of configuration files, parsed once. `parses` counts the files parsed so far (a test bounds it)."""

    def __init__(self, env: Mapping[str, str], root: str | None, snapshot: Snapshot | None) -> None:
        self.env = dict(env)
        self.root = root  # of a Primus checkout; None: the snapshot gives the presets
        self.snapshot = snapshot
        self.parses = 0
        self._bodies: dict[tuple[str, str], tuple[_Signature, Body]] = {}
        self.chains: dict[tuple[str, str], object] = {}  # of extends.py

    @property
    def description(self) -> str:
        """Where the presets come from, for people."""
        if self.root is not None:
            return os.path.join(self.root, CONFIGS)
        return f"Primus {self.snapshot.version} (shipped snapshot)" if self.snapshot else "nowhere"

    def preset_path(self, name: str) -> str:
        """Path of a preset by its name below primus/configs (`models/megatron/llama3_8B.yaml`)."""
        if self.root is not None:
            return os.path.join(self.root, CONFIGS, *name.split("/"))
        return f"primus/configs/{name}"

    def names(self, folder: str) -> list[str]:
        """Presets below a folder such as `models/megatron`, without that prefix."""
        if self.root is None:
            every = self.snapshot.names() if self.snapshot else []
            return [name[len(folder) + 1 :] for name in every if name.startswith(folder + "/")]
        base = os.path.join(self.root, CONFIGS, *folder.split("/"))
        found = []
        for where, _, files in os.walk(base):
            for name in files:
                if name.endswith((".yaml", ".yml")):
                    found.append(os.path.relpath(os.path.join(where, name), base).replace(os.sep, "/"))
        return sorted(found)

    def signature(self, path: str) -> _Signature:
        """What tells a changed file; None when it is no file on disk."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return (status.st_size, status.st_mtime_ns)

    def body(self, path: str, layer: str) -> Body | None:
        """The parsed body of a file; None when there is no such file."""
        if self.root is None and path.startswith("primus/configs/") and self.snapshot is not None:
            known = self._bodies.get((path, layer))
            if known is not None:
                return known[1]
            facts = self.snapshot.facts(path[len("primus/configs/") :])
            if facts is None:
                return None
            self.parses += 1
            body = body_of_facts(facts["keys"], path, layer, self.env)
            self._bodies[path, layer] = (None, body)
            return body
        signature = self.signature(path)
        if signature is None or not os.path.isfile(path):
            return None
        known = self._bodies.get((path, layer))
        if known is not None and known[0] == signature:
            return known[1]
        self.parses += 1
        body = self._read(path, layer)
        self._bodies[path, layer] = (signature, body)
        return body

    def _read(self, path: str, layer: str) -> Body:
        from primus_lint.readers.document import LocatedProblem
        from primus_lint.source.text import SourceText

        try:
            if os.path.getsize(path) > MAX_FILE_BYTES:
                raise OSError(f"larger than {MAX_FILE_BYTES >> 20} MiB")
            source = SourceText.from_path(path)
        except OSError as error:
            body = Body(path)
            body.mapping = False
            message = f"cannot be read: {error.strerror or error}"
            body.problems.append(LocatedProblem("unreadable-file", message, path, None, 1, 1, True))
            return body
        facts = self._unchanged(path, source.data)
        if facts is not None and not source.problems:
            return body_of_facts(facts, path, layer, self.env, source)
        from primus_lint.source.spans import SpanDoc

        return body_of_text(SpanDoc.parse(source), layer, self.env)

    def _unchanged(self, path: str, data: bytes) -> list[list[object]] | None:
        """The snapshot's facts of a checkout's file whose bytes are those of the snapshot: faster than parsing."""
        if self.root is None:
            return None
        configs = os.path.join(self.root, CONFIGS) + os.sep
        if not path.startswith(configs):
            return None
        snapshot = shipped_snapshot()
        if snapshot is None:
            return None
        facts = snapshot.facts(os.path.normpath(path[len(configs) :]).replace(os.sep, "/"))
        if facts is None or facts["digest"] != digest(data):
            return None
        entries: list[list[object]] = facts["keys"]
        return entries


_STORES: dict[tuple[str, tuple[tuple[str, str], ...]], Store] = {}
_SNAPSHOTS: dict[str, Snapshot] = {}


def shipped_snapshot() -> Snapshot | None:
    """The newest shipped snapshot; None where the package has none."""
    try:
        return load_snapshot(None)
    except (SnapshotError, OSError):
        return None


def load_snapshot(version: str | None) -> Snapshot:
    """A snapshot by version or path, read once. Raises SnapshotError, OSError."""
    path = snapshot_path(version)
    found = _SNAPSHOTS.get(path)
    if found is None:
        found = _SNAPSHOTS[path] = Snapshot(path)
    return found


def open_store(env: Mapping[str, str], root: str | None, version: str | None) -> Store:
    """The store for a checkout (`root`) or, without one, for a snapshot. Raises SnapshotError, OSError."""
    place = f"{root}:{os.path.abspath(root)}" if root is not None else "snapshot:" + snapshot_path(version)
    key = (place, tuple(sorted(env.items())))
    store = _STORES.get(key)
    if store is None:
        if len(_STORES) >= 64:
            _STORES.clear()
        store = _STORES[key] = Store(env, root, None if root is not None else load_snapshot(version))
    return store


def find_checkout(path: str) -> str | None:
    """The nearest folder at or above a file that holds primus/configs; relative when the file's path is."""
    folder = os.path.dirname(os.path.abspath(path))
    found = _CHECKOUTS.get(folder, "")
    if found == "":
        found = None
        here = folder
        while True:
            if os.path.isdir(os.path.join(here, CONFIGS)):
                found = here
                break
            parent = os.path.dirname(here)
            if parent == here:
                break
            here = parent
        _CHECKOUTS[folder] = found
    if found is None or os.path.isabs(path):
        return found
    here = os.path.relpath(found)
    return "" if here == "." else here


_CHECKOUTS: dict[str, str | None] = {}
