"""What training logs teach about the projection of a device (and software).

A log gives one number, log(measured / projected) of an iteration; which class of work is off is known only as far as some
rates are less sure than others. How sure is what the band of the projection says: a class may be off by x standard deviations
of its band, x normal (`cost.BAND` of them are the band's half-width), and by as much in every operation of it:
    ratio = sum over classes of weight_k x_k + what the run has for itself,      weight_k: change of its log time with x_k
Of x_k the most likely values are taken, and what the log leaves open of them stays in the band. A run's own part is the
spread of whole steps around their parts. The host, the network and what a device's software does to all compute (`cost.COMMON`)
are the same for every recipe; how far a kernel of one shape is off says nothing of another (between models of one source it
shows no correlation, docs/accuracy.md), so that classes of compute are learned by model. Runs that agree are met. Runs have tails: of several of one model, one
that disagrees counts less, and a run of another model that its own classes and the common ones do not explain says something of
itself.
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.projection import cost
from primus_lint.projection.compute import unfused
from primus_lint.projection.project import COMMON_SPREAD, project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import Run
    from primus_lint.projection.cost import Pair

RUN_SPREAD = COMMON_SPREAD / cost.BAND
ROUNDS, SETTLED = 30, 1e-4  # of weighting
LIMIT = math.log(4.0)  # beyond, it is another recipe, device or size


class Learned(NamedTuple):
    """What is known of the classes of `cost.KINDS` for one model: by how many standard deviations they are off, the share of
    their variances and covariances that is known, and from how many runs, of this model and of all."""

    offsets: Mapping[str, float] = MappingProxyType({})
    known: tuple[tuple[float, ...], ...] = ()
    same: int = 0
    runs: int = 0

    def explained(self, parts: dict[str, Pair], iteration_s: Any) -> Any:
        """Variance of a log time of these parts that is no longer open."""
        weights: dict[str, Any] = dict.fromkeys(cost.KINDS, 0.0)
        for kind, (seconds, spread) in parts.items():
            if kind in cost.KIND:
                weights[cost.KIND[kind]] = weights[cost.KIND[kind]] + spread / iteration_s / cost.BAND
            if kind in cost.COMPUTE:
                weights[cost.ALL_COMPUTE] = weights[cost.ALL_COMPUTE] + cost.COMMON * seconds / iteration_s
        found: Any = 0.0
        for row, one in zip(self.known, weights.values(), strict=False):
            for value, other in zip(row, weights.values(), strict=True):
                found = found + value * one * other
        return found

    def note(self) -> str:
        return f"calibrated on {self.runs} training run{'s' * (self.runs > 1)}, {self.same} of this model"


NOTHING = Learned()


class Lesson(NamedTuple):
    """One run: log(measured / projected), the model that it trained, and for every class of `cost.KINDS` how the log time
    changes with one standard deviation of it."""

    ratio: float
    model: str
    weights: tuple[float, ...]


def model_of(run: Run) -> str:
    """The facts of a model's layers that decide the shapes of their kernels. Nothing that tuning changes is among them but
    the way in which attention runs, so that recipes of a model are corrected alike."""
    model, moe = run.model, run.model.moe
    attention = "one kernel"
    if unfused(run):
        attention = f"products and a softmax {'fused' if run.kernels.masked_softmax_fusion else 'in steps'}"
    facts: list[Any] = [model.hidden_size, model.ffn_hidden_size, model.num_attention_heads, model.num_query_groups]
    facts += [model.kv_channels] if model.mla is None else [getattr(model.mla, name) for name in model.mla._fields]
    facts += [] if moe is None else [moe.router_topk, moe.ffn_hidden_size, moe.shared_expert_intermediate_size]
    return " ".join(map(str, [*facts, attention]))


def lesson(run: Run, measured_s: float, accelerator: Accelerator, node: NodeType | None = None) -> Lesson | None:
    """What a run of `measured_s` seconds an iteration says; None when it cannot be projected or is off by more than LIMIT."""
    before = project(run, accelerator, node, learned=NOTHING)
    if before is None or measured_s <= 0 or abs(math.log(measured_s / before.iteration_s)) > LIMIT:
        return None
    weights = []
    for name in cost.KINDS:
        probed = project(run, accelerator, node, learned=Learned({name: 1.0}))
        assert probed is not None
        weights.append(math.log(probed.iteration_s / before.iteration_s))
    return Lesson(math.log(measured_s / before.iteration_s), model_of(run), tuple(weights))


@lru_cache(maxsize=256)
def learn(lessons: tuple[Lesson, ...], model: str) -> Learned:
    """What the runs of one device and software say of a model's recipes."""
    if not lessons:
        return NOTHING
    place: dict[tuple[str, str], int] = {}
    rows = [
        [
            (place.setdefault(_column(kind, one.model), len(place)), weight)
            for kind, weight in zip(cost.KINDS, one.weights, strict=True)
            if weight
        ]
        for one in lessons
    ]
    trust = [1.0] * len(lessons)
    for _ in range(ROUNDS):
        precision = [[float(row == column) for column in range(len(place))] for row in range(len(place))]
        right = [0.0] * len(place)
        for row, one, weight in zip(rows, lessons, trust, strict=True):
            for at, value in row:
                share = value * weight / RUN_SPREAD**2
                right[at] += share * one.ratio
                for to, other in row:
                    precision[at][to] += share * other
        variance = _inverse(precision)
        found = [sum(a * b for a, b in zip(line, right, strict=True)) for line in variance]
        left = [one.ratio - sum(value * found[at] for at, value in row) for row, one in zip(rows, lessons, strict=True)]
        doubt = [1 + (rest / RUN_SPREAD) ** 2 for rest in left]
        least = min((value for one, value in zip(lessons, doubt, strict=True) if one.model == model), default=1.0)
        before = trust
        trust = [(least if one.model == model else 1.0) / value for one, value in zip(lessons, doubt, strict=True)]
        if max(abs(one - other) for one, other in zip(trust, before, strict=True)) < SETTLED:
            break
    mine = [place.get(_column(kind, model)) for kind in cost.KINDS]
    return Learned(
        {kind: 0.0 if at is None else found[at] for kind, at in zip(cost.KINDS, mine, strict=True)},
        tuple(
            tuple(0.0 if at is None or to is None else float(at == to) - variance[at][to] for to in mine) for at in mine
        ),
        sum(one.model == model for one in lessons),
        len(lessons),
    )


def _column(kind: str, model: str) -> tuple[str, str]:
    """What an offset holds for: a class, and the model that it was seen in ("": any)."""
    return kind, model if kind in cost.COMPUTE else ""


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Of a symmetric, positive definite matrix, by elimination."""
    size = len(matrix)
    rows = [[*row, *(float(place == index) for place in range(size))] for index, row in enumerate(matrix)]
    for pivot in range(size):
        rows[pivot] = [value / rows[pivot][pivot] for value in rows[pivot]]
        for row in range(size):
            if row != pivot:
                ratio = rows[row][pivot]
                rows[row] = [a - ratio * b for a, b in zip(rows[row], rows[pivot], strict=True)]
    return [row[size:] for row in rows]
