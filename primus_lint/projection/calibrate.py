"""What training logs teach about the projection of a device (and software).

A log gives one number, the ratio log(measured / projected) of an iteration. Several kinds of work can be off for all recipes
of a device and software: compute as a whole, each class of compute by itself, the host, communication. How far is known
beforehand (`PRIOR`), and so is how far recipes of one source scatter around what they share (`RUN_SPREAD`), with tails: some
runs say something of themselves alone. The factors are the most likely ones under normal priors and Cauchy's scatter, found
from the side of "nothing is off" by weighted least squares:
    sum over runs of w (ratio - sum_k share_k x_k)^2 / RUN_SPREAD^2  +  sum_k x_k^2 / PRIOR_k^2,   w = 2 / (1 + (left / RUN_SPREAD)^2)
with share_k the change of a run's log time with x_k and `left` what the factors leave of its ratio. A class of work takes
exp of the sum of its x_k times as long. One run moves the factors of what it mostly did about half of the way, less when it is
far off; what hardly shows in it is left alone; runs that agree are met.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.projection import cost
from primus_lint.projection.project import project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import Run

KINDS: dict[str, frozenset[str]] = {
    "compute": cost.COMPUTE,
    **{kind: frozenset({kind}) for kind in sorted(cost.COMPUTE)},
    "host": frozenset({cost.HOST}),
    "communication": frozenset({cost.TP, cost.CP, cost.EP, cost.FSDP, cost.PP, cost.DP}),
}
# Standard deviations of log factors before any log: sources of published runs differ by about 0.1 in their compute
# (docs/accuracy.md), classes of it more by themselves than together; half of the span of host times; bands of collectives. And
# the scatter of the runs of one source. That these values serve the published runs best was seen on the published runs.
PRIOR = {"compute": 0.05, **dict.fromkeys(sorted(cost.COMPUTE), 0.10), "host": 0.30, "communication": 0.20}
RUN_SPREAD = 0.10
ROUNDS = 30  # of weighting; the weights settle in ten
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
    logs = [0.0] * len(names)
    for _ in range(ROUNDS):
        matrix = [[1 / PRIOR[name] ** 2 if name == other else 0.0 for other in names] for name in names]
        right = [0.0] * len(names)
        for ratio, shares in lessons:
            left = ratio - sum(shares.get(name, 0.0) * log for name, log in zip(names, logs, strict=True))
            weight = 2 / (1 + (left / RUN_SPREAD) ** 2) / RUN_SPREAD**2
            for row, name in enumerate(names):
                share = shares.get(name, 0.0) * weight
                right[row] += share * ratio
                for column, other in enumerate(names):
                    matrix[row][column] += share * shares.get(other, 0.0)
        logs = _solved(matrix, right)
    found: dict[str, float] = {}
    for name, log in zip(names, logs, strict=True):
        for kind in sorted(KINDS[name]):
            found[kind] = found.get(kind, 1.0) * math.exp(log)
    return found


def factors(
    runs: Sequence[tuple[Run, float]], accelerator: Accelerator, node: NodeType | None = None
) -> dict[str, float]:
    """Factors by class from (run, measured seconds of an iteration) pairs of one device and software."""
    found = (lesson(run, seconds, accelerator, node) for run, seconds in runs)
    return learn([one for one in found if one is not None])


def by_kind(found: Mapping[str, float]) -> dict[str, float]:
    """The factors of every class of compute, of the host and of communication from those by class."""
    return {name: found[min(kinds)] for name, kinds in KINDS.items() if name != "compute" and min(kinds) in found}


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
