"""Pipeline schedules as event lists, and the closed forms proved against them.

`events.schedule` writes a schedule down; `inflight` counts what a rank keeps for backward; `timeline.simulate` says
when everything starts and ends. `closed_form` and `bounds` give the same figures by formula, for numbers and arrays.
No bytes and no recipe words here: weights and durations come from the caller.
"""

from __future__ import annotations

from .closed_form import composition, interleaved_weighted_peak, peak_in_flight
from .events import FOLDED_KINDS, KINDS, SPLIT_BACKWARD_KINDS, Event, chunks_per_rank, rank_schedule, schedule, stage_of
from .inflight import Counts, Load, Peak, counts, frontier, frontier_peak, loads, peak, rank_frontier, weighted_peak

__all__ = [
    "FOLDED_KINDS",
    "KINDS",
    "SPLIT_BACKWARD_KINDS",
    "Counts",
    "Event",
    "Load",
    "Peak",
    "chunks_per_rank",
    "composition",
    "counts",
    "frontier",
    "frontier_peak",
    "interleaved_weighted_peak",
    "loads",
    "peak",
    "peak_in_flight",
    "rank_frontier",
    "rank_schedule",
    "schedule",
    "stage_of",
    "weighted_peak",
]
