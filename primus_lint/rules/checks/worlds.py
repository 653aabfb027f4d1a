"""A recipe that no number of GPUs makes legal, although no single condition says so by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make
from primus_lint.rules.worlds import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject


def legal_nowhere(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """An error when no world size up to the limit is legal; the message tells what is wrong at the smallest that fills
    the grids."""
    if subject.target.world_size is not None or subject.legal_world_sizes:
        return
    if any(finding.severity == "error" for finding in subject.conditions):
        return
    names = subject.lowered.namespace
    try:
        from primus_lint.formula import lcm

        smallest = lcm(names["dense_grid"], names["expert_grid"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return
    errors = [finding for finding in subject.at_world(smallest).conditions if finding.severity == "error"]
    why = f": on {smallest:,} GPUs, the smallest number that fills the grids, {errors[0].message}" if errors else ""
    keys = errors[0].keys if errors else ("tensor_model_parallel_size", "global_batch_size")
    yield make(rule, subject.lowered, f"legal at no world size up to {LIMIT:,}{why}", keys)
