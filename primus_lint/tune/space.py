"""The space that the tuner looks at: structures times broadcast axes.

A structure fixes what formulas cannot broadcast (pipeline size, virtual stages, layer split, form of recomputation,
how context-parallel ranks and experts communicate, sharding, number formats); inside it the degrees, the micro-batch,
the number of recomputed layers and the overlap switches are axes. World size, global batch, sequence length and the
model never change.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.rules.functions import divisors
from primus_lint.tune import checkpoint, safety
from primus_lint.tune.forms import forms
from primus_lint.tune.keys import (
    CP,
    CP_TYPE,
    EP,
    ETP,
    FSDP2,
    GRAD_OVERLAP,
    MBS,
    NUMBER,
    PARAM_OVERLAP,
    SHARDED,
    SP,
    SPLIT_KEYS,
    TP,
    TP_OVERLAP,
    TUNED,
)
from primus_lint.tune.splits import chunk_sizes, splits
from primus_lint.tune.switches import alternatives
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from primus_lint.hardware import Accelerator
    from primus_lint.ir.run import Run

__all__ = ["TUNED", "Axis", "Base", "Pins", "Space"]

MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
CONTEXTS = (1, 2, 4, 8, 16)
TOKENS_AT_LEAST = 1024  # of one sequence on a context-parallel rank


class Pins(NamedTuple):
    """What the search may not do: change `keys`, leave `limits` (key -> allowed values), or (unless `unsafe`) change
    numerics and compatibility."""

    keys: frozenset[str] = frozenset()
    limits: Mapping[str, tuple[Any, ...]] = {}
    unsafe: bool = False

    def allows(self, *keys: str) -> bool:
        return not any(key in self.keys for key in keys)

    def within(self, keys: Mapping[str, Any]) -> bool:
        """Whether values respect the limits."""
        return all(value in self.limits[key] for key, value in keys.items() if key in self.limits)


class Axis(NamedTuple):
    """A broadcast axis: keys that change together, and the rows of their values."""

    keys: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Base(NamedTuple):
    """A split and switches: what one grid of recipes shares but for its form of recomputation."""

    keys: dict[str, Any]
    axes: tuple[Axis, ...]
    chunks: tuple[int, ...]  # numbers of layers that its chunks have


class Space:
    """The space of one recipe at one world size. `given` are its arguments as asked for.

    `always` are switches that are on in every candidate, `first` those that are on unless a form gives them up.
    """

    def __init__(
        self,
        run: Run,
        given: dict[str, Any],
        accelerator: Accelerator,
        pins: Pins,
        always: dict[str, Any],
        first: dict[str, Any] | None = None,
    ) -> None:
        self.run = run
        self.given = given
        self.pins = Pins(pins.keys | frozen(run, given, pins), pins.limits, pins.unsafe)
        self.always = {**always, **(first or {})}
        self.given_up = {key: given.get(key) for key in first or {}}
        self.groups = alternatives(run, given, accelerator, self.pins)
        self.axes = axes(run, given, self.pins)

    def bases(self) -> Iterator[Base]:
        """Every split with every combination of switches; the recipe's own first."""
        given, pins = self.given, self.pins
        contexts = next(axis for axis in self.axes if axis.keys == (CP,))
        several = contexts._replace(rows=tuple(row for row in contexts.rows if row[0] > 1))
        crossing = tuple(several if axis is contexts else axis for axis in self.axes)
        for split in splits(self.run, given):
            changed = different(given, split)
            if not pins.allows(*changed) or not pins.within(split):
                continue
            chunks = chunk_sizes(split, self.run)
            for combined in itertools.product(*self.groups):
                keys = dict(split)
                for part in combined:
                    keys.update(part)
                if not pins.within(keys):
                    continue
                chosen = crossing if CP_TYPE in keys else self.axes
                if all(axis.rows for axis in chosen):
                    yield Base({**keys, **self.always}, chosen, chunks)

    def forms(self, base: Base) -> Iterator[tuple[dict[str, Any], Axis | None]]:
        """Forms of a base, each with the axis of its counts (None without one): the forms of recomputation, and all of
        them again without the accelerations."""
        recomputing = list(self._recomputing(base))
        yield from recomputing
        if self.given_up:
            yield from (({**form, **self.given_up}, axis) for form, axis in recomputing)

    def _recomputing(self, base: Base) -> Iterator[tuple[dict[str, Any], Axis | None]]:
        for form, numbers in forms(self.run, self.given, base.chunks):
            changed = list(different(self.given, form))
            if numbers:
                form = {key: value for key, value in form.items() if key != NUMBER}
                allowed = [n for n in numbers if n in self.pins.limits.get(NUMBER, (n,))]
                if NUMBER in self.pins.keys:
                    allowed = [n for n in numbers if n == self.given.get(NUMBER)]
                changed = [key for key in changed if key != NUMBER]
                if allowed and self.pins.allows(*changed) and self.pins.within(form):
                    yield form, Axis((NUMBER,), tuple((n,) for n in allowed))
            elif self.pins.allows(*changed) and self.pins.within(form):
                yield form, None


