"""The store keeps what it is given, by its key, and nothing that is no measurement."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path

import pytest

from primus_lint.measure import where
from primus_lint.measure.errors import MeasureError
from primus_lint.measure.imports import Given, read
from primus_lint.measure.records import from_json
from primus_lint.measure.store import CalibrationRun, Store, StoreError
from primus_lint.projection.calibrate import Lesson

from .rows import row

GEMM = {"m": 4096, "n": 6144, "k": 4096}


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    kept = [row("gemm", "TN", GEMM, 4e-4), row("all_reduce", "nccl", {"bytes": 2**20, "ranks": 8, "nodes": 1}, 5e-5)]
    with Store(str(tmp_path / "deep" / "store.sqlite"), write=True) as store:
        store.add(kept)
    with Store(str(tmp_path / "deep" / "store.sqlite")) as store:
        assert sorted(store.rows("h100")) == sorted(kept)
        assert store.rows("h100", "gemm") == kept[:1]
        assert store.rows("mi300x") == []


def test_the_same_key_is_replaced_and_another_stack_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    with Store(path, write=True) as store:
        store.add([row("gemm", "TN", GEMM, 4e-4)])
        store.add([row("gemm", "TN", dict(reversed(GEMM.items())), 3e-4)])  # the order of a shape means nothing
        store.add([row("gemm", "TN", GEMM, 2e-4, stack="torch 2.12.0, cuda 12.9")])
        assert sorted(found.median_s for found in store.rows()) == [2e-4, 3e-4]


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE measurements (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(str(path), write=True)
    assert path.read_bytes() == before
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at as one " * 20)
    with pytest.raises(StoreError):
        Store(str(tmp_path / "text"))


def test_an_export_is_an_import(tmp_path: Path) -> None:
    kept = row("gemm", "NT", GEMM, 4e-4)
    path = tmp_path / "export.jsonl"
    path.write_text(json.dumps(kept.as_json()) + "\n\n")
    assert read(str(path), Given()) == [kept]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"median_s": 0.0}, "median_s"), ({"median_s": True}, "median_s"), ({"operation": "gemv"}, "operation"),
        ({"low_s": 1.0}, "low_s <= median_s"), ({"repetitions": 0}, "repetitions"), ({"shape": [1]}, "shape"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_measurement_is_refused_with_its_number(tmp_path: Path, change: object, said: str) -> None:
    good = row("gemm", "TN", GEMM, 4e-4).as_json()
    path = tmp_path / "export.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")  # type: ignore[dict-item]
    with pytest.raises(MeasureError, match=f"line 2: .*{said}"):
        read(str(path), Given())
    with pytest.raises(ValueError, match="lacks device"):
        from_json({})


def test_where_the_store_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(where.VARIABLE, "none")
    assert where.default_path() is None
    monkeypatch.setenv(where.VARIABLE, str(tmp_path / "mine"))
    assert where.default_path() == str(tmp_path / "mine")
    assert where.existing() is None
    monkeypatch.delenv(where.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert where.default_path() == str(tmp_path / "primus-lint" / "measured.sqlite")


def test_a_device_is_mentioned_when_it_was_measured_or_calibrated(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    with Store(path, write=True) as store:
        store.add([row("gemm", "TN", GEMM, 4e-4)])
        store.add_run(CalibrationRun("mi300x", "megatron", "a", 2.0, 1.0, 2.0, "m", {"gemm": 0.1}, "2026-08-01"))
        assert store.runs("mi300x")[0].lesson == Lesson(math.log(2.0), "m", (0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0))
        assert store.runs("mi300x", "torchtitan") == []
    assert where.mentions(path, "h100") and where.mentions(path, "mi300x")
    assert not where.mentions(path, "b200") and not where.mentions(str(tmp_path / "no"), "h100")
