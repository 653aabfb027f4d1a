"""A measured table: rows in common units (seconds, bytes, elements), where they came from, what was dropped."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

COLUMNS = {
    "gemm": ["dtype", "op", "m", "n", "k", "time_s"],
    "grouped_gemm": ["dtype", "op", "groups", "m", "n", "k", "time_s"],
    "attention": [
        "dtype", "direction", "batch", "heads", "kv_heads", "seq", "head_dim_qk", "head_dim_v", "causal", "time_s",
    ],
    "collective": ["op", "nodes", "gpus_per_node", "bytes", "time_s"],
    "memory": ["op", "bytes", "time_s"],
}  # fmt: skip
UNITS = "seconds; bytes; shapes in elements; m of a grouped product is rows per group"
EXAMPLES = 5  # rejected rows shown per reason


class Table:
    """One operation on one device from one source."""

    def __init__(self, operation: str, device: str, source: str, thinning: str = "none") -> None:
        self.operation = operation
        self.device = device
        self.source = source
        self.thinning = thinning
        self.rows: list[tuple[Any, ...]] = []
        self.checked = 0
        self.accepted = 0

    @property
    def name(self) -> str:
        return f"{self.operation}.{self.device}.{self.source}"

    def column(self, name: str) -> list[Any]:
        index = COLUMNS[self.operation].index(name)
        return [row[index] for row in self.rows]

    def write(self, folder: str, source: dict[str, Any]) -> None:
        """One JSON object (the head), then one JSON array per row."""
        head = {
            "operation": self.operation, "device": self.device, "source": self.source, "title": source["title"],
            "licence": source["licence"], "date": str(source["date"]), "kind": "measured", "units": UNITS,
            "columns": COLUMNS[self.operation], "accepted": self.accepted, "stored": len(self.rows),
            "thinning": self.thinning,
        }  # fmt: skip
        with open(os.path.join(folder, self.name + ".jsonl"), "w", encoding="utf-8") as file:
            file.write(json.dumps(head) + "\n")
            for row in sorted(self.rows, key=repr):
                file.write(json.dumps([_short(value) for value in row], separators=(",", ":")) + "\n")


class Ledger:
    """Counts of what was read and why rows did not enter, by file."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.rejected: dict[str, dict[str, dict[str, Any]]] = {}

    def file(self, path: str, rows: int) -> None:
        self.read[path] = self.read.get(path, 0) + rows

    def reject(self, path: str, reason: str, example: Any, count: int = 1) -> None:
        entry = self.rejected.setdefault(path, {}).setdefault(reason, {"rows": 0, "examples": []})
        entry["rows"] += count
        if len(entry["examples"]) < EXAMPLES:
            entry["examples"].append(example if isinstance(example, str) else [_short(value) for value in example])

    def as_data(self) -> dict[str, Any]:
        return {
            path: {"rows": rows, "rejected": self.rejected.get(path, {})} for path, rows in sorted(self.read.items())
        }


def keep_one_in(count: int, *shape: Any) -> bool:
    """A repeatable one-in-`count` choice by shape (CRC-32 of its text)."""
    return zlib.crc32(repr(shape).encode()) % count == 0


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
