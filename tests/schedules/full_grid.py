"""Closed forms against event lists on the whole grid: python -m tests.schedules.full_grid [--groups]

pp <= 16, micro-batches <= 64, vpp <= 8, every rank, groups of pp; `--groups`: every legal group size for pp <= 8 and
micro-batches <= 32. The default tests walk a small part of it.
"""

from __future__ import annotations

import sys
import time

from primus_lint.schedules.closed_form import composition, interleaved_weighted_peak, peak_in_flight
from primus_lint.schedules.events import KINDS, rank_schedule, schedule
from primus_lint.schedules.inflight import counts, peak, weighted_peak
from tests.schedules.legal import cases


def check_peak(kind: str, pp: int, m: int, vpp: int, group: int | None) -> int:
    """The peak of every rank; returns how many figures were compared."""
    for rank, todo in enumerate(schedule(kind, pp, m, vpp, group)):
        found, formula = counts(todo).total, peak_in_flight(kind, pp, rank, m, vpp, group)
        assert found == formula, (kind, pp, m, vpp, group, rank, found, formula)
    return pp


def check_composition(pp: int, m: int, vpp: int, group: int | None, overlap: bool) -> int:
    """The chunks held at the peak of every interleaved rank."""
    for rank in range(pp):
        found = peak(rank_schedule("interleaved", pp, rank, m, vpp, group, overlap=overlap)).alive
        formula = composition(pp, rank, m, vpp, group, overlap)
        assert found == formula, (pp, m, vpp, group, rank, overlap, found, formula)
    return pp


def check_weighted(pp: int, m: int, vpp: int, group: int | None, overlap: bool) -> int:
    """The weighted peak of every interleaved rank, for weights that favour each end and each single chunk."""
    tables = [[1 + c for c in range(vpp)], [vpp - c for c in range(vpp)]]
    tables += [[10 if c == heavy else 1 for c in range(vpp)] for heavy in range(vpp)]
    for rank in range(pp):
        todo = rank_schedule("interleaved", pp, rank, m, vpp, group, overlap=overlap)
        for weights in tables:
            found = weighted_peak(todo, weights).value
            formula = interleaved_weighted_peak(weights, pp, rank, m, group, overlap)
            assert found == formula, (pp, m, vpp, group, rank, overlap, weights, found, formula)
    return pp * len(tables)


def main() -> None:
    every = "--groups" in sys.argv
    pps, ms, vpps = (range(1, 9), range(1, 33), range(1, 9)) if every else (range(1, 17), range(1, 65), range(1, 9))
    kinds = ("interleaved", "zb-h1") if every else tuple(kind for kind in KINDS if kind != "zb-heuristic")
    began = time.time()
    total = 0
    for kind in kinds:
        compared = sum(check_peak(*case) for case in cases((kind,), pps, ms, vpps, every))
        print(f"{kind}: {compared} peaks equal ({time.time() - began:.0f} s)", flush=True)
        total += compared
    for name, check in (("compositions", check_composition), ("weighted peaks", check_weighted)):
        grid = cases(("interleaved",), pps, ms, range(1, 5) if check is check_weighted else vpps, every)
        compared = sum(check(*case[1:], overlap) for case in grid for overlap in (False, True))
        print(f"interleaved {name}: {compared} equal ({time.time() - began:.0f} s)", flush=True)
        total += compared
    print(f"{total} figures, 0 differ")


if __name__ == "__main__":
    main()
