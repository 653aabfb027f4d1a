"""Factors that make the projection meet measured runs of one device (and software).

One run gives one number, so that one factor is fitted: on all compute classes together, communication and schedule left
as they are. What it corrects is what all kernels of a step share: clocks under sustained power, the kernels' generation,
cold caches.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from primus_lint.projection.cost import COMPUTE
from primus_lint.projection.project import project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import Run

LIMITS = (0.25, 4.0)  # a factor outside means that something else is wrong


def compute_factor(
    run: Run,
    measured_s: float,
    accelerator: Accelerator,
    node: NodeType | None = None,
    known: Mapping[str, float] | None = None,
) -> float | None:
    """The factor on compute at which the projected iteration takes `measured_s`; None when there is none in LIMITS.

    `known` are factors by class that hold already; this one comes on top. The iteration grows with the factor, so that
    bisection finds it (to 0.1 %).
    """
    low, high = LIMITS
    for bound, sign in ((low, 1), (high, -1)):
        projection = project(run, accelerator, node, factors=_on_top(known, bound))
        if projection is None or (projection.iteration_s - measured_s) * sign > 0:
            return None
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        projection = project(run, accelerator, node, factors=_on_top(known, middle))
        assert projection is not None
        low, high = (middle, high) if projection.iteration_s < measured_s else (low, middle)
    return float((low * high) ** 0.5)


def factors(
    runs: Sequence[tuple[Run, float]],
    accelerator: Accelerator,
    node: NodeType | None = None,
    known: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Factors by class from measured (run, seconds of an iteration) pairs of one device: the median over the runs, on
    top of `known` ones. Only the known ones when no run has a factor.
    """
    each = (compute_factor(run, seconds, accelerator, node, known) for run, seconds in runs)
    found = [factor for factor in each if factor is not None]
    return _on_top(known, median(found)) if found else dict(known or {})


def _on_top(known: Mapping[str, float] | None, factor: float) -> dict[str, float]:
    return {kind: factor * (known or {}).get(kind, 1.0) for kind in sorted(COMPUTE)}
