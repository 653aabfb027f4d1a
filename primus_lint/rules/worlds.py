"""World sizes at which a recipe is legal, by arithmetic.

A world size must be a multiple of the dense grid (tp*pp*cp) and of the expert grid (etp*ep*pp), and the global batch
must be a multiple of micro batch times dp; so dp is a divisor of gbs/mbs and only those are looked at. Without a
global batch (it then follows dp) every multiple of the grids up to the limit is a candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.formula import lcm
from primus_lint.lower.megatron.namespace import DERIVED, Namespace, depends_on_world
from primus_lint.rules import catalogue
from primus_lint.rules.engine import UNDECIDED, uses_world, violated
from primus_lint.rules.functions import divisors

if TYPE_CHECKING:
    from primus_lint.lower.megatron import Lowered

LIMIT = 16_384


def at_world(names: Namespace, world_size: int) -> Namespace:
    """The same namespace at another world size: only what depends on it is computed anew."""
    copy = Namespace(
        {key: value for key, value in names.items() if not (key in DERIVED and depends_on_world(key))}, names.given
    )
    copy["world_size"] = world_size
    return copy


def candidates(names: Namespace, limit: int = LIMIT) -> list[int]:
    """World sizes that satisfy the grid and batch arithmetic; [] when a degree is unknown or not positive."""
    try:
        dense, expert = names["dense_grid"], names["expert_grid"]
        if dense < 1 or expert < 1:
            return []
        step = lcm(dense, expert)
        gbs, mbs = names["global_batch_size"], names["micro_batch_size"]
        if gbs is None or names.get("decrease_batch_size_if_needed") or names.get("step_batch_size_schedule"):
            return list(range(step, limit + 1, step))
        if mbs < 1 or gbs < 1 or gbs % mbs:
            return []
        return [d * dense for d in divisors(gbs // mbs) if d * dense <= limit and (d * dense) % step == 0]
    except UNDECIDED:
        return []


def legal_world_sizes(lowered: Lowered, limit: int = LIMIT) -> list[int]:
    """World sizes up to `limit` at which no error-level condition of the framework is broken."""
    rules = [
        entry
        for entry in catalogue.applicable(lowered.framework, lowered.version)
        if entry.function is not None and entry.severity == "error" and entry.stage < 10
    ]
    free = [entry for entry in rules if not uses_world(entry.names)]
    if any(violated(entry.function, lowered.namespace) for entry in free if entry.function is not None):
        return []
    bound = [entry.function for entry in rules if uses_world(entry.names) and entry.function is not None]
    legal = []
    for size in candidates(lowered.namespace, limit):
        names = at_world(lowered.namespace, size)
        if not any(violated(function, names) for function in bound):
            legal.append(size)
    return legal
