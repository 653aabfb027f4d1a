"""Which recipes the projection can tell apart, and which of several that it cannot is preferred."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.projection import Projection


def band_s(before: Projection, after: Projection) -> float:
    """By how much the seconds that a change saves may be overestimated.

    The errors of one class of operations (products, attention, each kind of communication) come from the same rates in
    both recipes, so they cancel but for the difference of its spreads; a class cannot have cost more than it was given.
    Classes are independent: their differences add in quadrature, as in `projection.cost`.
    """
    squares = 0.0
    for kind in {*before.spreads_s, *after.spreads_s}:
        apart = float(before.spreads_s.get(kind, 0.0)) - float(after.spreads_s.get(kind, 0.0))
        squares += min(abs(apart), float(before.breakdown_s.get(kind, 0.0)) if apart > 0 else float("inf")) ** 2
    return float(squares**0.5)


def told_apart(slower: Projection, faster: Projection) -> bool:
    """Whether the difference of two steps of the same work is more than the band of their comparison."""
    return float(slower.iteration_s) - float(faster.iteration_s) > band_s(slower, faster)


def model_parallel(tp: int, pp: int, cp: int) -> int:
    """GPUs that hold one replica of the model. Of recipes that cannot be told apart the one with the fewest is preferred:
    fewer ranks wait for each other, so less of its speed hangs on rates of communication that may be worse than known."""
    return tp * pp * cp
