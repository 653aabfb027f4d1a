"""What training logs teach about the projection of a device (and software).

A log gives one number, log(measured / projected) of an iteration; which class of work is off is known only as far as some
rates are less sure than others. How sure is what the band of the projection says: a class may be off by x standard deviations
of its band, x normal (`cost.BAND` of them are the band's half-width), and by as much in every operation of it:
    ratio = sum over classes of weight_k x_k + what the run has for itself,      weight_k: change of its log time with x_k
Of x_k the most likely values are taken, and what the log leaves open of them stays in the band. A run's own part is the
spread of whole steps around their parts. The host, the network and what a device's software does to all compute (`cost.COMMON`)
are the same for every recipe; how far a kernel of one shape is off says nothing of another (between models of one source it
shows no correlation, docs/accuracy.md), so that classes of compute are learned by model.

Runs that agree are met. Runs have tails: of several of one model, one that disagrees counts less, and a run of another model
that its own classes and the common ones do not explain says something of itself.
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
    import numpy as np

    columns = [[_column(kind, one.model) for kind in cost.KINDS] for one in lessons]
    place = {column: at for at, column in enumerate(dict.fromkeys(name for names in columns for name in names))}
    weights = np.zeros((len(lessons), len(place)))
    for row, (names, one) in enumerate(zip(columns, lessons, strict=True)):
        weights[row, [place[name] for name in names]] = one.weights
    ratios = np.array([one.ratio for one in lessons])
    same = np.array([one.model == model for one in lessons])
    trust = np.ones(len(lessons))
    for _ in range(ROUNDS):
        shares = weights.T * (trust / RUN_SPREAD**2)
        variance = np.linalg.inv(np.eye(len(place)) + shares @ weights)
        found = variance @ (shares @ ratios)
        doubt = 1 + ((ratios - weights @ found) / RUN_SPREAD) ** 2
        before, trust = trust, np.where(same, doubt[same].min(initial=np.inf), 1.0) / doubt
        if abs(trust - before).max() < SETTLED:
            break
    open_ = np.eye(len(cost.KINDS))  # variances and covariances of the classes of this model
    offsets = dict.fromkeys(cost.KINDS, 0.0)
    mine = [(at, place[name]) for at, kind in enumerate(cost.KINDS) if (name := _column(kind, model)) in place]
    for at, column in mine:
        offsets[cost.KINDS[at]] = float(found[column])
        for to, other in mine:
            open_[at, to] = variance[column, other]
    known = tuple(map(tuple, (np.eye(len(cost.KINDS)) - open_).tolist()))
    return Learned(offsets, known, int(same.sum()), len(lessons))


def _column(kind: str, model: str) -> tuple[str, str]:
    """What an offset holds for: a class, and the model that it was seen in ("": any)."""
    return kind, model if kind in cost.COMPUTE else ""
