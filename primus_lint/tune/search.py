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

from primus_lint.tune.bounds import WITHOUT, Bound, Bounds
from primus_lint.tune.certificate import MEMORY_TOLERANCE, Certificate
from primus_lint.tune.forms import Family, families
from primus_lint.tune.grid import Evaluator, together
from primus_lint.tune.keys import NUMBER, RECOMPUTE_KEYS, TUNED
from primus_lint.tune.objective import REACH, Objective
from primus_lint.tune.records import Found, Scored
from primus_lint.tune.rescore import Candidate, pick, rescore
from primus_lint.tune.space import Base, Pins, Space
from primus_lint.tune.switches import accelerations, improvements
from primus_lint.tune.what_if import with_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from primus_lint.hardware import Accelerator
    from primus_lint.subject import Subject

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
        self.known: tuple[Any, ...] = ()  # the front so far: seconds, and the least bytes at no more seconds
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
                    more = self.expand(item)
                    if more is not None:
                        heapq.heappush(queue, (max(least, more.least), next(ticket), more))
                    continue
                for base in item.bases:
                    if item.legal is None:
                        one = bounds.base(base)
                    else:
                        one = Bound(bounds.slowest_rank(base, item.legal), [base], None)
                    heapq.heappush(queue, (max(least, one.least), next(ticket), one))
            for _, _, item in queue:
                if late:
                    certificate.unseen += self.rest(item)
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
        if item.least_bytes is not None:
            self.certificate.bounded += self.rest(item)
            return
        for base in item.bases:
            removed = self.bounds.removed(base) if item.removed is None else item.removed
            self.certificate.bounded += self.count(base, removed)

    def rest(self, item: Bound) -> int:
        """How many recipes of some bases are not counted yet."""
        if item.least_bytes is None:
            return self.recipes(item.bases)
        return len(item.elements) * self.bounds.rows(item.bases[0])

    def expand(self, item: Bound) -> Bound | None:
        """Look at a base: first at what its elements need at least, which makes its bound higher (then this is returned);
        then score every form, on the elements whose own bound can still matter."""
        (base,), rows = item.bases, self.bounds.rows(item.bases[0])
        assert item.removed is not None
        open_ = item.seconds <= self.objective.seconds_limit
        elements, seconds = item.elements[open_], item.seconds[open_]
        capacity = self.objective.capacity_bytes
        if item.least_bytes is None:
            self.count(base, item.removed)
            self.certificate.bounded += (len(item.elements) - len(elements)) * rows
            if not len(elements):
                return None
            least, partly = self.bounds.least_bytes(base, elements)
            fits = least <= capacity
            self.certificate.drop("does not fit", int((~fits).sum()) * rows)
            if not fits.any():
                return None
            bound = float(seconds[fits].min()) if self.bounds.by_time else item.least
            return item._replace(
                least=bound,
                elements=elements[fits],
                seconds=seconds[fits],
                least_bytes=least[fits],
                partly_bytes=partly[fits],
            )
        self.certificate.bounded += (len(item.elements) - len(elements)) * rows
        if len(elements):
            self.forms(base, elements, seconds, item.least_bytes[open_], item.partly_bytes[open_])
        return None

    def forms(self, base: Base, elements: Any, seconds: Any, least: Any, partly: Any) -> None:
        """Score the forms of a base on some elements, whose seconds and bytes in any form are at least those given (`partly`:
        in any without whole layers recomputed)."""
        certificate, capacity = self.certificate, self.objective.capacity_bytes
        may_fit = partly <= capacity
        # of each kind of form (whole layers recomputed or not) the elements to look at
        left = {True: np.ones(len(elements), dtype=bool), False: may_fit.copy()}
        quick = np.ones(len(elements), dtype=bool)  # with the fewest layers of all recomputed whole
        bytes_of = {True: least, False: partly}
        known: dict[tuple[bytes, bool], Scored] = {}
        own = {key: self.evaluator.given.get(key) for key in RECOMPUTE_KEYS}
        # the recipe's own form may cost no time either, and changes less than none does
        alone = (WITHOUT,) if own["recompute_granularity"] == "full" else (own, WITHOUT)
        for family in families(self.space.forms(base), alone=() if self.front else alone):
            number, full = family.size, family.full
            if not full:
                certificate.drop("does not fit", int((~may_fit).sum()) * number)
            counted = full and family.axis is not None
            chosen = left[full] & ~self.dominated(seconds, bytes_of[full]) & (quick if counted else True)
            certificate.bounded += int(((may_fit if not full else True) & ~chosen).sum()) * number
            if not chosen.any():
                continue
            given_up = any(key in family.forms[0] for key in self.space.given_up)
            name = chosen.tobytes(), given_up
            if name not in known:
                known[name] = self.bounds.scored(base, elements[chosen], given_up)
            outcome = self.score(base.keys, family, known[name], bytes_of[full][chosen])
            if family.forms[0] == WITHOUT and not self.front:
                # what fits without recomputation need not be looked at with it
                for kind in left:
                    left[kind][chosen] &= ~outcome.fits
            if counted:
                quick[chosen] &= ~outcome.slow  # all layers recomputed, or an acceleration given up, is slower still

    def dominated(self, seconds: Any, peak_bytes: Any) -> Any:
        """Which recipes are neither alternatives to the best nor on the front of speed against memory, as one that was found
        is at least as fast and as small."""
        seconds, peak_bytes = np.broadcast_arrays(seconds, peak_bytes)
        if self.objective.kind not in ("tokens", "cost") or not self.known:
            return np.zeros(seconds.shape, dtype=bool)
        fast, least = self.known
        place = np.searchsorted(fast, seconds, side="right") - 1
        smaller = least[np.maximum(place, 0)] * (1 + MEMORY_TOLERANCE) <= peak_bytes
        return (seconds > self.objective.best * REACH) & (place >= 0) & smaller

    def note(self, seconds: Any, peak_bytes: Any) -> None:
        """Take recipes that fit into the front."""
        if self.known:
            seconds, peak_bytes = (np.concatenate(pair) for pair in zip(self.known, (seconds, peak_bytes), strict=True))
        order = np.lexsort((peak_bytes, seconds))
        seconds, least = seconds[order], np.minimum.accumulate(peak_bytes[order])
        keep = np.concatenate([[True], least[1:] < least[:-1]])
        self.known = (seconds[keep], least[keep])

    def score(self, keys: dict[str, Any], family: Family, scored: Scored, least_bytes: Any) -> Outcome:
        """Legality, seconds and bytes of some elements in the forms of a family; keep what may matter."""
        evaluator, certificate, objective = self.evaluator, self.certificate, self.objective
        certificate.structures += 1
        elements = scored.elements
        columns = elements.columns
        nothing = np.zeros(len(elements.indices), dtype=bool)
        runs: list[Any] = []
        masks: list[Any] = []
        counts: list[Any] = []  # of changed keys
        for form in family.forms:
            said = {**keys, **form}
            own = elements.changed + sum(evaluator.given.get(key) != value for key, value in said.items())
            if family.axis is not None:
                columns = {**columns, NUMBER: np.array([[row[0] for row in family.axis.rows]])}
                own = own + (columns[NUMBER] != evaluator.given.get(NUMBER))
            names = evaluator.names(said, columns)
            mask = evaluator.legal(names, evaluator.about_forms, own.shape, certificate.drop)
            certificate.slower += _take(mask, own <= objective.changed_limit)
            masks.append(mask)
            counts.append(own)
            runs.append(evaluator.run(names) if mask.any() else None)
        places = [place for place, mask in enumerate(masks) if mask.any()]
        if not places:
            return Outcome(nothing, nothing)
        forms = [family.forms[place] for place in places]
        keep, changed = (np.concatenate([rows[place] for place in places], axis=1) for rows in (masks, counts))
        run = together([runs[place] for place in places])
        seconds = evaluator.seconds(run, keep.shape, scored.prices)
        if seconds is None:
            certificate.drop("cannot be projected", int(keep.sum()))
            return Outcome(nothing, nothing)
        slow = (seconds > objective.seconds_limit).all(axis=1)
        certificate.slower += _take(keep, seconds <= objective.seconds_limit)
        certificate.bounded += _take(keep, ~self.dominated(seconds, least_bytes[:, None]))
        if not keep.any():
            return Outcome(nothing, slow)
        peaks = evaluator.bytes(run, keep.shape, scored.fixed)
        if peaks is None:
            certificate.drop("memory cannot be accounted", int(keep.sum()))
            return Outcome(nothing, slow)
        at = np.nonzero(keep)
        peak, seconds, changed = peaks[at], seconds[at], changed[at]
        fits = peak <= objective.capacity_bytes
        near = ~fits & (peak <= objective.capacity_bytes * (1 + MEMORY_TOLERANCE))
        certificate.drop("does not fit", int((~fits).sum()))
        certificate.near += int(near.sum())
        certificate.fitting += int(fits.sum())
        if fits.any():
            objective.found(float(objective.primary(seconds, changed, peak)[fits].min()))
            if self.front:
                self.note(seconds[fits], peak[fits])
        kept = fits | near
        for place, form in enumerate(forms):
            mine = kept if family.axis is not None else kept & (at[1] == place)
            if mine.any():
                numbers = columns[NUMBER][0][at[1][mine]] if family.axis is not None else None
                indices = elements.indices[at[0][mine]]
                said = {**keys, **form}
                self.found.append(
                    Found(said, elements.shape, indices, numbers, seconds[mine], changed[mine], peak[mine])
                )
        fitting = nothing.copy()
        fitting[at[0][fits]] = True
        return Outcome(fitting, slow)


class Outcome(NamedTuple):
    """Masks of the elements that were scored: those that fit in some form, and those that are too slow in all of them."""

    fits: Any
    slow: Any


def _take(keep: Any, good: Any) -> int:
    """Narrow a mask in place; how many it lost."""
    before = int(keep.sum())
    keep &= good
    return before - int(keep.sum())
