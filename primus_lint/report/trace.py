"""The projected pipeline as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing.

One process a file, one thread a pipeline rank; a counter shows the micro-batches that a rank holds for backward.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from primus_lint.report.pipeline_chart import drawn, intervals, once_a_step
from primus_lint.report.places import relative

if TYPE_CHECKING:
    from primus_lint.report.bundle import Report
    from primus_lint.report.pipeline_chart import Drawn
    from primus_lint.subject import Subject

MOST_EVENTS = 200_000  # of one file: more than a viewer shows well
NAMES = {"F": "forward", "B": "backward", "W": "weight gradient"}


def write(out: TextIO, report: Report) -> None:
    """JSON object format; times in microseconds from the start of a step."""
    events: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    for process, checked in enumerate(report.checked, 1):
        path = relative(checked.path, report.root)
        for subject in checked.subjects[:1]:
            drawing = drawn(subject, MOST_EVENTS) if subject.modelled else None
            if drawing is None:
                notes[path] = "not projected"
                continue
            if drawing.shown < drawing.of:
                notes[path] = f"{drawing.shown} of {drawing.of} micro-batches"
            events += process_events(subject, drawing, process, path)
    json.dump(
        {"traceEvents": events, "displayTimeUnit": "ms", "otherData": notes},
        out,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    out.write("\n")


def process_events(subject: Subject, drawing: Drawn, process: int, name: str) -> list[dict[str, Any]]:
    """All events of one file."""
    events = [_name("process_name", process, 0, name)]
    for rank in range(drawing.pp):
        events.append(_name("thread_name", process, rank, f"pipeline rank {rank}"))
        events.append({**_name("thread_sort_index", process, rank, ""), "args": {"sort_index": rank}})
        held = 0
        for event, start_s, end_s in intervals(drawing, rank):
            events.append(
                {
                    "name": f"{event.kind}{event.microbatch}",
                    "cat": NAMES[event.kind],
                    "ph": "X",
                    "ts": start_s * 1e6,
                    "dur": (end_s - start_s) * 1e6,
                    "pid": process,
                    "tid": rank,
                    "args": {"micro_batch": event.microbatch, "chunk": event.chunk},
                }
            )
            if event.kind != "W":
                held += 1 if event.kind == "F" else -1
                at_s = start_s if event.kind == "F" else end_s
                events.append(
                    {
                        "name": f"held by rank {rank}",
                        "ph": "C",
                        "ts": at_s * 1e6,
                        "pid": process,
                        "args": {"chunks": held},
                    }
                )
        at_s = float(drawing.timeline.makespan_s)
        for part, seconds in once_a_step(subject, at_s) if drawing.shown == drawing.of else ():
            events.append(
                {
                    "name": part,
                    "cat": "step",
                    "ph": "X",
                    "ts": at_s * 1e6,
                    "dur": seconds * 1e6,
                    "pid": process,
                    "tid": rank,
                }
            )
            at_s += seconds
    return events


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
