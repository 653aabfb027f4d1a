"""The user's own measurements of a device, as the projection looks them up.

Tiers of a time, in this order: "measured" (this very shape), "interpolated" (near measured shapes), "fitted to own
measurements" (the model of hardware_db, corrected by this device's median), then the tiers of hardware_db. Of several software stacks the one
that was measured last counts, operation by operation.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.formula import minimum, where
from primus_lint.hardware import rates
from primus_lint.hardware.rates import Seconds
from primus_lint.measure.records import LAYERS, LAYOUT_OF_PASS
from primus_lint.measure.store import Store, StoreError
from primus_lint.measure.where import mentions
from primus_lint.projection.interpolate import EXACT, Table, curve_at
from primus_lint.projection.shapes import PASSES, as_multiplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.hardware.records import Accelerator
    from primus_lint.ir.run import Run
    from primus_lint.measure.records import Measurement
    from primus_lint.projection.calibrate import Learned, Lesson
    from primus_lint.projection.compute import AttentionShape
    from primus_lint.projection.placement import Group
    from primus_lint.projection.shapes import Gemm


def of(path: str, accelerator: Accelerator) -> Measured | None:
    """The measurements of a device in the store `path`; None when there is nothing of this device in it."""
    if not mentions(path, accelerator.name):
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    rows, lessons = _load(path, accelerator.name, status.st_mtime_ns, status.st_size)
    return Measured(accelerator, rows, lessons) if rows or lessons else None


@lru_cache(maxsize=8)
def _load(
    path: str, device: str, changed_ns: int, size: int
) -> tuple[tuple[Measurement, ...], dict[str, tuple[Lesson, ...]]]:
    """(measurements, lessons of training runs by framework) of a device. A store that cannot be read is empty."""
    try:
        with Store(path) as store:
            rows = newest(store.rows(device))
            runs = store.runs(device)
    except StoreError:
        return (), {}
    lessons: dict[str, tuple[Lesson, ...]] = {}
    for run in runs:
        lessons[run.framework] = (*lessons.get(run.framework, ()), run.lesson)
    return tuple(rows), lessons


def newest(rows: list[Measurement]) -> list[Measurement]:
    """Of every operation only the rows of the software stack that was measured last."""
    last: dict[str, tuple[str, str]] = {}
    for row in rows:
        last[row.operation] = max(last.get(row.operation, ("", "")), (row.date, row.stack))
    return [row for row in rows if row.stack == last[row.operation][1]]


class Measured:
    """Measurements of one device, by operation. Tables are made when they are first asked for."""

    __slots__ = ("accelerator", "curves", "layers", "lessons", "rows", "tables")

    def __init__(
        self, accelerator: Accelerator, rows: tuple[Measurement, ...], lessons: dict[str, tuple[Lesson, ...]]
    ) -> None:
        self.accelerator = accelerator
        self.lessons = lessons
        self.rows: dict[str, list[Measurement]] = {}
        for row in rows:
            self.rows.setdefault(row.operation, []).append(row)
        self.tables: dict[Any, Table | None] = {}
        self.curves: dict[str, dict[tuple[int, int], list[Measurement]]] = {}
        self.layers = {kind: self.rows[kind] for kind in LAYERS if kind in self.rows}

    def learned(self, run: Run) -> Learned | None:
        """What training runs of the recipe's framework say of its model."""
        lessons = self.lessons.get(run.framework)
        if lessons is None:
            return None
        from primus_lint.projection.calibrate import learn, model_of

        return learn(lessons, model_of(run))

    def products(self, gemm: Gemm, dtype: str, single: bool, modelled: list[Seconds]) -> list[Seconds]:
        """Forward, dgrad and wgrad of a product, corrected by what was measured. `single`: experts run in one kernel."""
        grouped = gemm.is_grouped
        operation = "grouped_gemm" if grouped else "gemm"
        if operation not in self.rows:
            return modelled
        found = []
        for op, seconds in zip(PASSES, modelled, strict=True):
            table = self._table((operation, dtype, op, *((single,) if grouped else ())), seconds)
            if table is None:
                found.append(seconds)
                continue
            if grouped:
                ratio = table.at(gemm.groups, gemm.m, gemm.n, gemm.k)
            else:
                ratio = table.at(*as_multiplied(op, gemm.m, gemm.n, gemm.k))
            found.append(_corrected(seconds, ratio))
        return found

    def attention(self, shape: AttentionShape, direction: str, modelled: Seconds) -> Seconds:
        """The fused causal core, forward or backward."""
        table = None
        if "attention" in self.rows:
            table = self._table(("attention", direction, shape.key_dim, shape.value_dim), modelled)
        if table is None:
            return modelled
        return _corrected(modelled, table.at(shape.batch, shape.heads, shape.kv_heads, shape.seq_length))

    def memory(self, kind: str, modelled: Seconds) -> Seconds:
        """Memory-bound work."""
        if "memory" not in self.rows:
            return modelled
        table = self._table(("memory", kind), modelled)
        # kernels of a layer move its tensors one after the other: the size of one of them is not known here, the
        # largest measured size stands for all
        return (
            modelled if table is None else _corrected(modelled, table.at(max(2 ** point[0] for point in table.points)))
        )

    def collective(self, operation: str, volume_bytes: Any, group: Group) -> Seconds | None:
        """A collective (or "p2p") over a group of a measured size; None where the group was not measured.

        In an array of groups, those that were not measured come as NaN.
        """
        if operation not in self.rows:
            return None
        if operation not in self.curves:
            curves: dict[tuple[int, int], list[Measurement]] = {}
            for row in self.rows[operation]:
                curves.setdefault((row.shape["ranks"], row.shape["nodes"]), []).append(row)
            self.curves[operation] = curves
        time_s: Any = float("nan")
        spread: Any = 0.0
        for (ranks, nodes), rows in self.curves[operation].items():
            here = (group.size == ranks) & (group.nodes == nodes)
            if here is False:
                continue
            rows = sorted(rows, key=lambda row: row.shape["bytes"])
            sizes = [float(row.shape["bytes"]) for row in rows]
            time_s = where(here, curve_at(sizes, [row.median_s for row in rows], volume_bytes), time_s)
            spreads = [max(row.spread, 1e-6) for row in rows]
            spread = where(here, curve_at(sizes, spreads, minimum(volume_bytes, sizes[-1])), spread)
        if isinstance(time_s, float) and time_s != time_s:
            return None
        return Seconds(time_s, 1 / (1 + spread), 1 + spread, EXACT)

    def optimizer(self, name: str, dtype: str, elements: Any) -> Seconds | None:
        """An optimizer step over that many weights, by the measured time of one; None when it was not measured."""
        rows = [row for row in self.rows.get("optimizer", ()) if row.layout == name and row.dtype == dtype]
        if not rows:
            return None
        best = max(rows, key=lambda row: int(row.shape["elements"]))
        return Seconds(best.median_s / best.shape["elements"] * elements, 1 / (1 + best.spread), 1 + best.spread, EXACT)

    def _table(self, key: tuple[Any, ...], modelled: Seconds) -> Table | None:
        if key not in self.tables:
            rows = _ROWS[key[0]](self, *key[1:])
            band = float(_most(modelled.high)) - 1
            self.tables[key] = Table(rows, band) if rows else None
        return self.tables[key]

    def gemm_rows(self, dtype: str, op: str) -> list[Any]:
        found = []
        for row in self.rows["gemm"]:
            if row.dtype == dtype and row.layout == LAYOUT_OF_PASS[op]:
                m, n, k = row.shape["m"], row.shape["n"], row.shape["k"]
                model = rates.gemm_time_s(self.accelerator, dtype, m, n, k, op).time_s
                found.append(((m, n, k), row.median_s / model, row.spread))
        return found

    def grouped_rows(self, dtype: str, op: str, single: bool) -> list[Any]:
        found = []
        for row in self.rows["grouped_gemm"]:
            calls = 1 if single else row.shape["groups"]
            if row.dtype == dtype and row.layout == LAYOUT_OF_PASS[op] and row.shape["calls"] == calls:
                groups, m, n, k = (row.shape[name] for name in ("groups", "m", "n", "k"))
                model = rates.grouped_gemm_time_s(self.accelerator, dtype, groups, m, n, k, op).time_s
                found.append(((groups, m, n, k), row.median_s / model, row.spread))
        return found

    def attention_rows(self, direction: str, dim_qk: int, dim_v: int) -> list[Any]:
        found = []
        for row in self.rows["attention"]:
            shape = row.shape
            if row.layout == f"causal {direction}" and (shape["dim_qk"], shape["dim_v"]) == (dim_qk, dim_v):
                batch, heads, groups, seq = (shape[name] for name in ("batch", "heads", "kv_heads", "seq"))
                model = rates.attention_time_s(
                    self.accelerator, row.dtype, batch, heads, groups, seq, seq, dim_qk, dim_v, direction=direction
                )
                found.append(((batch, heads, groups, seq), row.median_s / model.time_s, row.spread))
        return found

    def memory_rows(self, kind: str) -> list[Any]:
        found = []
        for row in self.rows["memory"]:
            if row.layout in (kind, "elementwise"):
                model = rates.memory_time_s(self.accelerator, row.shape["bytes"], row.layout).time_s
                found.append(((row.shape["bytes"],), row.median_s / model, row.spread))
        return found


_ROWS: dict[str, Callable[..., list[Any]]] = {
    "gemm": Measured.gemm_rows,
    "grouped_gemm": Measured.grouped_rows,
    "attention": Measured.attention_rows,
    "memory": Measured.memory_rows,
}


def _corrected(seconds: Seconds, ratio: Any) -> Seconds:
    return Seconds(seconds.time_s * ratio.factor, 1 / (1 + ratio.spread), 1 + ratio.spread, ratio.tier)


def _most(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else value.max()
