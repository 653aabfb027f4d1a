"""Times between measured shapes: the ratio of measured to modelled time, interpolated in log space.

A model (roofline) says how time depends on the shape; what measurements add is the ratio r = measured / modelled, which
changes slowly. At a shape,
    log r = (sum_i w_i log r_i + w_0 log r_median) / (sum_i w_i + w_0),    w_i = 1/d_i^2, w_0 = 1
with d_i the distance to measured shape i in log2 of the dimensions. At a measured shape the time is the measured one; far
from all of them it is the model times the median ratio of this device, software and number format.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.formula import is_scalar, median

if TYPE_CHECKING:
    from collections.abc import Sequence

EXACT, BETWEEN, FITTED = "measured", "interpolated", "fitted to own measurements"
NEAR = 1.0  # a factor of two in one dimension
NORMAL = 1.4826  # standard deviations per median absolute deviation, of a normal distribution
FEW = 5  # fewer rows tell less about their spread than the model's own band


class Ratio(NamedTuple):
    """A factor on the modelled time, its relative spread, and the tier ("" when there is nothing to say)."""

    factor: Any
    spread: Any
    tier: str


class Table:
    """Measured shapes of one operation, number format and layout of one device."""

    __slots__ = ("band", "exact", "logs", "middle", "points", "scatter", "spreads")

    def __init__(self, rows: Sequence[tuple[tuple[float, ...], float, float]], band: float) -> None:
        """`rows`: (dimensions, measured over modelled time, relative spread of the measurement), at least one.
        `band`: relative spread of the model."""
        self.points = [tuple(math.log2(value) for value in dimensions) for dimensions, _, _ in rows]
        self.logs = [math.log(ratio) for _, ratio, _ in rows]
        self.spreads = [spread for _, _, spread in rows]
        self.exact = {point: index for index, point in enumerate(self.points)}
        self.middle = median(self.logs)
        self.band = band
        off = NORMAL * median(abs(value - self.middle) for value in self.logs)
        self.scatter = off if len(rows) >= FEW else max(off, band)

    def at(self, *dimensions: Any) -> Ratio:
        """The ratio at a shape; dimensions may be arrays (their tier is then the least sure of all)."""
        if is_scalar(*dimensions):
            return self._at(tuple(float(value) for value in dimensions))
        import numpy as np

        columns = np.broadcast_arrays(*dimensions)
        stacked = np.stack([np.asarray(column, dtype=float).ravel() for column in columns], axis=1)
        shapes, places = np.unique(stacked, axis=0, return_inverse=True)
        found = [self._at(tuple(map(float, shape))) for shape in shapes]
        places = np.asarray(places).reshape(columns[0].shape)
        tier = max((ratio.tier for ratio in found), key=(EXACT, BETWEEN, FITTED).index)
        return Ratio(
            np.array([ratio.factor for ratio in found])[places],
            np.array([ratio.spread for ratio in found])[places],
            tier,
        )

    def _at(self, dimensions: tuple[float, ...]) -> Ratio:
        if min(dimensions) <= 0:
            return Ratio(1.0, self.band, FITTED)  # no such shape: a recipe that a rule rejects
        point = tuple(map(math.log2, dimensions))
        index = self.exact.get(point)
        if index is not None:
            return Ratio(math.exp(self.logs[index]), self.spreads[index], EXACT)
        weights, total, nearest, closest = 1.0, self.middle, math.inf, 0
        for number, other in enumerate(self.points):
            squared = 0.0
            for a, b in zip(point, other, strict=True):
                squared += (a - b) * (a - b)
            if squared < nearest:
                nearest, closest = squared, number
            weight = 1.0 / max(squared, 1e-12)
            weights += weight
            total += weight * self.logs[number]
        distance = math.sqrt(nearest)
        spread = self.spreads[closest] + self.scatter * min(distance / NEAR, 1.0)
        return Ratio(math.exp(total / weights), spread, BETWEEN if distance <= NEAR else FITTED)


def curve_at(sizes: Sequence[float], seconds: Sequence[float], size: Any) -> Any:
    """Seconds at a message size: linear in log-log between measured sizes, constant below, proportional above."""
    if is_scalar(size):
        inside = min(max(float(size), sizes[0]), sizes[-1])
        right = next((i for i, known in enumerate(sizes) if known >= inside), len(sizes) - 1)
        if right == 0 or sizes[right] == inside:
            value = seconds[right]
        else:
            low, high = math.log(sizes[right - 1]), math.log(sizes[right])
            share = (math.log(inside) - low) / (high - low)
            value = seconds[right - 1] ** (1 - share) * seconds[right] ** share
        return value * max(size / sizes[-1], 1.0)
    import numpy as np

    wanted = np.asarray(size, dtype=float)
    inside = np.clip(wanted, sizes[0], sizes[-1])
    found = np.exp(np.interp(np.log(inside), np.log(sizes), np.log(seconds)))
    return found * np.maximum(wanted / sizes[-1], 1.0)
