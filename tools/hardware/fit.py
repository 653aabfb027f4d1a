"""Three-parameter models fitted on measured rows, with the error on rows that the fit did not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.hardware.tables import keep_one_in

Array = NDArray[np.float64]
FEW = 40  # below this many rows: leave one out instead of a held-out fifth
HELD_ONE_IN = 5
CAP = 0.5  # log error from which a row counts no further
QUANTILES = (0.05, 0.95)
MINIMUM_BAND = (0.96, 1.05)  # parts of one kind differ by 5 % and more
# So few rows cannot show how shapes differ: the band of the 84 MI300X products, cliff included (656 to 448 of 607 TF).
VERY_FEW = 10
VERY_FEW_BAND = (0.92, 1.35)

Model = Callable[[Array], Array]


class Sample:
    """FLOPs over peak and bytes over bandwidth (both seconds), measured seconds, a weight, whether a row is held out.
    `quantize_s`: bytes of quantizing the activations over bandwidth, for rows that include it."""

    def __init__(self, math_s: Any, move_s: Any, time_s: Any, weight: Any, held: Any, quantize_s: Any = 0.0) -> None:
        self.math_s, self.move_s = np.asarray(math_s, float), np.asarray(move_s, float)
        self.quantize_s = np.broadcast_to(np.asarray(quantize_s, float), self.math_s.shape)
        self.time_s, self.weight = np.asarray(time_s, float), np.asarray(weight, float)
        self.held = np.asarray(held, bool)

    def __len__(self) -> int:
        return len(self.time_s)

    def take(self, keep: Any) -> Sample:
        parts = (self.math_s, self.move_s, self.time_s, self.weight, self.held, self.quantize_s)
        return Sample(*(part[keep] for part in parts))


def held_out(*shape: Any) -> bool:
    """A repeatable fifth of the shapes."""
    return keep_one_in(HELD_ONE_IN, "held", *shape)


def roofline(parameters: Array, sample: Sample) -> Array:
    """launch + max(math, moving) [+ quantizing]"""
    result: Array = parameters[0] + np.maximum(sample.math_s / parameters[1], sample.move_s / parameters[2])
    return result if len(parameters) == 3 else result + sample.quantize_s / parameters[3]


def additive(parameters: Array, sample: Sample) -> Array:
    """launch + math + moving"""
    result: Array = parameters[0] + sample.math_s / parameters[1] + sample.move_s / parameters[2]
    return result


def search(
    model: Callable[[Array, Sample], Array], sample: Sample, start: list[float], fixed: set[int], power: int
) -> Array:
    """Squares first, which have one bottom; then, with many rows of one source (`power` 1), the robust mean."""
    best = descend(model, sample, start, fixed, 2)
    return best if power == 2 or len(sample) < FEW else descend(model, sample, list(best), fixed, power)


def descend(
    model: Callable[[Array, Sample], Array], sample: Sample, start: list[float], fixed: set[int], power: int
) -> Array:
    """Coordinate search on the weighted mean of (capped) log errors to a power. Deterministic; all stay positive."""

    def loss(parameters: Array) -> float:
        error = np.minimum(np.abs(np.log(model(parameters, sample) / sample.time_s)), CAP)
        return float(np.average(error**power, weights=sample.weight))

    best = np.asarray(start, float)
    current, step = loss(best), 0.3
    while step > 5e-4:
        improved = False
        for index in range(len(best)):
            for factor in (1 + step, 1 / (1 + step)) if index not in fixed else ():
                trial = best.copy()
                trial[index] *= factor
                if index and trial[index] > 1.0:  # a share of a peak
                    continue
                value = loss(trial)
                if value < current - 1e-12:
                    best, current, improved = trial, value, True
        if not improved:
            step /= 2
    return best


def fit(
    model: Callable[[Array, Sample], Array],
    sample: Sample,
    start: list[float],
    fixed: set[int] | None = None,
    power: int = 1,
) -> dict[str, Any]:
    """Parameters, and mean absolute relative error and band on rows that were not fitted."""
    frozen = fixed or set()
    if len(sample) < FEW:
        parameters = search(model, sample, start, frozen, power)
        errors = []
        for index in range(len(sample)):
            others = np.arange(len(sample)) != index
            left = search(model, sample.take(others), start, frozen, power)
            errors.append(model(left, sample.take(~others))[0] / sample.time_s[index] - 1)
        error, held = np.asarray(errors), len(sample)
    else:
        parameters = search(model, sample.take(~sample.held), start, frozen, power)
        unseen = sample.take(sample.held)
        error, held = model(parameters, unseen) / unseen.time_s - 1, len(unseen)
    low, high = (1 / (1 + float(np.quantile(error, q))) for q in reversed(QUANTILES))
    least = VERY_FEW_BAND if len(sample) < VERY_FEW else MINIMUM_BAND
    return {
        "launch": _short(parameters[0]),
        "math": _short(parameters[1]),
        "bandwidth": _short(parameters[2]),
        **({"quantize": _short(parameters[3])} if len(parameters) > 3 else {}),
        "band": [_short(min(low, least[0])), _short(max(high, least[1]))],
        "rows": len(sample),
        "held": held,
        "mape": _short(float(np.mean(np.abs(error)))),
        "bias": _short(float(np.mean(error))),
        "kind": "fitted",
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")
