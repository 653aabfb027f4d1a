"""Lower bounds of whole parts of the space, so that most of it need not be scored.

A group is a pipeline size with switches; its bases are the splits. Work does not depend on the split: the mean of the
ranks' busy seconds is the same for every split, and the slowest rank has at least the mean. Of one base, no rank ends
before it has done its own layers for every micro-batch, and the ranks before it have done the first one and the last one.
Recomputation, and giving up an acceleration, add work and take none away: no form of a base is faster than the base
without. Tests hold all three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primus_lint.projection.cost import COMPUTE
from primus_lint.projection.device import Device
from primus_lint.projection.layers import uses_fp8
from primus_lint.projection.pipeline import CLOSED_FORMS
from primus_lint.tune.certificate import MEMORY_TOLERANCE
from primus_lint.tune.forms import module_lists
from primus_lint.tune.grid import Shape
from primus_lint.tune.keys import (
    CP,
    EP_OVERLAP,
    EXPERT_KEYS,
    FOLLOWING,
    MBS,
    PP,
    RECOMPUTE_KEYS,
    SHARDED,
    SHARDING_KEYS,
    SPLIT_KEYS,
    STATE_KEYS,
    TP,
)
from primus_lint.tune.records import Scored

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run
    from primus_lint.projection.compute import Block
    from primus_lint.tune.grid import Evaluator
    from primus_lint.tune.space import Axis, Base, Space

SPLITS = frozenset((PP, *SPLIT_KEYS, SHARDED))  # keys that change no price of a layer
# keys that leave the seconds of products and attention as they are
NO_ARITHMETIC = frozenset(
    (PP, *SPLIT_KEYS, *SHARDING_KEYS, *FOLLOWING, *STATE_KEYS, *EXPERT_KEYS, "moe_enable_deepep", "use_turbo_deepep")
)
ROUNDING = 1e-9
SLACK = 1e-3  # start-up of kernels that run once a chunk: the only part of work that depends on the split
WITHOUT: dict[str, Any] = dict.fromkeys(RECOMPUTE_KEYS)  # no recomputation


LEAST = {**WITHOUT, "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
INPUT_BYTES = 8  # of an element of a layer's input, at most: fp32, with what the allocator keeps beside it


class Bound(NamedTuple):
    """What no recipe of a group or base can be better than. Of a base: how many of its elements each rule removes."""

    least: float
    bases: list[Base]
    removed: dict[str, int] | None  # None: a group, or not counted yet
    legal: Any = None  # of a group: the elements that are legal whatever the split
    elements: Any = None  # of a counted base: positions of its legal elements
    seconds: Any = None  # and what each of them takes at least
    least_bytes: Any = None  # and needs at least; None: not asked yet
    partly_bytes: Any = None  # and where not whole layers are recomputed


class Bounds:
    """Bounds of one space, in seconds (`by_time`) or in changed keys."""

    def __init__(self, evaluator: Evaluator, space: Space, by_time: bool) -> None:
        self.evaluator = evaluator
        self.space = space
        self.by_time = by_time
        self.shapes: dict[tuple[Axis, ...], Shape] = {}
        self.priced: dict[Any, dict[Any, Any]] = {}
        self.wholes: dict[Block, Any] = {}  # seconds of priced parts
        self.known: dict[Any, dict[str, Any]] = {}  # outcomes of rules by group
        self.floors: dict[Any, float] = {}
        self.counted: dict[tuple[int, ...], int] = {}  # forms by the sizes of chunks
        self.straggling = Device(evaluator.accelerator, None, space.run).straggling

    def shape(self, axes: tuple[Axis, ...]) -> Shape:
        """Columns of axes, made once."""
        if axes not in self.shapes:
            self.shapes[axes] = Shape(axes, self.evaluator.given)
        return self.shapes[axes]

    def prices(self, base: Base) -> dict[Any, Any]:
        """What layers of a base cost on its whole grid: the same for all splits and shardings with its switches."""
        return self.priced.setdefault((base.axes, switches(base, SPLITS)), {})

    def scored(self, base: Base, indices: Any, given_up: bool) -> Scored:
        """Some elements of a base, with or without accelerations, for all forms."""
        if given_up:
            base = base._replace(keys={**base.keys, **self.space.given_up})
        shape, prices = self.shape(base.axes), self.prices(base)
        if not prices:
            self.evaluator.work([base], WITHOUT, shape, prices)
        return Scored(shape, indices, prices)

    def broken(self, base: Base) -> dict[str, Any]:
        """Which elements of a base break rules that no split enters: the same for all bases of a group."""
        return self.known.setdefault((base.axes, switches(base, frozenset(SPLIT_KEYS))), {})

    def groups(self) -> list[Bound]:
        """Every group of the space with its bound."""
        return [self.group(bases) for bases in self.grouped()]

    def grouped(self) -> list[list[Base]]:
        """The bases of every group; groups of few changed switches first."""
        found: dict[Any, list[Base]] = {}
        for base in self.space.bases():
            found.setdefault((base.axes, switches(base, frozenset(SPLIT_KEYS))), []).append(base)
        return sorted(found.values(), key=lambda bases: self.changed(bases[0]))

    def floor_s(self, bases: list[Base]) -> float:
        """Seconds that no recipe of some bases, of any pipeline size, is faster than: the products and the attention of
        the whole model, spread evenly over all GPUs. One evaluation serves all groups that differ in what leaves those
        as they are; 0 when they cannot be told."""
        base, run = bases[0], self.space.run
        name = (base.axes, switches(base, NO_ARITHMETIC))
        if not self.by_time:
            return 0.0
        if name not in self.floors:
            shape = self.shape(base.axes)
            keys = {**base.keys, PP: 1, **{key: False if base.keys[key] is False else None for key in SPLIT_KEYS}}
            each = self.evaluator.arithmetic({**keys, **WITHOUT, EP_OVERLAP: False}, shape, self.prices(base))
            columns = shape.columns
            share = columns[TP] * columns[CP] / (columns[MBS] * int(run.target.world_size or 1))
            least = 0.0 if each is None else float((each * share).min()) * int(run.batch.global_batch_size or 0)
            self.floors[name] = least * (1 - SLACK) if np.isfinite(least) else 0.0
        return self.floors[name]

    def group(self, bases: list[Base]) -> Bound:
        """The bound of bases that differ in their split alone."""
        if not self.by_time:
            return Bound(min(self.changed(base) for base in bases), bases, None)
        base, evaluator = bases[0], self.evaluator
        shape = self.shape(base.axes)
        names = evaluator.names({**base.keys, **WITHOUT}, shape.columns)
        keep = evaluator.legal(names, evaluator.of_any_split, shape.valid, _ignore, self.broken(base))
        if not keep.any():
            return Bound(float("inf"), bases, None, keep)
        work = evaluator.work(bases, WITHOUT, shape, self.prices(base))
        if work is None:
            return Bound(0.0, bases, None, keep)
        least = float(np.where(np.isfinite(work), work, 0.0)[keep].min())
        return Bound(least * (1 - SLACK), bases, None, keep)

    def slowest_rank(self, base: Base, legal: Any) -> float:
        """Seconds that the slowest rank of a base needs at least, on the best of some elements, from the prices of its
        layers alone: its work, and one micro-batch on the first chunks of the ranks before it. 0 when it cannot be told."""
        prices = self.prices(base)
        if not self.by_time or not prices or not legal.any():
            return 0.0
        evaluator, shape = self.evaluator, self.shape(base.axes)
        run = evaluator.run(evaluator.names({**base.keys, **WITHOUT}, shape.columns))
        if run is None or run.parallel.stages is None:
            return 0.0
        microbatches = np.maximum(run.batch.num_microbatches, 1)
        filled = run.schedule.kind in CLOSED_FORMS
        before: Any = 0.0
        most: Any = 0.0
        for row in run.parallel.stages:
            each = [self.chunk(run, chunk, prices) for chunk in row]
            most = np.maximum(most, before + microbatches * sum(each))
            before = before + each[0] * filled
        least = np.broadcast_to(most, shape.shape)[legal]
        return float(np.where(np.isfinite(least), least, 0.0).min()) * (1 - ROUNDING)

    def chunk(self, run: Run, chunk: Chunk, prices: dict[Any, Any]) -> Any:
        """Seconds of the layers, the embedding and the head of a chunk for one micro-batch."""
        counts: dict[Any, int] = {}
        last = run.model.num_layers - 1
        for layer in (*chunk.layers, *(last for _ in chunk.mtp)):
            kind = run.model.is_moe_layer(layer), uses_fp8(run, layer)
            counts[kind] = counts.get(kind, 0) + 1
        found = [number * self.whole(prices, kind) for kind, number in counts.items()]
        found += [self.whole(prices, "embedding")] * bool(chunk.embedding)
        found += [self.whole(prices, "head")] * (bool(chunk.loss) + len(chunk.mtp))
        return sum(found)

    def whole(self, prices: dict[Any, Any], kind: Any) -> Any:
        """Forward and backward of a priced part of the model; 0 of one without a price (then it is not counted)."""
        found = prices.get(kind)
        block = found[0] if isinstance(found, tuple) else found
        if block is None:
            return 0.0
        if block not in self.wholes:
            self.wholes[block] = sum(
                part.seconds + part.of(COMPUTE) * self.straggling
                for part in (block.forward, block.backward, block.weight)
            )
        return self.wholes[block]

    def changed(self, base: Base) -> float:
        """Changed keys of a base."""
        return float(sum(self.evaluator.given.get(key) != value for key, value in base.keys.items()))

    def base(self, base: Base) -> Bound:
        """The bound of one base, and what the rules remove of it."""
        removed: dict[str, int] = {}
        keep, seconds = self.legal_and_seconds(base, removed.__setitem__)
        elements, seconds = np.flatnonzero(keep), np.broadcast_to(seconds, keep.shape)[keep]
        if not self.by_time:
            least = self.changed(base)
        else:
            least = float(seconds.min()) if len(seconds) else float("inf")
        return Bound(least, [base], removed, elements=elements, seconds=seconds)

    def removed(self, base: Base) -> dict[str, int]:
        """How many elements of a base each rule removes."""
        shape, evaluator = self.shape(base.axes), self.evaluator
        counts: dict[str, int] = {}
        names = evaluator.names({**base.keys, **WITHOUT}, shape.columns)
        evaluator.legal(names, evaluator.others, shape.valid, counts.__setitem__, self.broken(base))
        return counts

    def legal_and_seconds(self, base: Base, removed: Callable[[str, int], None]) -> tuple[Any, Any]:
        """Of a base: which elements no rule removes whatever the form, and their seconds without any recomputation (0
        where they cannot be told, or are not asked for)."""
        shape, evaluator = self.shape(base.axes), self.evaluator
        names = evaluator.names({**base.keys, **WITHOUT}, shape.columns)
        keep = evaluator.legal(names, evaluator.others, shape.valid, removed, self.broken(base))
        seconds: Any = None
        if keep.any() and self.by_time:
            seconds = evaluator.seconds(evaluator.run(names), shape.shape, self.prices(base))
        return keep, 0.0 if seconds is None else np.where(np.isfinite(seconds), seconds, 0.0)

    def least_bytes(self, base: Base, indices: Any) -> tuple[Any, Any]:
        """What some elements of a base need at least in any form, and in any without whole layers recomputed (0 where it
        cannot be told).

        With every layer recomputed alone, a micro-batch in flight keeps the input of each layer and the backward has all
        tensors of one: any other form keeps at least as much, but for one input of a layer. Of module lists the longest
        needs least: what it drops of a micro-batch in flight comes back for one layer at a time.
        """
        evaluator, run = self.evaluator, self.space.run
        columns, shape = self.shape(base.axes).chosen(indices), (len(indices), 1)
        least: list[Any] = [float("inf"), float("inf")]
        for given_up in ({}, self.space.given_up) if self.space.given_up else ({},):
            fixed: dict[int, Any] = {}
            for place, form in enumerate((LEAST, self.longest())):
                names = evaluator.names({**base.keys, **form, **given_up}, columns)
                peak = evaluator.bytes(evaluator.run(names), shape, fixed)
                least[place] = np.minimum(least[place], 0 if peak is None else peak)
        inputs = run.batch.seq_length // names["cp"] * names["mbs"] * run.model.hidden_size * INPUT_BYTES
        whole, partly = (np.broadcast_to((peak - inputs) / (1 + MEMORY_TOLERANCE), shape)[:, 0] for peak in least)
        return whole, partly

    def longest(self) -> dict[str, Any]:
        """The form of selective recomputation that needs least memory (it need not be legal)."""
        modules = sorted({module for modules in module_lists(self.space.run) for module in modules})
        return {**WITHOUT, "recompute_granularity": "selective", "recompute_modules": modules}

    def rows(self, base: Base) -> int:
        """Forms of a base, counts of recomputed layers included."""
        if base.chunks not in self.counted:
            forms = self.space.forms(base)
            self.counted[base.chunks] = sum(1 if axis is None else len(axis.rows) for _, axis in forms)
        return self.counted[base.chunks]


def switches(base: Base, without: frozenset[str]) -> str:
    """The keys of a base but some, as a name."""
    return repr(sorted((key, value) for key, value in base.keys.items() if key not in without))


def _ignore(name: str, number: int) -> None:
    """Nothing to count."""
