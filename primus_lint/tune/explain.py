"""Why the winner wins: before and after by bottleneck, one step on every axis, the front of speed against memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primus_lint.projection import cost
from primus_lint.tune import safety
from primus_lint.tune.forms import forms
from primus_lint.tune.keys import ETP, LAYOUT, NUMBER, PP, RECOMPUTE_KEYS, SP, SPLIT_KEYS, TP, VPP
from primus_lint.tune.rescore import Candidate, rescore, verdict
from primus_lint.tune.splits import chunk_sizes, virtual
from primus_lint.tune.switches import one_by_one
from primus_lint.tune.what_if import different, with_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.projection import Projection
    from primus_lint.subject import Subject
    from primus_lint.tune.search import Result
    from primus_lint.tune.space import Pins

BOTTLENECKS: dict[str, tuple[str, ...]] = {
    "compute": (cost.GEMM, cost.GROUPED_GEMM, cost.ATTENTION, cost.MEMORY, cost.HOST),
    "recompute": (cost.RECOMPUTE,),
    "exposed TP": (cost.TP,),
    "exposed CP": (cost.CP,),
    "exposed EP": (cost.EP,),
    "exposed FSDP": (cost.FSDP,),
    "exposed DP": (cost.DP,),
    "exposed PP": (cost.PP,),
    "bubble": (cost.BUBBLE,),
    "optimizer": (cost.OPTIMIZER,),
    "contention and stragglers": (cost.CONTENTION, cost.STRAGGLER),
}
CLOSE = 0.03  # a neighbour that loses less belongs to the same basin
FRONT = 12  # points of the front


def bottlenecks(projection: Projection) -> dict[str, float]:
    """Seconds of a step by bottleneck; they add up to the step."""
    return {
        name: float(sum(projection.breakdown_s.get(kind, 0.0) for kind in kinds)) for name, kinds in BOTTLENECKS.items()
    }


class Neighbour(NamedTuple):
    """The winner after one step on one axis. `gain` in tokens/s against the winner (negative: it would cost); None when
    it does not run, and then `why` says the rule or the lack of memory."""

    axis: str
    changes: dict[str, Any]  # against the winner
    gain: float | None
    peak_bytes: int | None
    why: str


def sensitivity(subject: Subject, winner: Candidate, result: Result) -> list[Neighbour]:
    """One step on every axis of the space from the winner; of several ways to make a step the best."""
    out: list[Neighbour] = []
    for axis, ways in steps(winner, result):
        judged = [_judge(subject, winner, result, axis, changes) for changes in ways if changes]
        if judged:
            best = max(judged, key=lambda n: (n.gain is not None, n.gain or 0.0, n.peak_bytes is not None))
            if (best.gain, best.peak_bytes) == (0.0, winner.peak_bytes):
                continue  # without effect there
            if all(best.changes != other.changes for other in out):
                out.append(best)
    return out


def unsafe_steps(subject: Subject, winner: Candidate, result: Result, pins: Pins) -> list[Neighbour]:
    """What each change of numerics or compatibility alone would add to the winner; `pins` allow unsafe ones."""
    there = with_changes(subject, winner.changes)
    assert there.run is not None and there.accelerator is not None
    given = dict(there.lowered.namespace.given)
    ways = one_by_one(there.run, given, there.accelerator, pins)
    unsafe = [keys for keys in ways if safety.class_of_all(keys.items(), given, there.run.model) == safety.UNSAFE]
    found = [_judge(subject, winner, result, next(iter(keys)), keys) for keys in unsafe]
    return sorted(found, key=lambda each: -(each.gain or 0.0))


def _judge(subject: Subject, winner: Candidate, result: Result, axis: str, changes: dict[str, Any]) -> Neighbour:
    mine = frozenset(finding.code for finding in winner.errors)
    found = verdict(subject, result.objective.capacity_bytes, {**winner.changes, **changes}, mine)
    if found.iteration_s is None:
        return Neighbour(axis, changes, None, None, found.why)
    gain = winner.iteration_s / found.iteration_s - 1
    if found.candidate is None:
        return Neighbour(axis, changes, None, found.peak_bytes, f"{found.why} ({gain:+.1%} if it did)")
    return Neighbour(axis, changes, gain, found.peak_bytes, "")


Ways = list[dict[str, Any]]  # changed keys against the winner


def steps(winner: Candidate, result: Result) -> Iterator[tuple[str, Ways]]:
    """(axis, ways to make one step on it): neighbours on ordered axes, every alternative on the others."""
    space = result.space
    now = {**space.given, **winner.changes}
    for axis in space.axes:
        if now.get(TP) == 1 and axis.keys[0] in (SP, ETP):
            continue  # without effect there
        rows = [dict(zip(axis.keys, row, strict=True)) for row in axis.rows]
        at = next((i for i, row in enumerate(rows) if all(_same(now.get(k), v) for k, v in row.items())), None)
        near = range(len(rows)) if at is None or len(axis.keys) > 1 else (at - 1, at + 1)
        for index in near:
            if 0 <= index < len(rows) and index != at:
                yield axis.keys[0], [{key: v for key, v in rows[index].items() if not _same(now.get(key), v)}]
    yield from _splits(now, result)
    yield from _forms(now, result)
    for group in space.groups:
        for keys in group[1:]:
            different = {key: value for key, value in keys.items() if not _same(now.get(key), value)}
            yield next(iter(keys)), [different or {key: space.given.get(key) for key in keys}]


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(b, bool) and bool(a) is b)


def _splits(now: dict[str, Any], result: Result) -> Iterator[tuple[str, Ways]]:
    """The next smaller and larger pipeline, fewer and more virtual stages, and the other splits of the same size."""
    pairs: dict[tuple[int, int], Ways] = {}
    for base in result.space.bases():
        keys = {key: base.keys[key] for key in (PP, *SPLIT_KEYS)}
        changes = different(now, keys)
        group = pairs.setdefault((int(keys[PP]), virtual(keys)), [])
        if changes not in group:
            group.append(changes)
    here = (int(now[PP]), virtual(now))
    for pp in _beside(sorted({pp for pp, _ in pairs}), here[0]):
        near = min((vpp for size, vpp in pairs if size == pp), key=lambda vpp: abs(vpp - here[1]))
        yield PP, pairs[pp, near]
    for vpp in _beside(sorted({vpp for pp, vpp in pairs if pp == here[0]}), here[1]):
        yield VPP, pairs[here[0], vpp]
    yield LAYOUT, pairs.get(here, [])


def _beside(values: list[int], value: int) -> list[int]:
    """The neighbours of a value in an ascending list."""
    if value not in values:
        return []
    at = values.index(value)
    return [values[index] for index in (at - 1, at + 1) if 0 <= index < len(values)]


def _forms(now: dict[str, Any], result: Result) -> Iterator[tuple[str, Ways]]:
    """The other forms of recomputation; of one with counts the smallest, or the neighbours of the winner's."""
    split = {key: now.get(key) for key in (PP, *SPLIT_KEYS)}
    for form, numbers in forms(result.space.run, result.space.given, chunk_sizes(split, result.space.run)):
        whole = {key: form.get(key) for key in RECOMPUTE_KEYS}
        if not numbers:
            yield "recompute_granularity", [different(now, whole)]
            continue
        own = now.get(NUMBER)
        same = now.get("recompute_method") == form["recompute_method"] and isinstance(own, int)
        for number in _beside(numbers, own) if same and isinstance(own, int) else numbers[:1]:
            yield NUMBER if same else "recompute_granularity", [different(now, {**whole, NUMBER: number})]


