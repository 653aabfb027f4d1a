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

Model = Callable[[Array], Array]


class Sample:
    """FLOPs over peak and bytes over bandwidth (both seconds), measured seconds, a weight, and whether a row is held out."""

    def __init__(self, math_s: Any, move_s: Any, time_s: Any, weight: Any, held: Any) -> None:
        self.math_s, self.move_s = np.asarray(math_s, float), np.asarray(move_s, float)
        self.time_s, self.weight = np.asarray(time_s, float), np.asarray(weight, float)
        self.held = np.asarray(held, bool)

    def __len__(self) -> int:
        return len(self.time_s)

    def take(self, keep: Any) -> Sample:
        return Sample(self.math_s[keep], self.move_s[keep], self.time_s[keep], self.weight[keep], self.held[keep])


def held_out(*shape: Any) -> bool:
    """A repeatable fifth of the shapes."""
    return keep_one_in(HELD_ONE_IN, "held", *shape)


def roofline(parameters: Array, sample: Sample) -> Array:
    """launch + max(math, moving)"""
    result: Array = parameters[0] + np.maximum(sample.math_s / parameters[1], sample.move_s / parameters[2])
    return result


def additive(parameters: Array, sample: Sample) -> Array:
    """launch + math + moving"""
    result: Array = parameters[0] + sample.math_s / parameters[1] + sample.move_s / parameters[2]
    return result


def search(model: Callable[[Array, Sample], Array], sample: Sample, start: list[float], fixed: set[int]) -> Array:
    """Coordinate search on the weighted mean of squared (capped) log errors. Deterministic; parameters stay positive."""

    def loss(parameters: Array) -> float:
        error = np.minimum(np.abs(np.log(model(parameters, sample) / sample.time_s)), CAP)
        return float(np.average(error**2, weights=sample.weight))

    best = np.asarray(start, float)
    current, step = loss(best), 0.3
    while step > 5e-4:
        improved = False
        for index in range(len(best)):
            for factor in (1 + step, 1 / (1 + step)) if index not in fixed else ():
                trial = best.copy()
                trial[index] *= factor
                if index and trial[index] > 20.0:  # a share this far above 1 means that the term plays no part
                    continue
                value = loss(trial)
                if value < current - 1e-12:
                    best, current, improved = trial, value, True
        if not improved:
            step /= 2
    return best


def fit(
    model: Callable[[Array, Sample], Array], sample: Sample, start: list[float], fixed: set[int] | None = None
) -> dict[str, Any]:
    """Parameters, and mean absolute relative error and band on rows that were not fitted."""
    frozen = fixed or set()
    if len(sample) < FEW:
        parameters = search(model, sample, start, frozen)
        errors = []
        for index in range(len(sample)):
            others = np.arange(len(sample)) != index
            left = search(model, sample.take(others), start, frozen)
            errors.append(model(left, sample.take(~others))[0] / sample.time_s[index] - 1)
        error, held = np.asarray(errors), len(sample)
    else:
        parameters = search(model, sample.take(~sample.held), start, frozen)
        unseen = sample.take(sample.held)
        error, held = model(parameters, unseen) / unseen.time_s - 1, len(unseen)
    low, high = (1 / (1 + float(np.quantile(error, q))) for q in reversed(QUANTILES))
    return {
        "launch": _short(parameters[0]),
        "math": _short(parameters[1]),
        "bandwidth": _short(parameters[2]),
        "band": [_short(min(low, MINIMUM_BAND[0])), _short(max(high, MINIMUM_BAND[1]))],
        "rows": len(sample),
        "held": held,
        "mape": _short(float(np.mean(np.abs(error)))),
        "bias": _short(float(np.mean(error))),
        "kind": "fitted",
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")
