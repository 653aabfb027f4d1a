"""Measured tables of hardware_db (`hardware_db/measured/*.jsonl`) -> measurements, for projections that prefer measured
shapes to the fits that hardware_db makes of them. Products and attention only: collectives are curves already.
"""

from __future__ import annotations

from typing import Any

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.records import LAYOUT_OF_PASS, Measurement

SPREAD = 0.0  # one time a row: what it varies by is not in the tables


def measurements(head: dict[str, Any], rows: list[list[Any]], source: str) -> list[Measurement]:
    """The rows of a table whose first line is `head`. Raises MeasureError for an operation that is kept elsewhere."""
    read = {"gemm": _product, "grouped_gemm": _product, "attention": _attention}.get(str(head["operation"]))
    if read is None:
        raise MeasureError(
            f"{source}: {head['operation']} is used by the projection as it is; gemm, grouped_gemm and attention can be imported"
        )
    found = []
    for values in rows:
        row = dict(zip(head["columns"], values, strict=True))
        key = read(row)
        if key is not None:
            layout, shape = key
            seconds = float(row["time_s"])
            found.append(
                Measurement(
                    str(head["device"]), str(head["source"]), str(head["operation"]), str(row["dtype"]), layout, shape,
                    seconds, seconds, seconds, 1, str(head["date"]), source,
                )
            )  # fmt: skip
    return found


def _product(row: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Layout and shape of a product; None for backwards of both gradients together."""
    layout = LAYOUT_OF_PASS.get(row["op"])
    if layout is None:
        return None
    shape = {name: row[name] for name in ("m", "n", "k")}
    if "groups" in row:
        shape.update(groups=row["groups"], calls=1)
    return layout, shape


def _attention(row: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    if not row["causal"]:
        return None
    shape = {
        "batch": row["batch"], "heads": row["heads"], "kv_heads": row["kv_heads"], "seq": row["seq"],
        "dim_qk": row["head_dim_qk"], "dim_v": row["head_dim_v"],
    }  # fmt: skip
    return f"causal {row['direction']}", shape
