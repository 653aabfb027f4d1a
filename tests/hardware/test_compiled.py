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
    lean = compiled.from_lines((tmp_path / compiled.NAME).read_text(encoding="utf-8"))
    assert list(lean["accelerators"]) == list(fresh["accelerators"])
    assert not dict.keys(lean["accelerators"])  # nothing is parsed before it is asked for
    assert "facts" not in lean["accelerators"]["h100"] and "sources" not in lean
    assert lean["accelerators"]["h100"]["visible"] == fresh["accelerators"]["h100"]["visible"]
    assert len((tmp_path / compiled.NAME).read_bytes()) < 250_000


def test_an_old_copy_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "DATA", str(tmp_path))
    path = tmp_path / compiled.NAME
    empty = '\t\t{"aliases": {}}\n'
    path.write_text(empty, encoding="utf-8")
    assert compiled.load() == {"accelerators": {}, "nodes": {}, "aliases": {}}  # newer than every source
    os.utime(path, (1, 1))
    assert "mi300x" in compiled.load()["accelerators"]
    assert "accelerators\tmi300x\t" in path.read_text(encoding="utf-8")  # and kept
    path.write_text(empty, encoding="utf-8")
    os.utime(path, (1, 1))
    monkeypatch.setattr(resources, "is_checkout", lambda: False)  # a wheel trusts what it carries
    assert compiled.load()["aliases"] == {}


def test_without_a_copy_the_sources_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "DATA", str(tmp_path))
    assert compiled.load()["aliases"]["mi300x"] == "mi300x"
    assert compiled.load(full=True)["accelerators"]["mi300x"]["facts"]
