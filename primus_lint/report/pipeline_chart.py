"""The pipeline of a projected recipe as intervals in time, for the Gantt chart and the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from primus_lint.schedules.events import Event
    from primus_lint.schedules.timeline import Timeline
    from primus_lint.subject import Subject


class Drawn(NamedTuple):
    """The schedule with the projected seconds of every stage. `shown` micro-batches of `of` were simulated."""

    kind: str
    events: list[list[Event]]  # [rank][position]
    timeline: Timeline
    shown: int
    of: int
    per_stage_s: list[float]  # busy seconds per micro-batch of every rank

    @property
    def pp(self) -> int:
        return len(self.events)


def drawn(subject: Subject, most_events: int) -> Drawn | None:
    """The pipeline of a subject with at most about `most_events` events; None without a projection.

    A long step is drawn with fewer micro-batches: warm-up, steady state and drain look the same. Sends between stages
    take no time here; what of them is exposed stands in the breakdown.
    """
    from primus_lint.schedules.events import SPLIT_BACKWARD_KINDS, schedule
    from primus_lint.schedules.timeline import compile_order, simulate

    run, projection = subject.run, subject.projection
    if run is None or projection is None:
        return None
    kind = "1f1b" if run.schedule.kind == "none" else run.schedule.kind
    stages = projection.stages
    pp, chunks, of = len(stages), len(stages[0]), int(run.batch.num_microbatches or 0)
    split = kind in SPLIT_BACKWARD_KINDS
    group = run.parallel.microbatch_group_size if kind == "interleaved" else None
    unit = int(group or pp)
    most = max(most_events // (pp * chunks * (3 if split else 2)), 2 * unit)
    tries = (of,) if of <= most else (most - most % unit, of)
    for shown in tries:
        try:
            events = schedule(kind, pp, shown, chunks, None if group is None else int(group))
            order = compile_order(kind, events)
        except ValueError:  # a schedule that does not exist for these numbers: a rule says so
            continue
        forward = [[float(stage.forward_s) for stage in row] for row in stages]
        weight = [[float(stage.weight_s) for stage in row] for row in stages]
        backward = [[float(stage.backward_s + (0.0 if split else stage.weight_s)) for stage in row] for row in stages]
        timeline = simulate(order, forward, backward, weight)
        return Drawn(kind, events, timeline, shown, of, [float(seconds) for seconds in projection.per_stage_s])
    return None


def intervals(drawing: Drawn, rank: int) -> list[tuple[Event, float, float]]:
    """(event, start, end) in seconds of one rank, in the order in which it runs them."""
    timeline = drawing.timeline
    return [
        (event, float(timeline.start_s[rank][position]), float(timeline.end_s[rank][position]))
        for position, event in enumerate(drawing.events[rank])
    ]


def once_a_step(subject: Subject, makespan_s: float) -> list[tuple[str, float]]:
    """What follows the pipeline once a step, as (name, seconds): exposed sends, gradient reduction, optimizer."""
    projection: Any = subject.projection
    if projection is None:
        return []
    sends = float(projection.breakdown_s.get("pp", 0.0))
    update = float(projection.breakdown_s.get("optimizer", 0.0))
    rest = float(projection.iteration_s) - makespan_s - sends - update
    parts = [("sends between stages", sends), ("gradients and parameters", rest), ("optimizer", update)]
    return [(name, seconds) for name, seconds in parts if seconds > 1e-9]
