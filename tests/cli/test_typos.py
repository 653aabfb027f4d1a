"""What a slip of the user's own hand leads to: it is said, where it is, and never lets a recipe pass unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CLEAN = "configs/clean-llama3.1_8B.yaml"
OOM = "configs/oom-llama3.1_70B.yaml"
SLOW = "configs/slow-mixtral_8x7B.yaml"
TARGET = ("--gpu", "mi300x", "--nodes", "1")


def findings(result: Any) -> list[dict[str, Any]]:
    data: dict[str, Any] = json.loads(result.stdout)
    return list(data["findings"])


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_misspelt_modules_is_no_reason_to_pass_over_a_file(repo: Path, lint: Any) -> None:
    edit(repo / CLEAN, "modules:", "moduls:")
    result = lint("--output-format", "json", *TARGET, "configs")
    assert result.exit_code == 2
    [found] = [item for item in findings(result) if item["name"] == "modules-missing"]
    assert "did you mean modules?" in found["message"]
    assert (repo / CLEAN).read_text().splitlines()[found["span"]["line"] - 1].startswith("moduls:")


def test_files_that_are_no_experiments_stay_unread(repo: Path, lint: Any) -> None:
    (repo / "other").mkdir()
    (repo / "other" / "a.yaml").write_text("work_group: a\nuser_name: b\nexp: c\ndatasets:\n  x: 1\n")
    (repo / "other" / "b.yaml").write_text("module:\n  x: 1\n")
    assert lint("--output-format", "json", "other").exit_code == 0


def test_misspelt_overrides_are_told_once_and_renamed(repo: Path, lint: Any) -> None:
    before = (repo / CLEAN).read_bytes()
    edit(repo / CLEAN, "overrides:", "overides:")
    result = lint("--output-format", "json", *TARGET, CLEAN)
    assert result.exit_code == 1
    [found] = [item for item in findings(result) if item["name"] == "unknown-key"]
    assert found["severity"] == "error"
    assert "did you mean overrides?" in found["message"]
    text = (repo / CLEAN).read_bytes()
    assert text[found["span"]["byte_start"] : found["span"]["byte_end"]] == b"overides"
    assert lint("fix", "--no-tune", *TARGET, CLEAN).exit_code == 0
    assert (repo / CLEAN).read_bytes() == before
