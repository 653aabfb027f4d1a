"""The array forms on one structure: legality, seconds and bytes of every element of its grid.

Columns are arrays with one dimension per axis (they broadcast), or flat arrays of chosen elements; the formulas of
rules, ledger and projection take either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from primus_lint.ir.record import replace
from primus_lint.lower.megatron import adjust, namespace
from primus_lint.lower.megatron.build import build_run
from primus_lint.lower.megatron.namespace import DERIVED, KEYS_OF
from primus_lint.rules import catalogue
from primus_lint.rules.engine import UNDECIDED
from primus_lint.tune.keys import EP, ETP, RECOMPUTE_KEYS, SP, SPLIT_KEYS, TP, TP_OVERLAP
from primus_lint.tune.trace import deciding

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.hardware import Accelerator
    from primus_lint.rules.catalogue import Entry
    from primus_lint.subject import Subject
    from primus_lint.tune.space import Axis, Base

Columns = dict[str, Any]


class Shape:
    """Axes as columns: their dimensions, the value of every key at every element, and which elements count.

    `valid` leaves out elements that say the same as another one: what depends on tensor parallelism without any.
    """

    def __init__(self, axes: tuple[Axis, ...], given: dict[str, Any]) -> None:
        self.axes = axes
        self.given = given
        self.shape = tuple(len(axis.rows) for axis in axes)
        self.columns: Columns = {}
        for position, axis in enumerate(axes):
            for index, key in enumerate(axis.keys):
                values = [row[index] for row in axis.rows]
                if any(value is None for value in values):
                    continue
                self.columns[key] = self._along(position, values)
        self._follow()
        self.valid = self._valid()
        self.size = int(self.valid.sum())
        self.changed = self._changed()

    def _along(self, position: int, values: list[Any]) -> Any:
        dimensions = [1] * len(self.axes)
        dimensions[position] = len(values)
        return np.array(values).reshape(dimensions)

    def _position(self, key: str) -> int | None:
        return next((index for index, axis in enumerate(self.axes) if key in axis.keys), None)

    def _follow(self) -> None:
        """Expert tensor parallelism that is unset follows tensor parallelism."""
        position = self._position(ETP)
        if position is None or ETP in self.columns:
            return
        values = [row[0] for row in self.axes[position].rows]
        if values == [None]:
            return
        unset = self._along(position, [value is None for value in values])
        self.columns[ETP] = np.where(unset, self.columns[TP], self._along(position, [value or 0 for value in values]))

    def _valid(self) -> Any:
        valid = np.ones(self.shape, dtype=bool)
        tp = self.columns.get(TP)
        if tp is None:
            return valid
        position = self._position(SP)
        if position is not None:
            seen = set()
            first = []  # rows whose tensor-parallel overlap is new, the recipe's own sequence parallelism preferred
            rows = self.axes[position].rows
            own = bool(self.given.get(SP))
            for row in sorted(rows, key=lambda row: row[0] != own):
                if row[1] not in seen:
                    seen.add(row[1])
                    first.append(row)
            valid &= (tp > 1) | self._along(position, [row in first for row in rows])
        position = self._position(ETP)
        if position is not None and ETP in self.columns:
            values = [row[0] for row in self.axes[position].rows]
            if None in values:
                valid &= self._along(position, [value is None for value in values]) | (self.columns[ETP] != tp)
        return valid

    def _changed(self) -> Any:
        """How many keys of the axes differ from the recipe's, for every element."""
        changed: Any = np.zeros(self.shape, dtype=np.int64)
        for position, axis in enumerate(self.axes):
            for index, key in enumerate(axis.keys):
                own = self.given.get(key)
                if key in (SP, TP_OVERLAP):
                    own = bool(own)
                differs = self._along(position, [row[index] != own for row in axis.rows])
                if key == SP and TP in self.columns:
                    differs = differs & (self.columns[TP] > 1)
                changed = changed + differs
        return changed

    def chosen(self, indices: Any) -> Columns:
        """Columns [element, 1] of some elements (positions in the flattened grid)."""
        pick = self.picker(indices)
        return {key: pick(column) for key, column in self.columns.items()}

    def picker(self, indices: Any) -> Callable[[Any], Any]:
        """What takes some elements [element, 1] of an array over the grid (numbers stay as they are)."""
        places = np.unravel_index(indices, self.shape)
        flat: dict[tuple[int, ...], Any] = {}  # positions in an array of this shape

        def pick(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            if value.shape not in flat:
                there = [place * (size > 1) for place, size in zip(places, value.shape, strict=True)]
                flat[value.shape] = np.ravel_multi_index(there, value.shape)
            return value.ravel()[flat[value.shape]][:, None]

        return pick

    def point(self, index: int) -> dict[str, Any]:
        """The values of one element (its position in the flattened grid), as the file would say them."""
        places = np.unravel_index(index, self.shape)
        values: dict[str, Any] = {}
        for place, axis in zip(places, self.axes, strict=True):
            values.update(zip(axis.keys, axis.rows[int(place)], strict=True))
        if values[TP] == 1:
            values.pop(SP, None)  # without effect
        return values


class Evaluator:
    """The array forms for one recipe on one device. `excused` are codes of errors that no tuned key can cure; rules that
    read `form_keys` (what the forms of a base say) are kept apart."""

    def __init__(
        self,
        subject: Subject,
        accelerator: Accelerator,
        excused: frozenset[str],
        form_keys: frozenset[str] = frozenset(RECOMPUTE_KEYS),
    ) -> None:
        self.subject = subject
        self.accelerator = accelerator
        self.given = dict(subject.lowered.namespace.given)
        lowered = subject.lowered
        entries = [
            entry
            for entry in catalogue.applicable(lowered.framework, subject.version, "array")
            if entry.function is not None and entry.severity == "error" and entry.code not in excused
        ]
        entries = deciding(entries, self.names({}, {}))
        self.about_forms = [entry for entry in entries if _about(entry, form_keys)]
        self.others = [entry for entry in entries if not _about(entry, form_keys)]
        self.of_any_split = [entry for entry in self.others if _plain(entry)]
        self.without_split = frozenset(entry.name for entry in self.of_any_split)
        self.undecided: set[str] = set()  # rules whose array form could not decide: left to the exact rescoring

    def names(self, keys: dict[str, Any], columns: Columns) -> Any:
        """The namespace of a structure with columns."""
        subject = self.subject
        args = {**self.given, **keys, **columns}
        if subject.lowered.framework == "primus-megatron":
            adjust.primus(args, set(subject.section.values))
        if args.get(EP) is None:
            args[EP] = 1
        asked = dict(args)
        adjust.megatron(args, subject.version)
        env = subject.env_under(asked)
        return namespace(args, asked, subject.target, subject.version, subject.lowered.framework, env, subject.stack)

    def run(self, names: Any) -> Any:
        subject = self.subject
        return build_run(names, subject.section, subject.target, subject.version, subject.lowered.framework)

    def legal(
        self, names: Any, entries: list[Entry], keep: Any, removed: Callable[[str, int], None],
        known: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """The elements of `keep` (a mask, or a shape: all) that break none of some rules. `removed` is told how many
        each rule took, the first one that did. `known` is shared between structures that differ in their split alone: which
        elements break those rules that no split enters."""
        keep = np.ones(keep, dtype=bool) if isinstance(keep, tuple) else keep.copy()
        for entry in entries:
            if known is None or entry.name not in self.without_split:
                broken = self.broken(entry, names)
            else:
                if entry.name not in known:
                    known[entry.name] = self.broken(entry, names)
                broken = known[entry.name]
            if isinstance(broken, np.ndarray):
                gone = keep & broken.astype(bool, copy=False)
                number = int(gone.sum())
                if number:
                    removed(entry.name, number)
                    keep &= ~gone
                    if not keep.any():
                        break
            elif broken:
                removed(entry.name, int(keep.sum()))
                keep[...] = False
                break
        return keep

    def broken(self, entry: Entry, names: Any) -> Any:
        """Which elements break a rule; False where that is not decided."""
        assert entry.function is not None
        try:
            return entry.function(names)
        except UNDECIDED as error:
            if isinstance(error, ValueError) and "ambiguous" in str(error):
                self.undecided.add(entry.name)
            return False

    def seconds(self, run: Any, shape: Any, priced: dict[Any, Any]) -> Any:
        """Seconds of a step of every element; None when the structure cannot be projected. `priced` is shared between
        structures of the same columns and switches (see `projection.project`)."""
        from primus_lint.projection import step_seconds

        step = None if run is None else step_seconds(run, self.accelerator, priced)
        return None if step is None else np.broadcast_to(step.iteration_s, shape)

    def work(self, bases: list[Base], without: dict[str, Any], shape: Shape, priced: dict[Any, Any]) -> Any:
        """Mean busy seconds of the pipeline ranks in one step, which no split of some bases can be faster than; None
        when none of the splits can be projected."""
        from primus_lint.projection import rank_work

        for base in bases:
            run = self.run(self.names({**base.keys, **without}, shape.columns))
            work = None if run is None else rank_work(run, self.accelerator, priced)
            if work is not None:
                busy: Any = 0.0
                for row, seconds in zip(work.stages, work.per_stage_s, strict=True):
                    busy = busy + seconds - sum(stage.sharded.seconds for stage in row)  # it depends on the split
                return np.broadcast_to(busy / len(work.stages) * work.microbatches, shape.shape)
        return None

    def arithmetic(self, keys: dict[str, Any], shape: Shape, priced: dict[Any, Any]) -> Any:
        """Seconds of products and attention of all stages for one micro-batch; None when they cannot be projected."""
        from primus_lint.projection import cost, rank_work

        run = self.run(self.names(keys, shape.columns))
        work = None if run is None else rank_work(run, self.accelerator, priced)
        if work is None:
            return None
        kinds = frozenset((cost.GEMM, cost.GROUPED_GEMM, cost.ATTENTION))
        return sum(stage.whole.of(kinds) for row in work.stages for stage in row)

    def bytes(self, run: Any, shape: Any, fixed: dict[int, Any] | None = None) -> Any:
        """Device bytes (the high estimate) of the heaviest rank of every element; None without an account. `fixed` is
        shared between forms of recomputation of the same elements (see `ledger.build`)."""
        from primus_lint.ledger import Ledger, ledger

        account = None if run is None else ledger(run, self.accelerator, fixed)
        if not isinstance(account, Ledger):
            return None
        return np.broadcast_to(account.device_bytes[1], shape)


def together(runs: list[Any]) -> Any:
    """Runs that differ in the modules that they recompute as one run whose last axis holds them; None when one is None."""
    if any(run is None for run in runs):
        return None
    if len(runs) == 1:
        return runs[0]
    recompute = runs[0].recompute
    lists = tuple(run.recompute.modules if run.recompute.granularity == "selective" else () for run in runs)
    return replace(runs[0], recompute=replace(recompute, granularity="selective", choices=lists))


# Derived symbols that no split enters.
FREE = frozenset(
    ("tp", "pp", "cp", "ep", "etp", "gtp", "egtp", "world", "mbs", "gbs", "seq", "dense_grid", "expert_grid", "dp", "edp",
     "batch_dp", "heads", "groups", "head_dim", "layers", "experts", "is_moe", "is_mla", "context_types", "turbo_deepep",
     "deepep", "turbo_attention", "first_microbatches")
)  # fmt: skip


def _plain(entry: Entry) -> bool:
    """Whether a rule reads nothing that a pipeline split enters."""
    names = {name.removeprefix("given_") for name in entry.names}
    return all(name in FREE or (name not in DERIVED and name not in SPLIT_KEYS) for name in names)


def _about(entry: Entry, form_keys: frozenset[str]) -> bool:
    """Whether a rule reads what a form says."""
    for name in entry.names:
        base = name.removeprefix("given_")
        if set(KEYS_OF.get(base, (base,))) & form_keys or base.startswith("recompute"):
            return True
    return False