def shape_of(neighbours: list[Neighbour]) -> str:
    """Sharp peak or broad basin, in words."""
    runs = [n.gain for n in neighbours if n.gain is not None]
    close = [gain for gain in runs if gain >= -CLOSE]
    if not runs:
        return "no neighbour runs"
    word = "a broad basin" if 2 * len(close) >= len(runs) else "a sharp peak"
    return f"{word}: {len(close)} of {len(runs)} neighbours that run are within {CLOSE:.0%}"


def front(subject: Subject, result: Result, excused: frozenset[str]) -> list[Candidate]:
    """Recipes of which no other is both faster and smaller, exactly scored, the fastest first.

    Among what the search weighed (not slower than the best by more than its reach) and the best recipes of all.
    """
    if not result.found:
        return []
    seconds = np.concatenate([found.seconds for found in result.found])
    peak = np.concatenate([found.peak_bytes for found in result.found])
    record = np.concatenate([np.full(len(found.seconds), index) for index, found in enumerate(result.found)])
    position = np.concatenate([np.arange(len(found.seconds)) for found in result.found])
    order = np.lexsort((peak, seconds))
    least = np.minimum.accumulate(peak[order])
    best = np.concatenate([[True], least[1:] < least[:-1]]) & (peak[order] <= result.objective.capacity_bytes)
    best &= seconds[order] <= seconds.min() * result.objective.reach
    rows = order[best]
    # at most FRONT points, evenly over the range of memory, both ends among them
    if len(rows) > FRONT:
        wanted = np.linspace(float(peak[rows[0]]), float(peak[rows[-1]]), FRONT)
        rows = rows[sorted({int(np.argmin(np.abs(peak[rows] - value))) for value in wanted})]
    out = []
    for row in rows:
        changes = result.found[int(record[row])].changes(int(position[row]), result.space.given)
        candidate = rescore(subject, result.objective.capacity_bytes, changes, excused)
        if candidate is not None:
            out.append(candidate)
    # what was found beyond the space may be faster and smaller than all of these
    return pareto([*out, *result.best])


def pareto(candidates: list[Candidate]) -> list[Candidate]:
    """Those of which no other is both faster and smaller, the fastest first."""
    out = sorted(candidates, key=lambda each: (each.iteration_s, each.peak_bytes))
    return [each for index, each in enumerate(out) if all(each.peak_bytes < other.peak_bytes for other in out[:index])]
