"""The compiled copy equals a compilation of the sources, and is not believed when a source is newer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from primus_lint import resources
from primus_lint.hardware import compiled


def test_written_files_are_what_is_compiled(tmp_path: Path) -> None:
    compiled.write_compiled(str(tmp_path))
    fresh = json.loads(json.dumps(compiled.compile_db(resources.data_root("hardware_db"))))
    assert json.loads((tmp_path / compiled.FULL_NAME).read_text(encoding="utf-8")) == fresh
    lean = json.loads((tmp_path / compiled.NAME).read_text(encoding="utf-8"))
    assert set(lean["accelerators"]) == set(fresh["accelerators"])
    assert "facts" not in lean["accelerators"]["h100"] and "sources" not in lean
    assert lean["accelerators"]["h100"]["visible"] == fresh["accelerators"]["h100"]["visible"]
    assert len((tmp_path / compiled.NAME).read_bytes()) < 250_000


def test_an_old_copy_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "DATA", str(tmp_path))
    path = tmp_path / compiled.NAME
    path.write_text('{"accelerators": {}}', encoding="utf-8")
    assert compiled.load() == {"accelerators": {}}  # newer than every source
    os.utime(path, (1, 1))
    assert "mi300x" in compiled.load()["accelerators"]
    assert "mi300x" in json.loads(path.read_text(encoding="utf-8"))["accelerators"]  # and kept
    path.write_text('{"accelerators": {}}', encoding="utf-8")
    os.utime(path, (1, 1))
    monkeypatch.setattr(resources, "is_checkout", lambda: False)  # a wheel trusts what it carries
    assert compiled.load() == {"accelerators": {}}


def test_without_a_copy_the_sources_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "DATA", str(tmp_path))
    assert compiled.load()["aliases"]["mi300x"] == "mi300x"
    assert compiled.load(full=True)["accelerators"]["mi300x"]["facts"]
