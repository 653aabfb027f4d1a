"""The store of measured times: one SQLite file of the user's, also holding devices of their own and calibration runs.

The file is `--store PATH`, else what `where.default_path` says. sqlite3 is imported when a store is opened, never before.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.measure.records import Measurement, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.projection.calibrate import Lesson

APPLICATION_ID = 0x504C4D31  # "PLM1" in the file's header
_TABLES = """
CREATE TABLE IF NOT EXISTS measurements (
    device TEXT NOT NULL, stack TEXT NOT NULL, operation TEXT NOT NULL, dtype TEXT NOT NULL, layout TEXT NOT NULL,
    shape TEXT NOT NULL, median_s REAL NOT NULL, low_s REAL NOT NULL, high_s REAL NOT NULL, repetitions INTEGER NOT NULL,
    date TEXT NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (device, operation, dtype, layout, shape, stack)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (name TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS training_runs (
    device TEXT NOT NULL, framework TEXT NOT NULL, label TEXT NOT NULL, measured_s REAL NOT NULL, before_s REAL NOT NULL,
    after_s REAL NOT NULL, model TEXT NOT NULL, weights TEXT NOT NULL, date TEXT NOT NULL,
    PRIMARY KEY (device, framework, label));
"""


class CalibrationRun(NamedTuple):
    """One training run that a device was calibrated on: seconds of an iteration, measured, projected before and after it was
    learned from; `model` and `weights` of its `projection.calibrate.Lesson`."""

    device: str
    framework: str
    label: str
    measured_s: float
    before_s: float
    after_s: float
    model: str
    weights: dict[str, float]
    date: str

    @property
    def lesson(self) -> Lesson:
        from primus_lint.projection import cost
        from primus_lint.projection.calibrate import Lesson

        weights = tuple(self.weights.get(kind, 0.0) for kind in cost.KINDS)
        return Lesson(math.log(self.measured_s / self.before_s), self.model, weights)


class StoreError(Exception):
    """The file is no store of this program, or cannot be read or written."""


class Store:
    """An open store. Use as a context manager. Raises StoreError when the file cannot be used."""

    def __init__(self, path: str, *, write: bool = False) -> None:
        import sqlite3

        self.path = path
        try:
            if write:
                os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
                self._database = sqlite3.connect(path, timeout=30)
                self._make()
            else:
                self._database = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=30)
                self._database.execute("SELECT 1 FROM measurements LIMIT 1")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: {error}") from None

    def _make(self) -> None:
        (found,) = self._database.execute("PRAGMA application_id").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and found != APPLICATION_ID:
            raise StoreError(f"{self.path} is a database of another program")
        self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._database.executescript(_TABLES)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        import sqlite3

        try:
            with self._database:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Keep measurements; one of the same device, stack, operation, shape, dtype and layout is replaced."""
        self._write(
            "INSERT OR REPLACE INTO measurements VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            ((*m[:5], shape_text(m.shape), *m[6:]) for m in measurements),
        )

    def rows(self, device: str | None = None, operation: str | None = None) -> list[Measurement]:
        """Measurements of a device (all) and an operation (all), in the order of their keys."""
        conditions = {"device": device, "operation": operation}
        chosen = {name: value for name, value in conditions.items() if value is not None}
        where = " WHERE " + " AND ".join(f"{name} = ?" for name in chosen) if chosen else ""
        found = self._read(f"SELECT * FROM measurements{where} ORDER BY 1, 3, 4, 5, 6, 2", tuple(chosen.values()))
        return [Measurement._make((*row[:5], json.loads(row[5]), *row[6:])) for row in found]

    def summary(self) -> list[tuple[Any, ...]]:
        """Rows (device, operation, dtype, stack, number of measurements, newest date)."""
        return self._read(
            "SELECT device, operation, dtype, stack, count(*), max(date) FROM measurements GROUP BY 1, 2, 3, 4", ()
        )

    def add_device(self, name: str, facts: dict[str, Any]) -> None:
        """Keep the facts of a device that hardware_db does not know (see `hardware.own`)."""
        self._write("INSERT OR REPLACE INTO devices VALUES (?,?)", [(name, json.dumps(facts, sort_keys=True))])

    def device(self, name: str) -> dict[str, Any] | None:
        """Facts of a device of the user's own."""
        found = self._read("SELECT facts FROM devices WHERE name = ?", (name,))
        return json.loads(found[0][0]) if found else None

    def add_run(self, run: CalibrationRun) -> None:
        """Keep a calibration run; one of the same device, framework and label is replaced."""
        self._write(
            "INSERT OR REPLACE INTO training_runs VALUES (?,?,?,?,?,?,?,?,?)",
            [(*run[:7], json.dumps(run.weights), run.date)],
        )

    def runs(self, device: str, framework: str | None = None) -> list[CalibrationRun]:
        """Calibration runs of a device, of one framework if given."""
        found = self._read("SELECT * FROM training_runs WHERE device = ? ORDER BY framework, label", (device,))
        runs = [CalibrationRun._make((*row[:7], json.loads(row[7]), row[8])) for row in found]
        return [run for run in runs if framework is None or run.framework == framework]

    def _read(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        import sqlite3

        try:
            return list(self._database.execute(statement, values))
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None


def _quoted(path: str) -> str:
    return os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
