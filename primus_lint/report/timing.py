"""`--timing`: where a run spends its time, by stage and by rule.

The clock stands around the functions of the pipeline, put there for this run alone, so that an ordinary run carries
nothing of it. Times are self times: what a stage asks another stage for counts there.
"""

from __future__ import annotations

import functools
import importlib
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.rules.catalogue import Entry

# Stage -> (module, function) around which its clock stands.
STAGES = {
    "read": ("primus_lint.pipeline", "read"),
    "lower": ("primus_lint.lower.megatron", "lower"),
    "legal world sizes": ("primus_lint.rules.worlds", "legal_world_sizes"),
    "ledger": ("primus_lint.ledger", "ledger"),
    "projection": ("primus_lint.projection", "project"),
    "conditions": ("primus_lint.rules.engine", "check_conditions"),
    "locate": ("primus_lint.rules.judge", "locate"),
    "suppress": ("primus_lint.rules.suppress", "suppress"),
    "report": ("primus_lint.cli.run", "write_reports"),
}
RULES_SHOWN = 15


class Clock:
    """Measures from its creation on. `stages` and `rules`: name -> [calls, seconds]."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}
        self.rules: dict[str, list[float]] = {}
        self._stack: list[list[float]] = []  # seconds that stages inside took
        self._undo: list[tuple[Any, str, Any]] = []
        self._start = time.perf_counter()
        for name, (module_name, function) in STAGES.items():
            module = importlib.import_module(module_name)
            self._put(module, function, self._around(getattr(module, function), self.stages, name))
        from primus_lint.rules import catalogue, engine, judge

        for module in (engine, judge):
            self._put(module, "run_check", self._around_check(module.run_check))
        self._put(catalogue, "applicable", self._with_clocks(catalogue.applicable))

    def stop(self) -> None:
        """Take the clocks away again."""
        while self._undo:
            setattr(*self._undo.pop())

    def write(self, out: TextIO) -> None:
        """Both tables, the longest first, and the whole."""
        whole = time.perf_counter() - self._start
        self.stop()
        self._table(out, "stage", self.stages, len(self.stages))
        if self.rules:
            self._table(out, "rule", self.rules, RULES_SHOWN)
        cpu = time.process_time()
        out.write(f"{whole * 1e3:10.1f} ms in all; {cpu * 1e3:.1f} ms of CPU since the process started\n")

    def _table(self, out: TextIO, title: str, rows: dict[str, list[float]], limit: int) -> None:
        out.write(f"{'self time':>13} {'calls':>8}  {title}\n")
        order = sorted(rows.items(), key=lambda pair: -pair[1][1])
        for name, (calls, seconds) in order[:limit]:
            out.write(f"{seconds * 1e3:10.1f} ms {calls:8.0f}  {name}\n")
        if len(order) > limit:
            rest = sum(seconds for _, (_, seconds) in order[limit:])
            out.write(f"{rest * 1e3:10.1f} ms {'':8}  {len(order) - limit} more\n")

    def _put(self, owner: Any, name: str, new: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def _around(self, function: Callable[..., Any], rows: dict[str, list[float]], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*words: Any, **more: Any) -> Any:
            inside = [0.0]
            self._stack.append(inside)
            start = time.perf_counter()
            try:
                return function(*words, **more)
            finally:
                seconds = time.perf_counter() - start
                self._stack.pop()
                if self._stack:
                    self._stack[-1][0] += seconds
                row = rows.setdefault(name, [0, 0.0])
                row[0] += 1
                row[1] += seconds - inside[0]

        return timed

    def _around_check(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(entry: Entry, *words: Any) -> Any:
            return self._around(function, self.rules, f"{entry.code} {entry.name}")(entry, *words)

        return timed

    def _with_clocks(self, applicable: Callable[..., tuple[Entry, ...]]) -> Callable[..., tuple[Entry, ...]]:
        """The catalogue with a clock around every condition."""

        @functools.cache
        def timed(*words: Any) -> tuple[Entry, ...]:
            return tuple(
                entry
                if entry.function is None
                else entry._replace(function=self._around(entry.function, self.rules, f"{entry.code} {entry.name}"))
                for entry in applicable(*words)
            )

        return timed
