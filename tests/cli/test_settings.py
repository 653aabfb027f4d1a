"""Settings at work: entries that nothing needs, and rules under their former names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_lint.settings import forget_settings

CLEAN = "configs/clean-llama3.1_8B.yaml"
OOM = "configs/oom-llama3.1_70B.yaml"
RULE = """\
code: Z201
name: house-batch
aliases: [batch-of-the-house, Z007]
severity: error
profile: recommended
require: global_batch_size % 96 == 0
message: "our batches are multiples of 96"
what: House rule.
why: Our data loader.
"""


def settle(repo: Path, text: str) -> None:
    settings = repo / "primus-lint.toml"
    old = settings.read_text()
    settings.write_text(text.replace("...", old))
    forget_settings()


def test_ignores_of_files_that_nothing_needs_are_told(repo: Path, lint: Any) -> None:
    settle(
        repo,
        '...\n[per-file-ignores]\n"configs/oom*" = ["hbm-overflow", "tp-divides-heads"]\n"gone/" = ["T"]\n'
        '"configs/*" = ["projected-regression"]\n',  # judged only against a base revision
    )
    lines = [line for line in lint(".").stderr.splitlines() if "unused-per-file-ignore" in line]
    assert len(lines) == 2, lines
    place = (repo / "primus-lint.toml").read_text().splitlines().index('"gone/" = ["T"]') + 1
    assert f"primus-lint.toml:{place - 1}:1: warning" in lines[0] and "tp-divides-heads hides nothing" in lines[0]
    assert f"primus-lint.toml:{place}:1: warning" in lines[1] and "'gone/' matches no recipe" in lines[1]
    for words in ((OOM,), (".", "--select", "M")):  # part of the files, part of the rules
        assert "unused-per-file-ignore" not in lint(*words).stderr


def test_without_a_world_size_ignores_of_memory_rules_are_not_judged(repo: Path, lint: Any) -> None:
    (repo / "primus-lint.toml").write_text('[per-file-ignores]\n"configs/clean*" = ["hbm-tight"]\n')
    forget_settings()
    assert "unused-per-file-ignore" not in lint(".").stderr
    assert "hbm-tight hides nothing" in lint(".", "--gpu", "mi355x", "--nodes", "4").stderr


@pytest.fixture
def renamed(repo: Path) -> Any:
    """A repository with a rule that had another name and another code once."""
    from primus_lint.rules.catalogue import use_rule_paths

    (repo / "own").mkdir()
    (repo / "own" / "Z201-house-batch.yaml").write_text(RULE)
    settle(repo, 'rule-paths = ["own"]\n...')
    yield repo
    use_rule_paths(())


@pytest.mark.parametrize("former", ["batch-of-the-house", "Z007"])
def test_a_former_name_or_code_still_selects_and_suppresses(renamed: Path, lint: Any, former: str) -> None:
    clean = "configs/clean-llama3.1_8B.yaml"
    assert "house-batch" in lint(clean).stdout
    result = lint(clean, "--select", former)
    assert result.exit_code == 1 and "house-batch" in result.stdout
    assert f"select: {former} is called house-batch now" in result.stderr
    assert lint(clean, "--ignore", former).exit_code == 0
    assert lint("explain", former).stdout.startswith("house-batch (Z201)")
    path = renamed / clean
    path.write_text(f"# primus-lint: file-ignore[{former}] as ever\n" + path.read_text())
    result = lint(clean)
    assert result.exit_code == 0
    assert f"{former} is called house-batch now; the comment still holds" in result.stdout


def test_a_baseline_of_a_former_name_still_accepts(renamed: Path, lint: Any) -> None:
    assert lint("configs", "--select", "Z", "--update-baseline").exit_code == 0
    path = renamed / ".primus-lint-baseline.json"
    path.write_text(path.read_text().replace("house-batch", "batch-of-the-house"))
    result = lint("configs", "--select", "Z", "--baseline")
    assert result.exit_code == 0 and "no longer needed" not in result.output


def test_no_former_name_belongs_to_another_rule(renamed: Path, lint: Any) -> None:
    text = RULE.replace("Z201", "Z202").replace("house-batch", "house-other").replace("Z007", "hbm-overflow")
    (renamed / "own" / "Z202-house-other.yaml").write_text(text)
    forget_settings()
    result = lint("configs")
    assert result.exit_code == 2 and "names two rules" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["--diff", "--no-tune"],
        ["project"],
        ["explain"],
        ["config"],
        ["tune", "--json"],
        ["measure", "--dry-run", "--store", "s"],
    ],
)
def test_no_command_goes_on_with_settings_that_have_a_mistake(repo: Path, lint: Any, words: list[str]) -> None:
    settle(repo, 'selct = ["M"]\n...')
    result = lint(*words, "configs/clean-llama3.1_8B.yaml")
    assert result.exit_code == 2 and "did you mean `select`?" in result.output


def test_settings_that_cannot_be_read_are_told(repo: Path, lint: Any) -> None:
    """A link to nothing would leave the recipes judged by other rules than everybody thinks."""
    (repo / "primus-lint.toml").unlink()
    (repo / "primus-lint.toml").symlink_to("gone.toml")
    forget_settings()
    result = lint("--gpu", "mi300x", "--nodes", "1", CLEAN)
    assert result.exit_code == 2
    assert "error[settings-unreadable] cannot be read: No such file or directory (a link to gone.toml)" in result.stderr
