"""Search the space: array forms of rules, projection and ledger on whole grids, best bound first; then the exact scalar
score of the best.

1. Bound every group (pipeline size and switches), then the bases of the best ones (a split each), first by the prices of
   their layers, then exactly: see `bounds`.
   Groups that a budget leaves no time for are bounded by their products and attention alone.
2. In the order of the bounds: every form of a base, on the elements whose own bound can still matter. Legality, seconds,
   then bytes of what is left. Stop at the first bound that cannot matter any more.
3. Rescore exactly in the order found, until the next one cannot be better than the best exact one. Array and scalar
   form differ by no more than the certificate's tolerances; what is over the memory limit by less is rescored too.
"""

from __future__ import annotations

import heapq
import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primus_lint.tune.bounds import LEAST, WITHOUT, Bound, Bounds
from primus_lint.tune.certificate import MEMORY_TOLERANCE, Certificate
from primus_lint.tune.grid import Evaluator
from primus_lint.tune.keys import NUMBER, RECOMPUTE_KEYS, TUNED
from primus_lint.tune.objective import Objective
from primus_lint.tune.records import Elements, Found, Scored
from primus_lint.tune.rescore import Candidate, pick, rescore
from primus_lint.tune.space import Base, Pins, Space
from primus_lint.tune.switches import accelerations, improvements
from primus_lint.tune.what_if import with_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from primus_lint.hardware import Accelerator
    from primus_lint.pipeline import Subject
    from primus_lint.tune.space import Axis

__all__ = ["Candidate", "Certificate", "Found", "Objective", "Pins", "Result", "search"]


class Result(NamedTuple):
    """`best`: exactly scored candidates, the best first; `found`: everything that fits, by the array forms."""

    best: list[Candidate]
    certificate: Certificate
    found: list[Found]
    space: Space
    objective: Objective


def unrelated_errors(subject: Subject) -> frozenset[str]:
    """Codes of the recipe's own errors that no tuned key can cure: they do not disqualify a candidate."""
    return frozenset(
        finding.code
        for finding in subject.conditions
        if finding.severity == "error" and not set(finding.keys) & set(TUNED)
    )


def search(
    subject: Subject,
    accelerator: Accelerator,
    *,
    pins: Pins | None = None,
    kind: str = "tokens",
    min_headroom: float = 0.0,
    budget_s: float = float("inf"),
    reach: float | None = None,
    front: bool = False,
    seeds: Sequence[Candidate] = (),
) -> Result:
    """The best legal and fitting recipes at the subject's world size and global batch.

    `kind` is "tokens", "cost", "memory-headroom" or "minimal"; `min_headroom` the share of the device to leave free;
    `budget_s` ends the scan early (the certificate then has a gap). `front`: keep what is slower and needs less memory
    too, up to `reach` times the seconds of the best. `seeds` are recipes of the space that run, exactly scored (see
    `sweep.climb`): the search starts from the best of them. Needs a run, a device and a world size.
    """
    one = Search(subject, accelerator, pins or Pins(), kind, min_headroom, reach)
    one.start(seeds)
    one.front = front or kind != "tokens"
    return one.run(budget_s)


