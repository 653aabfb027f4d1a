"""Search against plain enumeration on random small spaces: `python -m tests.tune.optimality --cases 1000 --elements 300`.

Every recipe of a space is scored by the scalar path alone (rules, ledger, projection); the search must find the same
optimum, and its certificate must say so.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import NamedTuple

from primus_lint.subject import Subject
from primus_lint.tune.rescore import rescore
from primus_lint.tune.search import Pins, search, unrelated_errors
from primus_lint.tune.space import Space
from tests.tune import recipes


class Outcome(NamedTuple):
    """`problem` is empty when search and enumeration agree."""

    elements: int
    fitting: int
    problem: str


def draw(seed: int, elements: int) -> tuple[Subject, Pins]:
    """A recipe and limits whose space has at most so many recipes."""
    rng = random.Random(seed)
    while True:
        subject = recipes.drawn(rng)
        if subject.run is None or subject.accelerator is None or unrelated_errors(subject):
            continue
        pins = Pins(limits=recipes.small_limits(rng, subject))
        space = Space(subject.run, dict(subject.lowered.namespace.given), subject.accelerator, pins, {})
        if 1 < len(recipes.every_recipe(space, elements)) <= elements:
            return subject, pins


def compare(subject: Subject, pins: Pins, kind: str = "tokens") -> Outcome:
    """Search and enumerate one space."""
    assert subject.accelerator is not None
    result = search(subject, subject.accelerator, pins=pins, kind=kind)
    certificate, objective = result.certificate, result.objective
    every = recipes.every_recipe(result.space)
    excused = unrelated_errors(subject)
    exact = [rescore(subject, objective.capacity_bytes, changes, excused) for changes in every]
    own = rescore(subject, objective.capacity_bytes, {}, excused)
    found = [candidate for candidate in (*exact, own) if candidate is not None]
    if kind == "memory-headroom" and own is not None:
        found = [candidate for candidate in found if candidate.iteration_s <= own.iteration_s]
    size = len(every)
    parts = sum(certificate.removed.values()) + certificate.bounded + certificate.slower + certificate.fitting
    if certificate.space != size or parts != size:
        return Outcome(size, len(found), f"certificate: space {certificate.space}, sum {parts}, enumerated {size}")
    if not certificate.complete:
        return Outcome(size, len(found), certificate.statement())
    if not found or not result.best:
        agree = not found and not result.best
        return Outcome(size, len(found), "" if agree else f"{len(found)} fit, the search found {len(result.best)}")
    best = result.best[0]

    def value(seconds: float, changed: int, peak_bytes: int) -> tuple[float, float]:
        first = objective.primary(seconds, changed, peak_bytes)
        return float(f"{first:.9g}"), float(f"{objective.secondary(seconds, changed):.9g}")

    wanted = min(value(c.iteration_s, len(c.changes), c.peak_bytes) for c in found)
    mine = value(best.iteration_s, len(best.changes), best.peak_bytes)
    return Outcome(size, len(found), "" if mine == wanted else f"found {mine}, optimum {wanted}: {best.changes}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--elements", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="tokens", choices=("tokens", "minimal", "memory-headroom"))
    given = parser.parse_args()
    start, agreed, scored, fitting = time.perf_counter(), 0, 0, 0
    for seed in range(given.seed, given.seed + given.cases):
        outcome = compare(*draw(seed, given.elements), given.kind)
        agreed += not outcome.problem
        scored += outcome.elements
        fitting += outcome.fitting
        if outcome.problem:
            print(f"seed {seed}: {outcome.problem}")
    print(
        f"{agreed} of {given.cases} spaces agree ({given.kind}); {scored:,} recipes scored one by one, {fitting:,} of them "
        f"legal and fitting; {time.perf_counter() - start:.0f} s"
    )
    return int(agreed < given.cases)


if __name__ == "__main__":
    raise SystemExit(main())
