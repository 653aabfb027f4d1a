from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_lint.source.edits import write_atomic


def test_the_content_changes_and_the_mode_stays(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"old")
    file.chmod(0o640)
    before = file.stat().st_ino
    write_atomic(str(file), b"new\r\n")
    assert file.read_bytes() == b"new\r\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.stat().st_ino != before  # put in place whole, not written over
    assert os.listdir(tmp_path) == ["f.yaml"]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file = tmp_path / "real" / "f.yaml"
    file.write_bytes(b"old")
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    write_atomic(str(link), b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"


def test_a_new_file(tmp_path: Path) -> None:
    write_atomic(str(tmp_path / "f.yaml"), b"new")
    assert (tmp_path / "f.yaml").read_bytes() == b"new"


def test_what_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(str(file), b"new")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f.yaml"]
    with pytest.raises(OSError):
        write_atomic(str(tmp_path / "no" / "f.yaml"), b"new")
