"""The cheapest edits that make a recipe fit: one step on one axis of the tuner's space, or two where one is not enough.

Each is judged exactly: the same rules, ledger and projection as the recipe itself. The price is in tokens/s against the
recipe as it stands, as if it had the memory.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune import safety
from primus_lint.tune.forms import forms
from primus_lint.tune.keys import NUMBER, PP, RECOMPUTE_KEYS, SP, TP
from primus_lint.tune.space import Pins, axes
from primus_lint.tune.splits import chunk_sizes, splits
from primus_lint.tune.switches import one_by_one
from primus_lint.tune.what_if import different, with_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.subject import Subject

PAIRED = 10  # moves, the most saving ones, of which pairs are tried
Changes = dict[str, Any]


class Edit(NamedTuple):
    """Some changed keys with which the recipe fits. `gain`: tokens/s over those of the recipe as it stands, minus 1; None
    where nothing can be projected. `high_bytes`: of the heaviest rank, by the high estimate."""

    changes: Changes
    safety: str
    gain: float | None
    high_bytes: int


class Judged(NamedTuple):
    axis: str
    edit: Edit
    fits: bool


def cheapest(subject: Subject, count: int = 3) -> list[Edit]:
    """At most so many edits that clear the device's limit by the high estimate, the cheapest first, safe ones before
    unsafe ones; of one axis the cheapest alone. Empty when no one or two steps do."""
    if subject.accelerator is None or subject.ledger is None:
        return []
    found = _judged(subject, _moves(subject))
    good = [judged for judged in found if judged.fits]
    if len({judged.axis for judged in good if judged.edit.safety == safety.SAFE}) < count:
        saving = sorted((judged for judged in found if not judged.fits), key=lambda judged: judged.edit.high_bytes)
        saving = [judged for judged in saving if judged.edit.safety == safety.SAFE or not good][:PAIRED]
        pairs = [
            (f"{one.axis} and {other.axis}", {**one.edit.changes, **other.edit.changes})
            for one, other in combinations(saving, 2)
            if not set(one.edit.changes) & set(other.edit.changes)
        ]
        good += [judged for judged in _judged(subject, pairs) if judged.fits]
    best: dict[str, Edit] = {}
    for judged in sorted(good, key=lambda judged: _price(judged.edit)):
        best.setdefault(judged.axis, judged.edit)
    return sorted(best.values(), key=_price)[:count]


def _price(edit: Edit) -> tuple[bool, float, int, str]:
    return edit.safety != safety.SAFE, -(edit.gain or 0.0), len(edit.changes), repr(edit.changes)


def _judged(subject: Subject, moves: Iterator[tuple[str, Changes]] | list[tuple[str, Changes]]) -> list[Judged]:
    """The legal moves that need less memory than the recipe does, each with its figures."""
    assert subject.accelerator is not None and subject.ledger is not None
    capacity, now = subject.accelerator.visible_hbm_bytes, subject.projection
    own = {finding.code for finding in subject.conditions if finding.severity == "error"}
    given = dict(subject.lowered.namespace.given)
    model = None if subject.run is None else subject.run.model
    out, seen = [], []
    for axis, changes in moves:
        if changes in seen:
            continue
        seen.append(changes)
        other = with_changes(subject, changes)
        if {finding.code for finding in other.conditions if finding.severity == "error"} - own:
            continue
        ledger = other.ledger
        if ledger is None or ledger.worst_rank.device_high_bytes >= subject.ledger.worst_rank.device_high_bytes:
            continue
        high = int(ledger.worst_rank.device_high_bytes)
        fits, gain = high <= capacity, None
        if fits and now is not None and other.projection is not None:
            gain = float(now.iteration_s) / float(other.projection.iteration_s) - 1
        kind = safety.SAFE if model is None else safety.class_of_all(changes.items(), given, model)
        out.append(Judged(axis, Edit(changes, kind, gain, high), fits))
    return out


def _moves(subject: Subject) -> Iterator[tuple[str, Changes]]:
    """(axis, changed keys): every single step of the space."""
    if subject.framework == "torchtitan":
        yield from _titan_moves(subject)
        return
    run, given = subject.run, dict(subject.lowered.namespace.given)
    assert run is not None and subject.accelerator is not None
    pins = Pins(unsafe=True)

    for axis in axes(run, given, pins):
        for row in axis.rows:
            changes = different(given, dict(zip(axis.keys, row, strict=True)))
            if changes:
                yield axis.keys[0], changes
                if changes.get(TP, 1) > 1 and not given.get(SP):
                    yield axis.keys[0], {**changes, SP: True}
    own = {PP: run.parallel.pp, **{key: given.get(key) for key in next(splits(run, given)) if key != PP}}
    for form, numbers in forms(run, given, chunk_sizes(own, run)):
        whole = {key: form.get(key) for key in RECOMPUTE_KEYS}
        for keys in [{**whole, NUMBER: number} for number in numbers] or [whole]:
            if changes := different(given, keys):
                yield f"{keys['recompute_granularity']} {keys['recompute_method']}", changes
    for split in splits(run, given):
        if split[PP] >= run.parallel.pp and (changes := different(given, split)):
            yield PP if split[PP] > run.parallel.pp else "layer split", changes
    for keys in one_by_one(run, given, subject.accelerator, pins):
        if "fp8" not in keys:  # another number format is no edit for memory's sake
            yield next(iter(keys)), keys


def _titan_moves(subject: Subject) -> Iterator[tuple[str, Changes]]:
    """Steps of a TorchTitan recipe at its global batch: smaller local batches, more recomputation, tensor parallelism."""
    from primus_lint.rules.functions import divisors

    names = subject.lowered.namespace
    local = names["lbs"]
    for size in divisors(local):
        if size < local:
            yield "training.local_batch_size", {
                "training.local_batch_size": size, "training.global_batch_size": names["gbs"]
            }  # fmt: skip
    mode = names["activation_checkpoint.mode"]
    selective = {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}
    if mode != "full":
        yield "activation_checkpoint.mode", {"activation_checkpoint.mode": "full"}
    if mode == "none":
        yield "activation_checkpoint.mode", selective
    if names["parallelism.fsdp_reshard_after_forward"] == "never":
        yield "parallelism.fsdp_reshard_after_forward", {"parallelism.fsdp_reshard_after_forward": "default"}
    if not names["compile.enable"]:
        yield "compile.enable", {"compile.enable": True}
    key, per_node = "parallelism.tensor_parallel_degree", subject.target.gpus_per_node
    for tp in divisors(per_node):
        if tp > names["tp"]:
            yield key, {key: tp}
