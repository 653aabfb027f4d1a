"""World sizes at which a recipe is legal, by arithmetic.

A world size must be a multiple of the dense grid (tp*pp*cp, times the ranks that share weights) and of the expert grid
(etp*ep*pp), and the ranks that the batch is divided over must divide each batch that is checked at start, counted in
micro batches: the global batch (the first batch of a ramp or schedule) and, in d98e8a64, the evaluation batch. So only
the divisors of their greatest common divisor are looked at; without a batch (it then follows the data-parallel size)
every multiple of the grids up to the limit. The conditions of the catalogue that depend on the world size then decide.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from primus_lint.formula import lcm
from primus_lint.lower.megatron.namespace import Namespace
from primus_lint.rules import catalogue
from primus_lint.rules.engine import UNDECIDED, run_check, uses_world, violated
from primus_lint.rules.functions import divisors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from primus_lint.lower.megatron import Lowered

LIMIT = 16_384


class Sweep(Namespace):
    """A namespace that is moved from one world size to the next: only what depends on it is computed anew."""

    __slots__ = ("_fresh", "_moving", "keys_of", "symbols")

    def __init__(self, names: Namespace) -> None:
        self.symbols, self.keys_of = names.symbols, names.keys_of
        self._moving = {name: function for name, function in self.symbols.items() if self.depends_on_world(name)}
        super().__init__({key: names[key] for key in names if key not in self._moving}, names.given)
        self._fresh: list[str] = []

    def __missing__(self, name: str) -> Any:
        function = self._moving.get(name)
        if function is None:
            return super().__missing__(name)
        value = self[name] = function(self)
        self._fresh.append(name)
        return value

    def move(self, world_size: int) -> None:
        """Go to another world size."""
        for name in self._fresh:
            del self[name]
        self._fresh.clear()
        self["world_size"] = world_size


def at_world(names: Namespace, world_size: int) -> Namespace:
    """The same namespace at another world size."""
    copy = Sweep(names)
    copy.move(world_size)
    return copy


def candidates(names: Namespace, limit: int = LIMIT) -> list[int]:
    """World sizes that satisfy the grid and batch arithmetic; [] when a degree is unknown or not positive."""
    try:
        if names["framework"] == "torchtitan":
            from primus_lint.lower.torchtitan import candidates as of_torchtitan

            return of_torchtitan(names, limit)
        if names["framework"] == "megatron_bridge":
            from primus_lint.lower.bridge import candidates as of_bridge

            return of_bridge(names, limit)
        dense, expert = names["dense_grid"], names["expert_grid"]
        if dense < 1 or expert < 1:
            return []
        step = lcm(dense, expert)
        replica = dense // names["gtp"]  # ranks per share of the batch
        batches = []
        for batch, micro_batch in _batches(names):
            if micro_batch < 1 or batch < 1 or batch % micro_batch:
                return []
            batches.append(batch // micro_batch)
        if batches:
            sizes = [d * replica for d in divisors(gcd(*batches))]
            return [size for size in sizes if size <= limit and size % step == 0]
        if names["global_batch_size"] is not None:  # rounded down, but not to nothing
            limit = min(limit, names["global_batch_size"] // names["micro_batch_size"] * replica)
        return list(range(step, limit + 1, step))
    except UNDECIDED:
        return []


def _batches(names: Namespace) -> Iterator[tuple[int, int]]:
    """(global batch, micro batch) of each batch that must divide when the run starts."""
    newer = names["version"] == "d98e8a64"
    schedule = names.get("step_batch_size_schedule")
    fixed = names["global_batch_size"]
    if schedule is not None or (fixed is not None and not names.get("decrease_batch_size_if_needed")):
        yield names["first_batch"], names["micro_batch_size"]
    evaluation = names.get("eval_global_batch_size")
    if newer and (evaluation is not None or fixed is not None):
        yield fixed if evaluation is None else evaluation, names["eval_mbs"]


def legal_world_sizes(lowered: Lowered, limit: int = LIMIT) -> list[int]:
    """World sizes up to `limit` at which no error-level condition of the framework is broken (memory apart)."""
    rules = [
        entry
        for entry in catalogue.applicable(lowered.framework, lowered.version)
        if entry.severity == "error" and entry.code[0] not in "MT"
    ]
    bound = []
    for entry in rules:
        if entry.function is None:
            if entry.check is not None and entry.check.startswith("args:") and run_check(entry, lowered):
                return []
        elif uses_world(entry.names, lowered.namespace):
            bound.append(entry.function)
        elif violated(entry.function, lowered.namespace):
            return []
    names = Sweep(lowered.namespace)
    return [size for size in candidates(lowered.namespace, limit) if _holds(bound, names, size)]


def _holds(rules: list[Callable[[Any], Any]], names: Sweep, size: int) -> bool:
    """Whether no rule is broken at a size; there may be 16,384 of them."""
    names.move(size)
    for broken in rules:
        try:
            if broken(names):
                return False
        except UNDECIDED:
            continue
    return True
