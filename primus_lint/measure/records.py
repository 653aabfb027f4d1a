"""One measured time, and the names that a measurement is found by."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

# operation -> what its shape holds, and what its layout says
#   gemm           m, n, k: [m,k] x [k,n] as multiplied; "TN" forward, "NN" input gradient, "NT" weight gradient (BLAS words)
#   grouped_gemm   groups, m, n, k of the forward (m rows a group), calls (1, or one a group); the same three layouts
#   attention      batch, heads, kv_heads, seq, dim_qk, dim_v; "causal forward", "causal backward"
#   memory         bytes read and written; "elementwise"
#   optimizer      elements updated; the optimizer's name
#   all_reduce, all_gather, reduce_scatter, all_to_all, p2p
#                  bytes (whole tensor; of an all-to-all what one rank sends), ranks, nodes; the library
#   dense_layer, moe_layer, embedding, head
#                  the model's facts and the degrees (see `plan.layer_shape`); "forward", "backward", "dgrad" (weights frozen)
PRODUCTS = ("gemm", "grouped_gemm")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
LAYERS = ("dense_layer", "moe_layer", "embedding", "head")
OPERATIONS = (*PRODUCTS, "attention", "memory", "optimizer", *COLLECTIVES, *LAYERS)
LAYOUT_OF_PASS = {"fwd": "TN", "dgrad": "NN", "wgrad": "NT"}


class Measurement(NamedTuple):
    """Seconds of one operation: median with its quartiles (`low_s`, `high_s`) over so many `repetitions`.

    `device` is a name of hardware_db where it knows the device. `stack` names the software that ran. `date` is ISO 8601.
    `source` says what measured it: "primus-lint measure", or the file that it was imported from.
    """

    device: str
    stack: str
    operation: str
    dtype: str
    layout: str
    shape: dict[str, Any]
    median_s: float
    low_s: float
    high_s: float
    repetitions: int
    date: str
    source: str

    @property
    def spread(self) -> float:
        """Half of the middle half, over the median; 0 for a single repetition."""
        return (self.high_s - self.low_s) / 2 / self.median_s

    def as_json(self) -> dict[str, Any]:
        """One line of an export."""
        return self._asdict()


def shape_text(shape: dict[str, Any]) -> str:
    """The canonical spelling of a shape, by which it is found."""
    return json.dumps(shape, sort_keys=True, separators=(",", ":"))


def from_json(data: Any) -> Measurement:
    """A Measurement of one line of an export. Raises ValueError that says what is wrong."""
    if not isinstance(data, dict):
        raise ValueError("a measurement is a JSON object")
    missing = [field for field in Measurement._fields if field not in data]
    if missing:
        raise ValueError(f"a measurement lacks {', '.join(missing)}")
    values = {field: data[field] for field in Measurement._fields}
    for field in ("device", "stack", "operation", "dtype", "layout", "date", "source"):
        if not isinstance(values[field], str):
            raise ValueError(f"{field} is a text, not {values[field]!r}")
    for field in ("median_s", "low_s", "high_s"):
        value = values[field]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise ValueError(f"{field} is a positive number of seconds, not {value!r}")
    if (
        isinstance(values["repetitions"], bool)
        or not isinstance(values["repetitions"], int)
        or values["repetitions"] < 1
    ):
        raise ValueError(f"repetitions is a positive whole number, not {values['repetitions']!r}")
    if values["operation"] not in OPERATIONS:
        raise ValueError(f"operation {values['operation']!r} is not known; known are {', '.join(OPERATIONS)}")
    if not isinstance(values["shape"], dict):
        raise ValueError("shape is an object")
    if not values["low_s"] <= values["median_s"] <= values["high_s"]:
        raise ValueError("low_s <= median_s <= high_s does not hold")
    return Measurement(**values)
