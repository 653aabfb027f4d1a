"""Logs of nccl-tests and rccl-tests -> measurements.

A table has a header that begins with "#" and names its columns, then one row a size; sizes are bytes of the whole tensor
(of an all-to-all, what one rank sends in all), times are microseconds of the out-of-place run, the mean over the
iterations. Ranks and hosts are listed above it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.imports import Given, device_of
from primus_lint.measure.records import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATIONS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "all_gather": "all_gather", "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "sendrecv": "p2p", "send_recv": "p2p",
}  # fmt: skip
_RANK = re.compile(r"#\s*Rank\s+\d+.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.*\S)")
_ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )\biters:\s*(\d+)")


def measurements(text: str, given: Given, date: str, source: str) -> list[Measurement]:
    """All rows of a log. Raises MeasureError when ranks, operation or device cannot be told."""
    hosts, devices = [], []
    for line in text.splitlines():
        found = _RANK.search(line)
        if found:
            hosts.append(found.group(1))
            devices.append(found.group(2))
    if len(hosts) < 2:
        raise MeasureError(
            f"{source} lists no ranks (lines `#  Rank  0 ... device 0 [..] NAME`): whose times are these?"
        )
    device = device_of(given, [_canonical(name) for name in devices], source)
    count = _ITERATIONS.search(text)
    repetitions = max(int(count.group(1)), 1) if count else 1
    found_rows = list(_rows(text, given.operation or _named(source), source))
    if not found_rows:
        raise MeasureError(f"{source} has no rows with a size and a time")
    result = []
    for operation, size, seconds in found_rows:
        ranks = 2 if operation == "p2p" else len(hosts)
        shape = {"bytes": size, "ranks": ranks, "nodes": min(len(set(hosts)), ranks)}
        library = "rccl-tests" if "rccl" in text.lower() or device.startswith("mi") else "nccl-tests"
        result.append(
            Measurement(
                device,
                library,
                operation,
                "bytes",
                library[:4],
                shape,
                seconds,
                seconds,
                seconds,
                repetitions,
                date,
                source,
            )
        )
    return result


def _canonical(name: str) -> str:
    from primus_lint.measure.device import canonical

    return canonical(name)[0]


def _named(text: str) -> str | None:
    """The operation that a name of a file or binary holds."""
    lowered = text.lower().replace("-", "_")
    for name, operation in OPERATIONS.items():
        if name in lowered:
            return operation
    return None


def _rows(text: str, operation: str | None, source: str) -> Iterator[tuple[str, int, float]]:
    """(operation, bytes, seconds) of every row with a time."""
    columns: list[str] | None = None
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not line.strip():
            words = line.replace("#", " ").split()
            if "size" in words and "time" in words:
                columns = words
            elif "perf" in line or "test" in line.lower():
                operation = _named(line) or operation
            continue
        words = line.split()
        if columns is None or not words[0].isdigit():
            operation = _named(line) or operation  # the command line
            continue
        if operation is None:
            raise MeasureError(f"{source} does not say which collective was timed: give --operation")
        time_us = _number(words, columns.index("time"))
        if int(words[0]) > 0 and time_us > 0:
            yield operation, int(words[0]), time_us * 1e-6


def _number(words: list[str], column: int) -> float:
    try:
        return float(words[column])
    except (IndexError, ValueError):
        return 0.0  # "N/A", or a row that was cut off
