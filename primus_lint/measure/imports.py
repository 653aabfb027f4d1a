"""Measurements that others wrote down: the kind of a file is seen from its content."""

from __future__ import annotations

import datetime
import json
import os
from typing import TYPE_CHECKING, Any

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.records import Measurement, from_json

if TYPE_CHECKING:
    from primus_lint.ir.run import Run


class Given:
    """What the command line adds to a file: the device, the recipe that was measured, the operation, and who measured."""

    __slots__ = ("device", "operation", "run")

    def __init__(self, device: str | None = None, run: Run | None = None, operation: str | None = None) -> None:
        self.device = device
        self.run = run
        self.operation = operation


def read(path: str, given: Given) -> list[Measurement]:
    """The measurements of a file. Raises MeasureError when it is of no known kind, or lacks something; OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    date = datetime.date.fromtimestamp(os.path.getmtime(path)).isoformat()
    source = os.path.basename(path)
    stripped = text.lstrip()
    if stripped.startswith("{"):
        data = _object(stripped)
        if data is not None and "profiling_results" in data:
            from primus_lint.measure import primus_artefact

            return primus_artefact.measurements(data, given, date, source)
        head = _object(stripped.partition("\n")[0])
        if head is not None and "columns" in head:
            return _table(head, text, source)
        return _lines(text, source)
    if "busbw" in text:
        from primus_lint.measure import collective_log

        return collective_log.measurements(text, given, date, source)
    if "-Gflops" in text:
        from primus_lint.measure import product_log

        return product_log.measurements(text, given, date, source)
    raise MeasureError(
        f"{path} is none of: an export of `primus-lint measure --export` (JSON lines), a Primus benchmark artefact (JSON "
        "with profiling_results), a table of hardware_db/measured, an nccl-tests or rccl-tests log, a hipblaslt-bench or rocblas-bench log"
    )


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _table(head: dict[str, Any], text: str, source: str) -> list[Measurement]:
    from primus_lint.measure import shipped_table

    try:
        return shipped_table.measurements(head, [json.loads(line) for line in text.splitlines()[1:]], source)
    except (KeyError, ValueError, TypeError) as error:
        raise MeasureError(f"{source} is no measured table of hardware_db: {error}") from None


def _lines(text: str, source: str) -> list[Measurement]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(from_json(json.loads(line)))
        except ValueError as error:
            raise MeasureError(f"{source}, line {number}: {error}") from None
    return found


def device_of(given: Given, named: list[str], what: str) -> str:
    """The device of a file: the command line's, else the one that it names. Raises MeasureError."""
    if given.device is not None:
        return given.device
    if len(set(named)) == 1:
        return named[0]
    hint = f" (it may be {', '.join(sorted(set(named)))})" if named else ""
    raise MeasureError(f"{what} does not say which device was measured{hint}: give --gpu")
