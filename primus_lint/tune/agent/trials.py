"""The trials of a session: kept in memory, logged as JSON lines without credentials, and read back to resume."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.subject import Subject
    from primus_lint.tune.rescore import Candidate

HIDDEN = "(hidden)"
RESUMED = 500  # trials of earlier sessions that are scored again


class Trial:
    """One proposal. `outcome` is what the model was told; `candidate` the exact score when it is legal and fits."""

    __slots__ = ("candidate", "changes", "outcome")

    def __init__(self, changes: dict[str, Any], outcome: dict[str, Any], candidate: Candidate | None = None) -> None:
        self.changes = changes
        self.outcome = outcome
        self.candidate = candidate


class Log:
    """Trials in order, and the file that they are appended to (None: none; `dry`: read and not written). `secrets` never
    reach the file."""

    def __init__(self, path: str | None, recipe: str, secrets: tuple[str, ...], dry: bool = False) -> None:
        self.path = path
        self.dry = dry
        self.recipe = recipe
        self.secrets = tuple(secret for secret in secrets if secret)
        self.trials: list[Trial] = []
        self.notes: list[str] = []

    def write(self, kind: str, **fields: Any) -> None:
        """Append a record: kind is messages (sent), reply, trial, note or end. Raises OSError."""
        if self.path is None or self.dry:
            return
        text = json.dumps({"time": round(time.time(), 3), "recipe": self.recipe, "kind": kind, **fields}, default=str)
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN).replace(json.dumps(secret)[1:-1], HIDDEN)
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def add(self, trial: Trial, again: bool = False) -> int:
        """Keep a trial, and log it unless it was read from the log; its number."""
        self.trials.append(trial)
        if not again:
            self.write("trial", trial=len(self.trials) - 1, changes=trial.changes, outcome=trial.outcome)
        return len(self.trials) - 1

    def known(self, changes: dict[str, Any]) -> int | None:
        """The number of an earlier trial of the same recipe."""
        name = repr(sorted(changes.items()))
        return next((i for i, t in enumerate(self.trials) if repr(sorted(t.changes.items())) == name), None)

    def earlier(self) -> list[dict[str, Any]]:
        """Changes of the newest trials of earlier sessions on the same recipe, from the file; what they noted goes to
        `notes`. Broken lines are passed over."""
        if self.path is None or not os.path.exists(self.path):
            return []
        out: list[dict[str, Any]] = []
        with open(self.path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if not isinstance(record, dict) or record.get("recipe") != self.recipe:
                    continue
                changes, text = record.get("changes"), record.get("text")
                if record.get("kind") == "trial" and isinstance(changes, dict) and changes not in out:
                    out.append(changes)
                if record.get("kind") == "note" and isinstance(text, str):
                    self.notes.append(text)
        return out[-RESUMED:]


def fingerprint(subject: Subject) -> str:
    """A short name of a recipe on its target and version: the same arguments give the same."""
    given = subject.lowered.namespace.given
    target = subject.target
    text = repr(
        (sorted((key, repr(value)) for key, value in given.items()), target.gpu, target.world_size, subject.version)
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
