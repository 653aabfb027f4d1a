"""One change at a time from the recipe as it stands, each scored exactly: what a user would try first, and where the
search may start from when it has no time to look at everything.

Each axis is walked in the order of memory, so that what cannot help any more is not tried: upwards in what a rank holds
until it does not fit and needs more than the value before, and through counts of recomputed layers, the fewest first,
until one fits (more of them only cost time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune.forms import forms
from primus_lint.tune.keys import LAYOUT, NUMBER, PP, RECOMPUTE_KEYS, SP, TP, VPP
from primus_lint.tune.rescore import Candidate, verdict
from primus_lint.tune.space import axes
from primus_lint.tune.splits import chunk_sizes, splits, virtual
from primus_lint.tune.switches import one_by_one
from primus_lint.tune.what_if import different, with_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.subject import Subject
    from primus_lint.tune.space import Pins

Changes = dict[str, Any]
ROUNDS = 8  # sweeps of one climb


class Line(NamedTuple):
    """Values of one axis in the order in which they are tried; `dearer`: each saves memory and costs time."""

    axis: str
    ways: list[Changes]
    dearer: bool = False


class Single(NamedTuple):
    """One changed axis. `gain` in tokens/s against the recipe as it stands, None where one of both does not run; `why`
    says what is against it: a rule, or the lack of memory."""

    axis: str
    changes: Changes
    iteration_s: float | None
    gain: float | None
    peak_bytes: int | None
    why: str
    candidate: Candidate | None = None


def sweep(subject: Subject, pins: Pins, capacity_bytes: float, excused: frozenset[str]) -> list[Single]:
    """Every axis of the space by itself; what runs first, the fastest first, then the rest."""
    own_s = _seconds(subject, capacity_bytes, excused)
    found: list[Single] = []
    for line in lines(subject, pins):
        before: int | None = None
        for changes in line.ways:
            if any(changes == single.changes for single in found):
                continue
            single = _single(subject, line.axis, changes, capacity_bytes, excused, own_s)
            found.append(single)
            fits, peak = single.candidate is not None, single.peak_bytes
            grows = not fits and peak is not None and before is not None and peak > before
            if grows or (fits and line.dearer):
                break
            before = peak
    return sorted(found, key=_order)


def climb(
    subject: Subject, pins: Pins, capacity_bytes: float, excused: frozenset[str], start: Changes | None = None
) -> list[Candidate]:
    """Recipes that one sweep after another leads to, each from the best of the one before (where nothing fits, from what
    lacks least memory); all of them run, the last is the best. `start`: changed keys to begin with."""
    given, changes = subject.lowered.namespace.given, dict(start or {})
    here = with_changes(subject, changes) if changes else subject
    if here.run is None:
        return []
    first = _single(subject, "", changes, capacity_bytes, excused, None).candidate
    found = [] if first is None else [first]
    least = here.ledger.worst_rank.device_high_bytes if here.ledger is not None else float("inf")
    for _ in range(ROUNDS):
        singles = sweep(here, pins, capacity_bytes, excused)
        runs = singles[0].candidate if singles else None
        if runs is not None:
            merged = {**changes, **runs.changes}
            if found and runs.iteration_s >= found[-1].iteration_s:
                break
            changes = different(given, merged)
            found.append(runs._replace(changes=changes))
        else:
            known = [single for single in singles if single.peak_bytes is not None]
            roomy = min(known, key=lambda single: single.peak_bytes or 0, default=None)
            if roomy is None or roomy.peak_bytes is None or roomy.peak_bytes >= least:
                break
            least, changes = roomy.peak_bytes, {**changes, **roomy.changes}
        here = with_changes(subject, changes)
    return found


def _order(single: Single) -> tuple[bool, bool, float, int]:
    no_time = single.iteration_s is None
    return single.candidate is None, no_time, single.iteration_s or 0.0, len(single.changes)


def _seconds(subject: Subject, capacity_bytes: float, excused: frozenset[str]) -> float | None:
    own = _single(subject, "", {}, capacity_bytes, excused, None)
    return own.iteration_s if own.candidate is not None else None


def _single(
    subject: Subject, axis: str, changes: Changes, capacity_bytes: float, excused: frozenset[str], own_s: float | None
) -> Single:
    """The exact outcome of one change."""
    found = verdict(subject, capacity_bytes, changes, excused)
    seconds = found.iteration_s
    gain = own_s / seconds - 1 if found.candidate is not None and seconds is not None and own_s is not None else None
    return Single(axis, changes, seconds, gain, found.peak_bytes, found.why, found.candidate)


def lines(subject: Subject, pins: Pins) -> Iterator[Line]:
    """The axes of the space, each from the recipe's own value."""
    run, given = subject.run, dict(subject.lowered.namespace.given)
    assert run is not None and subject.accelerator is not None
    own = next(splits(run, given))

    def line(axis: str, ways: list[Changes], dearer: bool = False) -> Line:
        changed = [different(given, keys) for keys in ways]
        return Line(axis, [keys for keys in changed if _may(keys, pins)], dearer)

    for axis in axes(run, given, pins):
        rows = [dict(zip(axis.keys, row, strict=True)) for row in axis.rows]
        rows = [{**row, SP: True} if row.get(TP, 1) > 1 and not given.get(SP) else row for row in rows]
        at = next(
            (
                index
                for index, row in enumerate(axis.rows)
                if not different(given, dict(zip(axis.keys, row, strict=True)))
            ),
            0,
        )
        yield line(axis.keys[0], rows[:at][::-1])
        yield line(axis.keys[0], rows[at:])
    for form, numbers in forms(run, given, chunk_sizes(own, run)):
        whole = {key: form.get(key) for key in RECOMPUTE_KEYS}
        name = str(form.get("recompute_method") or form.get("recompute_granularity") or "recompute_granularity")
        yield line(name, [{**whole, NUMBER: number} for number in numbers] or [whole], dearer=bool(numbers))
    near: dict[int, Changes] = {}  # of every pipeline size the split that is most like the own one
    stages: dict[int, Changes] = {}  # of the own size the first split of every number of virtual stages
    for split in splits(run, given):
        size, apart = int(split[PP]), abs(virtual(split) - virtual(own))
        if size == own[PP] and apart == 0:
            yield line(LAYOUT, [split])
        elif size == own[PP]:
            stages.setdefault(virtual(split), split)
        elif size not in near or apart < abs(virtual(near[size]) - virtual(own)):
            near[size] = split
    yield line(PP, [near[size] for size in sorted(near, reverse=True) if size < own[PP]])
    yield line(PP, [near[size] for size in sorted(near) if size > own[PP]])
    yield line(VPP, [stages[number] for number in sorted(stages, reverse=True) if number < virtual(own)])
    yield line(VPP, [stages[number] for number in sorted(stages) if number > virtual(own)])
    for keys in one_by_one(run, given, subject.accelerator, pins):
        yield line(next(iter(keys)), [keys])


def _may(changes: Changes, pins: Pins) -> bool:
    return bool(changes) and pins.allows(*changes) and pins.within(changes)