def frozen(run: Run, given: dict[str, Any], pins: Pins) -> frozenset[str]:
    """Keys that may not change because a checkpoint is loaded that would not open (unless unsafe changes are allowed)."""
    if pins.unsafe or not checkpoint.loads(given):
        return frozenset()
    out: set[str] = set()
    if not checkpoint.is_resharded(given):
        out.update((*checkpoint.MODEL_DEGREES, *SPLIT_KEYS))
    out.update(key for key in (SHARDED, FSDP2) if checkpoint.breaks(key, True, given, run.model))
    return frozenset(out)


def axes(run: Run, given: dict[str, Any], pins: Pins) -> tuple[Axis, ...]:
    """The broadcast axes: divisors of what degrees must divide, the recipe's own values always among them."""
    world, per_node = int(run.target.world_size or 0), run.target.gpus_per_node
    sizes = [d for d in divisors(run.model.num_attention_heads) if d <= min(per_node, world) and world % d == 0]
    if not pins.unsafe:
        sizes = [tp for tp in sizes if not checkpoint.breaks(TP, tp, given, run.model)]
    length = run.batch.seq_length
    contexts = [cp for cp in CONTEXTS if world % cp == 0 and length % (2 * cp) == 0 and length // cp >= TOKENS_AT_LEAST]
    batch = int(run.batch.global_batch_size or 0)
    micro = [size for size in MICRO_BATCHES if batch % size == 0]
    if safety.batch_is_trained(run.model) and not pins.unsafe:
        micro = []
    found = [
        _axis(TP, sizes, run.parallel.tp, pins),
        _axis(CP, contexts, run.parallel.cp, pins),
        _axis(MBS, micro, run.batch.micro_batch_size, pins),
    ]
    moe = run.model.moe
    if moe is not None:
        experts = [d for d in divisors(moe.num_experts) if d <= world and world % d == 0]
        found.append(_axis(EP, experts, run.parallel.ep, pins))
        own = given.get(ETP)
        # None: as tensor parallelism
        found.append(_axis(ETP, [1] if own is not None else [1, None], own, pins))
    found.append(_switches((SP, TP_OVERLAP), given, pins, ((False, False), (True, False), (True, True))))
    found.append(_switches((GRAD_OVERLAP, PARAM_OVERLAP), given, pins, ((False, False), (True, False), (True, True))))
    return tuple(found)


def _axis(key: str, values: list[Any], own: Any, pins: Pins) -> Axis:
    if not pins.allows(key):
        return Axis((key,), ((own,),))
    every = sorted({*values, own}, key=lambda value: -1 if value is None else value)
    return Axis((key,), tuple((value,) for value in every if pins.within({key: value})))


def _switches(keys: tuple[str, str], given: dict[str, Any], pins: Pins, rows: tuple[tuple[bool, bool], ...]) -> Axis:
    """Two switches that depend on each other."""
    own = (bool(given.get(keys[0])), bool(given.get(keys[1])))
    kept = []
    for row in dict.fromkeys((own, *rows)):
        pinned = all(value == mine for key, value, mine in zip(keys, row, own, strict=True) if not pins.allows(key))
        if pinned and pins.within(dict(zip(keys, row, strict=True))):
            kept.append(row)
    return Axis(keys, tuple(kept))
