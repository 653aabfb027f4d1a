"""Logs of hipblaslt-bench and rocblas-bench -> measurements of products.

A header names comma-separated columns (`transA,transB,...,M,N,K,...,us`), the row below has the values. BLAS is column-major:
its m x n result is our n x m one, so that our rows are its n. The transposes tell the pass of a linear layer (see
`records.LAYOUT_OF_PASS`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.imports import Given, device_of
from primus_lint.measure.records import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

DTYPES = {
    "bf16_r": "bf16", "f16_r": "fp16", "f32_r": "fp32", "f8_r": "fp8", "f8_fnuz_r": "fp8", "bf8_r": "fp8", "bf8_fnuz_r": "fp8",
    "h": "fp16", "s": "fp32",
}  # fmt: skip
_TYPE = re.compile(r"(?:--a_type|--precision|-r)\s+(\w+)")
_ITERATIONS = re.compile(r"(?:--iters|-i)\s+(\d+)")
_PREFIX = re.compile(r"^\[\d+\]:")


def measurements(text: str, given: Given, date: str, source: str) -> list[Measurement]:
    """All products of a log. Raises MeasureError when the device or the number format is not known."""
    from primus_lint.measure.device import canonical

    named = []
    for line in text.splitlines():
        if "Device ID" in line or "device name" in line.lower():
            name, known = canonical(line.split(":")[-1].strip())
            named += [name] if known else []
    device = device_of(given, named, source)
    stack = "hipblaslt-bench" if "hipblaslt" in text.lower() else "rocblas-bench"
    found = []
    for values, dtype, repetitions in _rows(text):
        if dtype is None:
            raise MeasureError(
                f"{source} does not say the number format (an a_type column, or --a_type on the command line)"
            )
        layout = values["transa"] + values["transb"]
        if layout not in ("TN", "NN", "NT"):
            continue  # no pass of a linear layer
        m, n, k = int(values["n"]), int(values["m"]), int(values["k"])
        seconds = float(values["us"]) * 1e-6
        groups = int(values.get("batch_count") or 1)
        shape = {"m": m, "n": n, "k": k}
        if groups > 1:
            forward = {"TN": (m, n, k), "NN": (m, k, n), "NT": (k, m, n)}[layout]
            shape = {"groups": groups, "calls": 1, **dict(zip("mnk", forward, strict=True))}
        operation = "grouped_gemm" if groups > 1 else "gemm"
        found.append(
            Measurement(
                device, stack, operation, dtype, layout, shape, seconds, seconds, seconds, repetitions, date, source
            )
        )
    if not found:
        raise MeasureError(f"{source} has no row of a product with its time")
    return found


def _rows(text: str) -> Iterator[tuple[dict[str, str], str | None, int]]:
    """(values by lower-case column, number format, repetitions) of every row."""
    columns: list[str] = []
    dtype: str | None = None
    repetitions = 1
    for line in text.splitlines():
        line = _PREFIX.sub("", line.strip())
        if "-bench" in line and "Gflops" not in line:
            kind, count = _TYPE.search(line), _ITERATIONS.search(line)
            dtype = DTYPES.get(kind.group(1)) if kind else None
            repetitions = int(count.group(1)) if count else 1
        words = [word.strip() for word in line.split(",")]
        if words[0].lower() == "transa":
            columns = [word.lower() for word in words]
            continue
        if not columns or len(words) != len(columns):
            continue
        values = dict(zip(columns, words, strict=True))
        try:
            float(values["us"])
        except (KeyError, ValueError):
            continue
        yield values, DTYPES.get(values.get("a_type", ""), dtype), repetitions
