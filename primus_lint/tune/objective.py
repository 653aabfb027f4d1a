"""What the search looks for: the order of candidates, and what cannot win any more.

tokens           the fastest
minimal          the fewest changed keys, then the fastest
memory-headroom  the smallest peak memory of those that are not slower than the recipe as it stands, then the fastest
"""

from __future__ import annotations

from typing import Any

REACH = 1.02  # recipes slower than the best by more are not weighed for memory (alternatives are within 2 %)
OBJECTIVES = ("tokens", "memory-headroom", "cost")


class Objective:
    """`own_s`: seconds of the recipe as it stands, infinite when it does not run. `capacity_bytes`: of the device, less
    the headroom that is asked for."""

    def __init__(self, kind: str, capacity_bytes: float, own_s: float = float("inf"), reach: float = REACH) -> None:
        self.kind = kind
        self.capacity_bytes = capacity_bytes
        self.own_s = own_s
        self.reach = reach
        self.best: float = float("inf")  # of the primary figure, among what fits

    def primary(self, seconds: Any, changed: Any, peak_bytes: Any) -> Any:
        """The figure to minimise first (numbers or arrays)."""
        if self.kind == "minimal":
            return changed
        return peak_bytes if self.kind == "memory-headroom" else seconds

    def secondary(self, seconds: Any, changed: Any) -> Any:
        """The figure that decides between equals."""
        return changed if self.kind in ("tokens", "cost") else seconds

    @property
    def seconds_limit(self) -> float:
        """Recipes slower than this are of no interest."""
        if self.kind in ("tokens", "cost"):
            return self.best * self.reach
        return self.own_s if self.kind == "memory-headroom" else float("inf")

    @property
    def changed_limit(self) -> float:
        """Recipes with more changed keys than this are of no interest."""
        return self.best if self.kind == "minimal" else float("inf")

    def found(self, value: float) -> None:
        self.best = min(self.best, value)
