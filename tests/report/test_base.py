"""`--base REV`: what changed, before and after, and the rule that says a change costs speed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from primus_lint.settings import forget_settings
from tests.report.conftest import CLEAN, ILLEGAL, OOM, SLOW, git

FULL = "      weight_decay: 0.1\n      recompute_granularity: full\n      recompute_method: uniform\n      recompute_num_layers: 1"


def slow_down(path: Path) -> None:
    """Recompute every layer: a third more work."""
    text = path.read_text()
    assert "      weight_decay: 0.1" in text
    path.write_text(text.replace("      weight_decay: 0.1", FULL))


def compared(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {file["path"]: file for file in data["summary"]["base"]["files"]}


def test_nothing_changed(git_repo: Path, lint: Any, report: Any) -> None:
    assert compared(report("--base", "HEAD", "configs")) == {}
    assert lint("--base", "HEAD", CLEAN).exit_code == 0


def test_a_slower_recipe_is_a_regression_at_its_changed_key(git_repo: Path, report: Any, lint: Any) -> None:
    before = report(CLEAN)["files"][0]
    slow_down(git_repo / CLEAN)
    data = report("--base", "HEAD", CLEAN)
    after = data["files"][0]
    file = compared(data)[CLEAN]
    assert file["before"]["tokens_per_s_per_gpu"] == before["time"]["tokens_per_s_per_gpu"]
    assert file["after"]["tokens_per_s_per_gpu"] == after["time"]["tokens_per_s_per_gpu"]
    for side, whole in ((file["before"], before), (file["after"], after)):
        high = max(rank["device_high_bytes"] for rank in whole["memory"]["ranks"])
        assert side["headroom_bytes"] == whole["memory"]["capacity_bytes"] - high
    assert file["changed_keys"]["recompute_granularity"] == [None, "full"]
    [finding] = [finding for finding in data["findings"] if finding["name"] == "projected-regression"]
    line = (git_repo / CLEAN).read_text().splitlines()[finding["span"]["line"] - 1]
    assert line.strip().startswith("recompute_")
    assert lint("--base", "HEAD", CLEAN).exit_code == 1
    assert lint("--base", "HEAD", "--max-regression", "40", CLEAN).exit_code == 0
    for words in (("--base", "HEAD", "--max-regression", "-1"), ("--max-regression", "3")):
        assert lint(*words, CLEAN).exit_code == 2
    assert lint(CLEAN).exit_code == 0


def test_a_faster_or_a_new_recipe_is_none(git_repo: Path, report: Any, lint: Any) -> None:
    lint("--fix", "--no-tune", SLOW)
    (git_repo / "configs" / "new.yaml").write_text((git_repo / CLEAN).read_text())
    data = report("--base", "HEAD", "configs/new.yaml", SLOW, CLEAN)
    files = compared(data)
    assert set(files) == {"configs/new.yaml", SLOW}
    assert files["configs/new.yaml"]["before"] is None and files["configs/new.yaml"]["verdict"] == "new"
    assert files[SLOW]["verdict"].startswith("+")
    assert "projected-regression" not in [finding["name"] for finding in data["findings"]]


def test_a_renamed_recipe_is_compared_with_what_it_was(git_repo: Path, report: Any, lint: Any) -> None:
    """As git tells renames: a plain `mv`, added, or committed; also into another folder, with a parent beside the old place."""
    child = git_repo / "configs" / "child.yaml"
    child.write_text(
        "extends: clean-llama3.1_8B.yaml\nexp_name: a child of the clean recipe with a longer text of its own\n"
    )
    git(git_repo, "add", "-A")
    git(git_repo, "commit", "-q", "-m", "child")
    (git_repo / "configs/other").mkdir()
    git(git_repo, "mv", CLEAN, "configs/other/renamed.yaml")
    git(git_repo, "mv", "configs/child.yaml", "configs/other/child.yaml")
    on = ("--gpu", "mi300x", "--nodes", "1")
    moved = git_repo / "configs/other/child.yaml"
    moved.write_text(moved.read_text().replace("clean-llama3.1_8B", "renamed"))
    files = compared(report("--base", "HEAD", *on, "configs/other"))
    assert {path: file["renamed_from"] for path, file in files.items()} == {
        "configs/other/child.yaml": "configs/child.yaml",
        "configs/other/renamed.yaml": CLEAN,
    }
    assert {file["verdict"] for file in files.values()} == {"as fast"}
    git(git_repo, "reset", "-q")  # git knows neither the new names nor that the old ones are gone
    status = git(git_repo, "status", "--short")
    again = compared(report("--base", "HEAD", *on, "configs/other"))
    assert {path: file["renamed_from"] for path, file in again.items()} == {
        path: file["renamed_from"] for path, file in files.items()
    }
    assert git(git_repo, "status", "--short") == status
    git(git_repo, "add", "-A")
    slow_down(git_repo / "configs/other/renamed.yaml")
    git(git_repo, "commit", "-q", "-am", "moved")
    out = lint("--base", "HEAD~1", *on, "configs/other").stdout
    assert out.count("[projected-regression]") == 2 and f"against HEAD~1 ({CLEAN}):" in out
    files = compared(report("--base", "HEAD~1", *on, "configs/other"))
    assert all(file["verdict"].startswith("-") for file in files.values()) and len(files) == 2


def test_what_did_not_fit_had_no_speed_to_lose(git_repo: Path, report: Any) -> None:
    path = git_repo / OOM
    path.write_text(path.read_text().replace("micro_batch_size: 4", "micro_batch_size: 1"))
    slow_down(path)
    data = report("--base", "HEAD", OOM)
    assert compared(data)[OOM]["verdict"] == "fits now"
    assert "projected-regression" not in [finding["name"] for finding in data["findings"]]
    git(git_repo, "commit", "-q", "-am", "repaired")
    git(git_repo, "checkout", "-q", "HEAD~1", "--", OOM)
    data = report("--base", "HEAD", OOM)
    assert compared(data)[OOM]["verdict"] == "no longer fits"
    assert [finding["name"] for finding in data["findings"] if finding["severity"] == "error"] == ["hbm-overflow"]


def test_a_changed_parent_changes_its_children(git_repo: Path, report: Any) -> None:
    child = git_repo / "configs" / "child.yaml"
    child.write_text("extends: [clean-llama3.1_8B.yaml]\nexp_name: child\n")
    git(git_repo, "add", "-A")
    git(git_repo, "commit", "-q", "-m", "child")
    slow_down(git_repo / CLEAN)
    files = compared(report("--base", "HEAD", "configs/child.yaml"))
    assert files["configs/child.yaml"]["verdict"].startswith("-")
    # A parent that is gone by now is read as it was.
    (git_repo / CLEAN).rename(git_repo / "configs" / "moved.yaml")
    child.write_text("extends: [moved.yaml]\nexp_name: child\n")
    files = compared(report("--base", "HEAD", "configs/child.yaml"))
    assert files["configs/child.yaml"]["verdict"].startswith("-")


def test_a_branch_is_compared_with_where_it_began(git_repo: Path, report: Any) -> None:
    git(git_repo, "checkout", "-q", "-b", "mine")
    git(git_repo, "checkout", "-q", "main")
    slow_down(git_repo / CLEAN)
    git(git_repo, "commit", "-q", "-am", "main went on")
    git(git_repo, "checkout", "-q", "mine")
    forget_settings()
    assert set(compared(report("--base", "main", "configs"))) == {CLEAN}
    assert set(compared(report("--base", "main...", "configs"))) == set()


def test_the_target_of_the_new_text_holds_for_both(git_repo: Path, report: Any) -> None:
    path = git_repo / CLEAN
    path.write_text("# primus-lint: target gpu=h200 nodes=2\n" + path.read_text())
    (git_repo / "primus-lint.toml").unlink()
    forget_settings()
    file = compared(report("--base", "HEAD", CLEAN))[CLEAN]
    assert file["verdict"] == "as fast"
    assert file["before"] == file["after"]


def test_another_model_is_compared_by_its_arithmetic(git_repo: Path, report: Any) -> None:
    """Four times the layers train far fewer tokens/s, but that is no slower recipe: TFLOP/s are compared."""
    path = git_repo / CLEAN
    whole = path.read_text()
    path.write_text(whole.replace("      weight_decay: 0.1", "      weight_decay: 0.1\n      num_layers: 8"))
    git(git_repo, "commit", "-q", "-am", "eight layers")
    path.write_text(whole)
    data = report("--base", "HEAD", CLEAN)
    file = compared(data)[CLEAN]
    assert file["after"]["tokens_per_s_per_gpu"] < 0.5 * file["before"]["tokens_per_s_per_gpu"]
    assert "projected-regression" not in [finding["name"] for finding in data["findings"]]


def test_the_gate_in_other_formats(git_repo: Path, lint: Any) -> None:
    slow_down(git_repo / CLEAN)
    for form in ("text", "markdown", "html"):
        out = lint("--base", "HEAD", "--output-format", form, CLEAN, ILLEGAL).stdout
        assert "→" in out and re.search(r"-\d+\.\d%", out), form
    assert "No recipe changed against `HEAD`" in lint("--base", "HEAD", "--output-format", "markdown", SLOW).stdout


@pytest.mark.parametrize("revision", ["nonsense", "--output=x", "nonsense...", "HEAD:configs"])
def test_a_revision_that_does_not_exist_is_a_wrong_use(git_repo: Path, lint: Any, revision: str) -> None:
    result = lint(f"--base={revision}", CLEAN)
    assert result.exit_code == 2
    assert "--base" in result.stderr


def test_without_git_it_is_a_wrong_use(repo: Path, lint: Any) -> None:
    assert lint("--base", "HEAD", CLEAN).exit_code == 2
