"""The measured tables of hardware_db, read when somebody asks for them (the rates need none of them)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from primus_lint import resources


def tables() -> list[str]:
    """Names of the measured tables: `operation.device.source`."""
    folder = os.path.join(resources.data_root("hardware_db"), "measured")
    return sorted(name[: -len(".jsonl")] for name in os.listdir(folder) if name.endswith(".jsonl"))


def head(table: str) -> dict[str, Any]:
    """What a table says of itself: operation, device, source, date, licence, columns, units, thinning."""
    with open(_path(table), encoding="utf-8") as file:
        first: dict[str, Any] = json.loads(file.readline())
    return first


def rows(table: str) -> Iterator[dict[str, Any]]:
    """Rows of a table as dictionaries. Raises OSError for an unknown table."""
    with open(_path(table), encoding="utf-8") as file:
        columns = json.loads(file.readline())["columns"]
        for row in json.loads(f"[{','.join(file)}]"):  # at once: a call a line costs more than the parsing
            yield dict(zip(columns, row, strict=True))


def _path(table: str) -> str:
    return os.path.join(resources.data_root("hardware_db"), "measured", table + ".jsonl")