class Search:
    """One search. `run` does it."""

    def __init__(
        self,
        subject: Subject,
        accelerator: Accelerator,
        pins: Pins,
        kind: str,
        min_headroom: float,
        reach: float | None,
    ) -> None:
        assert subject.run is not None
        self.subject = subject
        self.accelerator = accelerator
        self.excused = unrelated_errors(subject)
        capacity = accelerator.visible_hbm_bytes * (1 - min_headroom)
        self.own = rescore(subject, capacity, {}, self.excused)
        self.objective = Objective(kind, capacity, self.own.iteration_s if self.own is not None else float("inf"))
        if reach is not None:
            self.objective.reach = reach
        if self.own is not None:
            self.objective.found(self.objective.primary(self.own.iteration_s, 0, self.own.peak_bytes))
        given = dict(subject.lowered.namespace.given)
        always = {} if kind == "minimal" else self._on(improvements(subject.run, given, pins), {})
        first = {} if kind == "minimal" else self._on(accelerations(subject.run, given, pins), always)
        self.evaluator = Evaluator(subject, accelerator, self.excused, frozenset((*RECOMPUTE_KEYS, *first)))
        self.space = Space(subject.run, given, accelerator, pins, always, first)
        self.certificate = Certificate()
        self.certificate.always = (*always, *first)
        self.found: list[Found] = []
        self.seeds: list[Candidate] = []
        self.front = True
        self.bounds = Bounds(self.evaluator, self.space, kind != "minimal")

    def start(self, seeds: Sequence[Candidate]) -> None:
        """Take recipes that run for known."""
        self.seeds = [seed for seed in seeds if seed.changes]
        for seed in self.seeds:
            if self.objective.kind != "memory-headroom" or seed.iteration_s <= self.objective.own_s:
                self.objective.found(self.objective.primary(seed.iteration_s, len(seed.changes), seed.peak_bytes))

    def _on(self, switches: list[dict[str, Any]], before: dict[str, Any]) -> dict[str, Any]:
        """Those of some switches that break no rule that the recipe keeps, on top of others."""
        broken = {finding.code for finding in self.subject.conditions if finding.severity == "error"}
        chosen: dict[str, Any] = {}
        for keys in switches:
            other = with_changes(self.subject, {**before, **chosen, **keys})
            if {finding.code for finding in other.conditions if finding.severity == "error"} <= broken:
                chosen.update(keys)
        return chosen

    def run(self, budget_s: float) -> Result:
        """Look at groups, then bases, the best bound first; then rescore."""
        start = time.perf_counter()
        certificate, bounds = self.certificate, self.bounds
        with np.errstate(all="ignore"):
            queue: list[tuple[float, int, Bound]] = []
            ticket = itertools.count()  # of equal bounds the first made comes first
            unbounded: list[list[Base]] = []  # groups that there was no time to bound
            for bases in bounds.grouped():
                certificate.bases += len(bases)
                certificate.space += self.recipes(bases)
                if time.perf_counter() - start > budget_s / 2:
                    unbounded.append(bases)
                else:
                    group = bounds.group(bases)
                    heapq.heappush(queue, (group.least, next(ticket), group))
            late = False
            while queue:
                least, _, item = queue[0]
                late = time.perf_counter() - start > budget_s
                if late:
                    certificate.gap = self.gap(least)
                if late or self.hopeless(least):
                    break
                heapq.heappop(queue)
                if item.removed is not None:
                    self.expand(item)
                    continue
                for base in item.bases:
                    if item.legal is None:
                        one = bounds.base(base)
                    else:
                        one = Bound(bounds.slowest_rank(base, item.legal), [base], None)
                    heapq.heappush(queue, (max(least, one.least), next(ticket), one))
            for _, _, item in queue:
                if late:
                    certificate.unseen += self.recipes(item.bases)
                else:
                    self.skip(item)
            if unbounded:
                certificate.unseen += sum(map(self.recipes, unbounded))
                certificate.gap = max(certificate.gap, self.gap(min(map(bounds.floor_s, unbounded))))
        certificate.undecided = tuple(sorted(self.evaluator.undecided))
        best = pick(self)
        certificate.seconds = time.perf_counter() - start
        return Result(best, certificate, self.found, self.space, self.objective)

    def recipes(self, bases: list[Base]) -> int:
        """How many recipes some bases stand for."""
        return sum(self.bounds.shape(base.axes).size * self.bounds.rows(base) for base in bases)

    def hopeless(self, bound: float) -> bool:
        limit = self.objective.changed_limit if self.objective.kind == "minimal" else self.objective.seconds_limit
        return bound > limit

    def gap(self, bound: float) -> float:
        """How much faster a recipe that was not looked at could be; 1 when there is nothing to compare with."""
        if self.objective.kind not in ("tokens", "cost") or self.objective.best == float("inf"):
            return 1.0
        return max(0.0, self.objective.best / max(bound, 1e-12) - 1)

    def count(self, base: Base, removed: dict[str, int]) -> int:
        """Enter what the rules removed of a base; how many recipes are left."""
        rows, left = self.bounds.rows(base), self.bounds.shape(base.axes).size
        for name, number in removed.items():
            self.certificate.drop(name, number * rows)
            left -= number
        return left * rows

    def skip(self, item: Bound) -> None:
        """Count bases that are not looked at any more."""
        for base in item.bases:
            removed = self.bounds.removed(base) if item.removed is None else item.removed
            self.certificate.bounded += self.count(base, removed)

    def expand(self, item: Bound) -> None:
        """Score every form of a base, on the elements whose own bound can still matter."""
        (base,), rows = item.bases, self.bounds.rows(item.bases[0])
        assert item.removed is not None
        self.count(base, item.removed)
        shape = self.bounds.shape(base.axes)
        indices = item.elements[item.seconds <= self.objective.seconds_limit]
        self.certificate.bounded += (len(item.elements) - len(indices)) * rows
        if not len(indices):
            return
        # which elements may fit with whole layers recomputed, and which without
        capacity = self.objective.capacity_bytes
        fits = self.bounds.fitting(base, indices, capacity, LEAST)
        self.certificate.drop("does not fit", int((~fits).sum()) * rows)
        indices = indices[fits]
        if not len(indices):
            return
        partly = self.bounds.fitting(base, indices, capacity, self.bounds.longest())
        sets = {True: Scored(shape, indices), False: Scored(shape, indices[partly])}
        forms = list(self.space.forms(base))
        for position, (form, axis) in enumerate(forms):
            full = form["recompute_granularity"] == "full"
            number = 1 if axis is None else len(axis.rows)
            if not full:
                self.certificate.drop("does not fit", (len(sets[True].indices) - len(sets[False].indices)) * number)
            if not len(sets[full].indices):
                continue
            given_up = any(key in form for key in self.space.given_up)
            fitting = self.score({**base.keys, **form}, axis, sets[full].elements, sets[full].prices[given_up])
            if form == WITHOUT and not self.front and fitting is not None:
                # what fits without recomputation need not be looked at with it
                done = sets[False].indices[fitting]
                sets = {kind: Scored(shape, np.setdiff1d(each.indices, done)) for kind, each in sets.items()}
                left = sum(1 if later is None else len(later.rows) for _, later in forms[position + 1 :])
                self.certificate.bounded += len(done) * left

    def score(self, keys: dict[str, Any], axis: Axis | None, elements: Elements, priced: dict[Any, Any]) -> Any:
        """Legality, seconds and bytes of some elements of one structure; keep what may matter. Returns which elements fit
        (a mask; of a structure with counts None), None when none does."""
        evaluator, certificate, objective = self.evaluator, self.certificate, self.objective
        certificate.structures += 1
        columns, changed = dict(elements.columns), elements.changed
        if axis is not None:
            numbers = [row[0] for row in axis.rows]
            columns[NUMBER] = np.array([numbers])
            changed = changed + (columns[NUMBER] != evaluator.given.get(NUMBER))
        changed = changed + sum(evaluator.given.get(key) != value for key, value in keys.items())
        shape = changed.shape
        names = evaluator.names(keys, columns)
        keep = evaluator.legal(names, evaluator.about_forms, shape, certificate.drop)
        certificate.slower += _take(keep, changed <= objective.changed_limit)
        if not keep.any():
            return None
        run = evaluator.run(names)
        seconds = evaluator.seconds(run, shape, priced)
        if seconds is None:
            certificate.drop("cannot be projected", int(keep.sum()))
            return None
        certificate.slower += _take(keep, seconds <= objective.seconds_limit)
        if not keep.any():
            return None
        where = np.nonzero(keep)
        narrow = {key: np.broadcast_to(column, shape)[where] for key, column in columns.items()}
        seconds, changed = seconds[where], changed[where]
        peak = evaluator.bytes(evaluator.run(evaluator.names(keys, narrow)), len(seconds))
        if peak is None:
            certificate.drop("memory cannot be accounted", len(seconds))
            return None
        fits = peak <= objective.capacity_bytes
        near = ~fits & (peak <= objective.capacity_bytes * (1 + MEMORY_TOLERANCE))
        certificate.drop("does not fit", int((~fits).sum()))
        certificate.near += int(near.sum())
        certificate.fitting += int(fits.sum())
        if fits.any():
            objective.found(float(objective.primary(seconds, changed, peak)[fits].min()))
        kept = fits | near
        if kept.any():
            counts = None if axis is None else np.array(numbers)[where[1]][kept]
            indices = elements.indices[where[0]][kept]
            self.found.append(Found(keys, elements.shape, indices, counts, seconds[kept], changed[kept], peak[kept]))
        if axis is not None or not fits.any():
            return None
        fitting = np.zeros(len(elements.indices), dtype=bool)
        fitting[where[0][fits]] = True
        return fitting


def _take(keep: Any, good: Any) -> int:
    """Narrow a mask in place; how many it lost."""
    before = int(keep.sum())
    keep &= good
    return before - int(keep.sum())


def _times(count: Callable[[str, int], None], rows: int) -> Callable[[str, int], None]:
    """Every element stands for `rows` recipes."""
    return lambda name, number: count(name, number * rows)
