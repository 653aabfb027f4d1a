"""What training logs teach about the projection of a device (and software).

A log gives one number: log(measured / projected) of an iteration. Three kinds of work can be off for all recipes of a device
and software: compute, the host, communication. How far is known beforehand (`PRIOR`), and so is how far two recipes of one
source scatter around what is common to them (`RUN_SPREAD`). The factors are the most likely ones under both: they minimise
    sum over runs of (ratio - sum_k share_k * x_k)^2 / RUN_SPREAD^2  +  sum_k x_k^2 / PRIOR_k^2,     factor_k = exp(x_k)
with share_k the change of a run's log time with x_k. One run of pure compute moves compute half of the way; a kind that hardly
shows in a run is left alone; many runs are met.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.projection import cost
from primus_lint.projection.project import COMMON_SPREAD, project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import Run

KINDS: dict[str, frozenset[str]] = {
    "compute": cost.COMPUTE,
    "host": frozenset({cost.HOST}),
    "communication": frozenset({cost.TP, cost.CP, cost.EP, cost.FSDP, cost.PP, cost.DP}),
}
# Standard deviations of log factors before any log: what sources of published runs differ by (docs/accuracy.md), half of the
# span of host times, of collectives' bands; and of runs of one source around their common factor.
PRIOR = {"compute": COMMON_SPREAD, "host": 0.30, "communication": 0.20}
RUN_SPREAD = 0.10
MOST = (
    0.30  # a run that is further off says something of itself (another library, another node), and counts as this far
)
LIMIT = math.log(4.0)  # beyond, it is another recipe, device or size
PROBE = 0.1


class Lesson(NamedTuple):
    """One run: log(measured / projected), and the share of every kind in its log time."""

    ratio: float
    shares: dict[str, float]


def lesson(run: Run, measured_s: float, accelerator: Accelerator, node: NodeType | None = None) -> Lesson | None:
    """What a run of `measured_s` seconds an iteration says; None when it cannot be projected or is off by more than LIMIT."""
    before = project(run, accelerator, node, factors={})
    if before is None or measured_s <= 0 or abs(math.log(measured_s / before.iteration_s)) > LIMIT:
        return None
    shares = {}
    for name, kinds in KINDS.items():
        probed = project(run, accelerator, node, factors=dict.fromkeys(kinds, math.exp(PROBE)))
        assert probed is not None
        shares[name] = math.log(probed.iteration_s / before.iteration_s) / PROBE
    return Lesson(math.log(measured_s / before.iteration_s), shares)


def learn(lessons: Sequence[Lesson]) -> dict[str, float]:
    """Factors by class of `cost.CLASSES` from the runs of one device and software; none from none."""
    if not lessons:
        return {}
    names = list(KINDS)
    matrix = [[0.0] * len(names) for _ in names]
    right = [0.0] * len(names)
    for row, name in enumerate(names):
        matrix[row][row] = 1 / PRIOR[name] ** 2
    for ratio, shares in lessons:
        ratio = max(-MOST, min(MOST, ratio))
        for row, name in enumerate(names):
            share = shares.get(name, 0.0) / RUN_SPREAD**2
            right[row] += share * ratio
            for column, other in enumerate(names):
                matrix[row][column] += share * shares.get(other, 0.0)
    logs = _solved(matrix, right)
    return {kind: math.exp(log) for name, log in zip(names, logs, strict=True) for kind in sorted(KINDS[name])}


def factors(
    runs: Sequence[tuple[Run, float]], accelerator: Accelerator, node: NodeType | None = None
) -> dict[str, float]:
    """Factors by class from (run, measured seconds of an iteration) pairs of one device and software."""
    found = (lesson(run, seconds, accelerator, node) for run, seconds in runs)
    return learn([one for one in found if one is not None])


def by_kind(found: Mapping[str, float]) -> dict[str, float]:
    """The factors of "compute", "host" and "communication" from those by class."""
    return {name: found[min(kinds)] for name, kinds in KINDS.items() if min(kinds) in found}


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """x of a symmetric, positive definite matrix x = right, by elimination."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for pivot in range(size):
        for row in range(pivot + 1, size):
            ratio = rows[row][pivot] / rows[pivot][pivot]
            rows[row] = [a - ratio * b for a, b in zip(rows[row], rows[pivot], strict=True)]
    found = [0.0] * size
    for row in reversed(range(size)):
        rest = sum(rows[row][column] * found[column] for column in range(row + 1, size))
        found[row] = (rows[row][size] - rest) / rows[row][row]
    return found
