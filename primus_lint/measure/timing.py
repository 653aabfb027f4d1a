"""Seconds of callables on a device: repeated, with medians and quartiles. Imports torch."""

from __future__ import annotations

import time
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from primus_lint.measure.device import Here

WARM_UP = 3
LEAST, MOST = 7, 101  # repetitions


class Timed(NamedTuple):
    """Median and quartiles of repeated seconds."""

    median_s: float
    low_s: float
    high_s: float
    repetitions: int

    def over(self, parts: int) -> Timed:
        """The same for one of `parts` equal pieces."""
        return Timed(self.median_s / parts, self.low_s / parts, self.high_s / parts, self.repetitions)

    def __str__(self) -> str:
        spread = (self.high_s - self.low_s) / 2 / self.median_s
        return f"{self.median_s * 1e3:.4g} ms, middle half within {spread:.1%}, {self.repetitions} repetitions"


def summary(seconds: Sequence[float]) -> Timed:
    """Median and quartiles of seconds (at least one)."""
    if len(seconds) == 1:
        return Timed(seconds[0], seconds[0], seconds[0], 1)
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    middle = median(seconds)
    return Timed(middle, min(low, middle), max(high, middle), len(seconds))


def phases(here: Here, steps: Sequence[Callable[[], Any]], budget_s: float) -> list[Timed]:
    """Seconds of every one of `steps`, which run one after the other, the round again and again for about `budget_s`.

    The first rounds warm up (allocator, kernel choice, clocks) and are not counted. Events on the device's own stream time
    a GPU, so that the launches of the host overlap as they do in training; a CPU is timed by the wall clock.
    """
    started = time.perf_counter()
    rounds = 0
    while rounds < WARM_UP or (time.perf_counter() - started < budget_s / 5 and rounds < MOST):
        for step in steps:
            step()
        rounds += 1
        here.synchronize()
    each = (time.perf_counter() - started) / rounds
    return repeated(here, steps, round(min(max(budget_s / max(each, 1e-9), LEAST), MOST)))


def repeated(here: Here, steps: Sequence[Callable[[], Any]], count: int) -> list[Timed]:
    """Seconds of every step in `count` rounds, without warming up."""
    clock = _Events(here) if here.kind == "cuda" else _Wall()
    for _ in range(count):
        clock.mark()
        for step in steps:
            step()
            clock.mark()
    return [summary(seconds) for seconds in clock.columns(len(steps), count)]


def once(here: Here, step: Callable[[], Any], budget_s: float) -> Timed:
    """Seconds of one callable."""
    return phases(here, [step], budget_s)[0]


class _Wall:
    def __init__(self) -> None:
        self.marks: list[float] = []

    def mark(self) -> None:
        self.marks.append(time.perf_counter())

    def columns(self, steps: int, count: int) -> list[list[float]]:
        return _columns(self.marks, steps, count, lambda start, stop: stop - start)


class _Events:
    def __init__(self, here: Here) -> None:
        self.here = here
        self.marks: list[Any] = []

    def mark(self) -> None:
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def columns(self, steps: int, count: int) -> list[list[float]]:
        self.here.synchronize()
        return _columns(self.marks, steps, count, lambda start, stop: start.elapsed_time(stop) * 1e-3)


def _columns(marks: list[Any], steps: int, count: int, between: Callable[[Any, Any], float]) -> list[list[float]]:
    """Seconds by step, of `count` rounds of `steps` + 1 marks each."""
    width = steps + 1
    return [
        [between(marks[i * width + step], marks[i * width + step + 1]) for i in range(count)] for step in range(steps)
    ]
