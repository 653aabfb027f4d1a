"""Products as they were measured: the exact shape, or between its neighbours.

A rate says how time depends on the shape; what a measured product adds is its ratio r = measured / modelled, which changes
slowly. At a shape,
    log r = sum_i w_i log r_i / (sum_i w_i + 1),    w_i = 1 / d_i^2
over the measured products within a factor of two (d_i <= 1, the distance in log2 of the dimensions); the 1 is the rate
itself. At a measured shape the time is the measured one, and away from all the rate's. Left out one by one, shapes that have
neighbours are met 10 to 25 % better than by the rate alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, median, where
from primus_lint.hardware.rates import Seconds, gemm_time_s
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator

EXACT, BETWEEN = "measured shape", "between measured shapes"
NEAR = 1.0  # log2: a factor of two in one dimension
REPEATS = (0.96, 1.04)  # the same product in two runs of Primus-Turbo's benchmark differs by 1 to 4 %
BLOCK = 4_000_000  # numbers of a block of distances


class Found(NamedTuple):
    """Factor on the modelled time, whether the shape itself was measured, and the tier ("": nothing is near; in arrays the
    least sure one)."""

    factor: Any
    exact: Any
    tier: str


class Points:
    """Measured products of one device, number format and pass."""

    __slots__ = ("buckets", "exact", "logs", "points")

    def __init__(self, rows: dict[tuple[int, int, int], float]) -> None:
        """`rows`: (m, n, k) -> measured over modelled time."""
        self.points = [(math.log2(m), math.log2(n), math.log2(k)) for m, n, k in rows]
        self.logs = [math.log(ratio) for ratio in rows.values()]
        self.exact = dict(zip(rows, self.logs, strict=True))
        self.buckets: dict[tuple[int, int], list[int]] = {}
        for index, (_, n, k) in enumerate(self.points):
            self.buckets.setdefault((int(n), int(k)), []).append(index)

    def at(self, m: Any, n: Any, k: Any) -> Found:
        """The factor at a shape, or at an array of shapes."""
        if is_scalar(m, n, k):
            return self._at(m, n, k)
        return self._grid(m, n, k)

    def _at(self, m: Any, n: Any, k: Any) -> Found:
        if min(m, n, k) <= 0:
            return Found(1.0, False, "")
        found = self.exact.get((m, n, k))
        if found is not None:
            return Found(math.exp(found), True, EXACT)
        x, y, z = math.log2(m), math.log2(n), math.log2(k)
        weights, total = 1.0, 0.0
        for a in range(int(y) - 1, int(y) + 2):
            for b in range(int(z) - 1, int(z) + 2):
                for index in self.buckets.get((a, b), ()):
                    p, q, r = self.points[index]
                    squared = (x - p) * (x - p) + (y - q) * (y - q) + (z - r) * (z - r)
                    if squared <= NEAR * NEAR:
                        weights += 1.0 / squared
                        total += self.logs[index] / squared
        return Found(math.exp(total / weights), False, BETWEEN) if weights > 1.0 else Found(1.0, False, "")

    def _grid(self, m: Any, n: Any, k: Any) -> Found:
        import numpy as np

        columns = np.broadcast_arrays(m, n, k)
        stacked = np.stack([np.asarray(column, dtype=float).ravel() for column in columns], axis=1)
        shapes, places = np.unique(stacked, axis=0, return_inverse=True)
        points, logs = np.array(self.points), np.array(self.logs)
        factors = np.ones(len(shapes))
        near = np.zeros(len(shapes), dtype=bool)
        step = max(BLOCK // len(points), 1)
        for start in range(0, len(shapes), step):
            block = shapes[start : start + step]
            legal = block.min(axis=1) > 0
            wanted = np.log2(np.where(legal[:, None], block, 1.0))
            squared = np.zeros((len(block), len(points)))
            for axis in range(3):
                apart = wanted[:, axis, None] - points[None, :, axis]
                squared += apart * apart
            inside = squared <= NEAR * NEAR
            weights = np.where(inside, 1.0 / np.maximum(squared, 1e-30), 0.0)
            sums = weights.sum(axis=1)
            mixed = np.exp((weights * logs).sum(axis=1) / (sums + 1.0))
            known = inside.any(axis=1) & legal
            factors[start : start + step] = np.where(known, mixed, 1.0)
            near[start : start + step] = known
        exact = np.zeros(len(shapes), dtype=bool)
        for index, (a, b, c) in enumerate(shapes):
            found = self.exact.get((int(a), int(b), int(c)))
            if found is not None:
                factors[index], exact[index] = math.exp(found), True
        tier = EXACT if exact.all() else BETWEEN if near.all() else ""
        places = np.asarray(places).reshape(columns[0].shape)
        return Found(factors[places], exact[places], tier)


def measured(acc: Accelerator, dtype: str, op: str, m: Any, n: Any, k: Any, modelled: Seconds) -> Seconds:
    """A product [m,k] x [k,n] as it is really multiplied, from what was measured of it on this very device."""
    rate = acc.rates["gemm"].get(dtype)
    tables = () if rate is None else tuple(rate.get("tables", ()))
    points = _points(acc.name, tables, dtype, op, _Model(acc, dtype, op)) if tables else None
    if points is None:
        return modelled
    factor, exact, tier = points.at(m, n, k)
    low, high = where(exact, REPEATS[0], modelled.low), where(exact, REPEATS[1], modelled.high)
    return Seconds(modelled.time_s * factor, low, high, tier or modelled.tier, modelled.sustained)


class _Model:
    """The rate that ratios refer to; equal for one device, number format and pass."""

    __slots__ = ("acc", "dtype", "op")

    def __init__(self, acc: Accelerator, dtype: str, op: str) -> None:
        self.acc, self.dtype, self.op = acc, dtype, op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Model) and self._rate() is other._rate()

    def __hash__(self) -> int:
        return id(self._rate())

    def _rate(self) -> Any:
        return self.acc.rates["gemm"][self.dtype]

    def seconds(self, m: int, n: int, k: int) -> float:
        return float(gemm_time_s(self.acc, self.dtype, m, n, k, self.op).time_s)


@lru_cache(maxsize=64)
def _points(device: str, tables: tuple[str, ...], dtype: str, op: str, model: _Model) -> Points | None:
    """The measured products of a device; repeated ones by their median. None without any."""
    from primus_lint.hardware.measured import rows

    wanted = ("bf16", "fp16") if dtype in ("bf16", "fp16") else (dtype,)  # one rate for both
    times: dict[tuple[int, int, int], list[float]] = {}
    for source in tables:
        for row in rows(f"gemm.{device}.{source}"):
            if row["dtype"] in wanted and row["op"] == op:
                times.setdefault((row["m"], row["n"], row["k"]), []).append(row["time_s"])
    if not times:
        return None
    return Points({shape: median(seconds) / model.seconds(*shape) for shape, seconds in times.items()})
