"""Seconds by class of operation, each with a half-width of its band.

A `Cost` maps a class name (see CLASSES) to a pair `(seconds, spread_seconds)`. Within a class the spreads add, because
a rate that is off is off for every operation of its class; between classes they are independent and add in quadrature.
Values are Python numbers or broadcast NumPy arrays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from primus_lint.formula import beside, maximum, minimum, sqrt

if TYPE_CHECKING:
    from collections.abc import Callable

# Classes in the order in which breakdowns print them.
GEMM = "gemm"
GROUPED_GEMM = "grouped_gemm"
ATTENTION = "attention"
MEMORY = "memory_bound"
HOST = "host"  # the host cannot launch kernels fast enough
CONTENTION = "contention"  # compute slowed by communication that runs beside it
STRAGGLER = "straggler"  # a synchronous step waits for the slowest of all devices
TP = "tp"
CP = "cp"
EP = "ep"
PP = "pp"
FSDP = "fsdp"
DP = "dp"
OPTIMIZER = "optimizer"
BUBBLE = "bubble"
RECOMPUTE = "recompute"

CLASSES = (
    GEMM, GROUPED_GEMM, ATTENTION, MEMORY, HOST, RECOMPUTE, CONTENTION, STRAGGLER, TP, CP, EP, FSDP, PP, BUBBLE, DP, OPTIMIZER,
)  # fmt: skip
COMPUTE = frozenset({GEMM, GROUPED_GEMM, ATTENTION, MEMORY})

# What calibration tells apart (`projection.calibrate`): the classes of compute, all of them together, the host, communication.
ALL_COMPUTE = "compute"
KINDS = (ALL_COMPUTE, GEMM, GROUPED_GEMM, ATTENTION, MEMORY, HOST, "communication")
KIND = dict.fromkeys((TP, CP, EP, FSDP, PP, DP), "communication") | {kind: kind for kind in (*sorted(COMPUTE), HOST)}
BAND = 1.645  # half-width of a band in standard deviations: bands are to hold nine of ten
# Standard deviation of what a device's software does to the log time of all compute alike: the in-situ ratios that single
# sources ask for lie within 1.20 and 1.35 (hardware_db/rates.yaml, low and high of 16-bit products)
COMMON = 0.5 * math.log(1.35 / 1.20) / BAND

Pair = tuple[Any, Any]
ZERO: Pair = (0.0, 0.0)


class Cost:
    """Seconds by class. `cost.parts[class] == (seconds, spread_seconds)`; an absent class costs nothing."""

    __slots__ = ("parts",)

    def __init__(self, parts: dict[str, Pair] | None = None) -> None:
        self.parts: dict[str, Pair] = {} if parts is None else parts

    def add(self, kind: str, pair: Pair, times: Any = 1) -> None:
        """Add `times` operations of `pair` to a class, in place."""
        if not (isinstance(times, int) and times == 1):
            pair = (pair[0] * times, pair[1] * times)
        old = self.parts.get(kind)
        self.parts[kind] = pair if old is None else (old[0] + pair[0], old[1] + pair[1])

    def merge(self, other: Cost, times: Any = 1) -> None:
        """Add another cost, in place."""
        for kind, pair in other.parts.items():
            self.add(kind, pair, times)

    def scaled(self, times: Any) -> Cost:
        return Cost({kind: (pair[0] * times, pair[1] * times) for kind, pair in self.parts.items()})

    def each(self, change: Callable[[Any], Any]) -> Cost:
        """A cost whose numbers are all changed in the same way."""
        return Cost({kind: (change(pair[0]), change(pair[1])) for kind, pair in self.parts.items()})

    def __add__(self, other: Cost) -> Cost:
        result = Cost(dict(self.parts))
        result.merge(other)
        return result

    @property
    def seconds(self) -> Any:
        total: Any = 0.0
        for pair in self.parts.values():
            total = total + pair[0]
        return total

    def of(self, kinds: frozenset[str]) -> Any:
        """Seconds of the named classes alone."""
        total: Any = 0.0
        for kind, pair in self.parts.items():
            if kind in kinds:
                total = total + pair[0]
        return total

    @property
    def spread_seconds(self) -> Any:
        """Half-width of the band of the whole: classes in quadrature."""
        total: Any = 0.0
        for pair in self.parts.values():
            total = total + pair[1] * pair[1]
        return sqrt(total)


def beside_each_other(costs: list[Cost]) -> Cost:
    """Costs of a grid side by side along its last axis; one alone as it is."""
    if len(costs) == 1:
        return costs[0]
    kinds = dict.fromkeys(kind for one in costs for kind in one.parts)
    pairs = {kind: [one.parts.get(kind, ZERO) for one in costs] for kind in kinds}
    return Cost({kind: (beside([s for s, _ in each]), beside([d for _, d in each])) for kind, each in pairs.items()})


def plus(one: Pair, other: Pair) -> Pair:
    """One after the other."""
    return one[0] + other[0], one[1] + other[1]


def exposed(communication: Pair, compute: Pair) -> Pair:
    """What is left of a communication that runs beside `compute`, with the spread it keeps."""
    seconds = maximum(communication[0] - compute[0], 0.0)
    return seconds, minimum(communication[1], seconds + communication[1] * 0.5)
