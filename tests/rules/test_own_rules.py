"""Rules of one's own: YAML in `rule-paths`, and checks in code that an installed package offers by entry point."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import lint, repo

__all__ = ["lint", "repo"]

RULE = """\
code: Z101
name: house-budget
severity: warning
check: "house:budget"
message: "a larger batch than we pay for"
what: The global batch is at most 64.
why: The budget ends there.
examples:
  - bad: {global_batch_size: 128}
  - good: {global_batch_size: 64}
"""
CHECK = """\
from primus_lint.rules.engine import make

def budget(run, lowered, rule):
    if run.batch.global_batch_size > 64:
        yield make(rule, lowered, "a larger batch than we pay for", ("global_batch_size",))
"""


@pytest.fixture
def package(repo: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with the entry point, and a repository whose settings name the rule's folder."""
    site = tmp_path_factory.mktemp("site")
    (site / "our_lint.py").write_text(CHECK)
    info = site / "our_lint-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-lint\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[primus_lint.checks]\nhouse = our_lint\n")
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    rules = repo / "lint-rules"
    rules.mkdir()
    (rules / "Z101-house-budget.yaml").write_text(RULE)
    settings = repo / "primus-lint.toml"
    settings.write_text('rule-paths = ["lint-rules"]\n' + settings.read_text())
    return site


@pytest.fixture(autouse=True)
def shipped_rules_again() -> Any:
    yield
    from primus_lint.rules.catalogue import use_rule_paths

    use_rule_paths(())
    sys.modules.pop("our_lint", None)


def test_a_check_in_code_of_an_installed_package(package: Path, repo: Path, lint: Any) -> None:
    text = lint("configs/clean-llama3.1_8B.yaml").stdout
    assert "warning[house-budget]: a larger batch than we pay for  Z101" in text
    assert "global_batch_size: 128" in text
    assert lint("test-rules", "lint-rules").exit_code == 0


def test_a_check_that_nobody_offers_is_a_wrong_use(package: Path, repo: Path, lint: Any) -> None:
    rule = repo / "lint-rules" / "Z101-house-budget.yaml"
    rule.write_text(RULE.replace("house:budget", "house:nothing"))
    result = lint("configs/clean-llama3.1_8B.yaml")
    assert result.exit_code == 2
    assert "names no function that is there" in result.stderr


PLAIN = RULE.replace('check: "house:budget"', "require: {condition}").partition("examples:")[0]


def test_a_rule_that_can_say_nothing_is_told(repo: Path, lint: Any) -> None:
    """A file that is not called like a rule, and a condition on a key that no recipe has."""
    from primus_lint.rules.catalogue import use_rule_paths

    (repo / "lint-rules").mkdir()
    settings = repo / "primus-lint.toml"
    settings.write_text('rule-paths = ["lint-rules"]\n' + settings.read_text())
    rule = repo / "lint-rules/Z101-house-budget.yaml"
    rule.write_text(PLAIN.format(condition="globl_batch_size <= 64"))
    (repo / "lint-rules/mine.yaml").write_text(PLAIN.format(condition="global_batch_size <= 64"))
    for words in (["configs"], ["test-rules", "lint-rules"]):
        said = lint(*words).stderr.splitlines()
        assert sum("mine.yaml is passed over" in line for line in said) == 1
        assert sum("names globl_batch_size" in line and "near: global_batch_size" in line for line in said) == 1
    (repo / "lint-rules/mine.yaml").unlink()
    use_rule_paths(())  # as another process
    rule.write_text(PLAIN.format(condition="global_batch_size <= 64 * dp and env_HOME is None and given_lr < 1"))
    assert lint("configs").stderr == ""


def test_a_malformed_rule_is_told_by_its_tests(repo: Path, lint: Any) -> None:
    (repo / "lint-rules").mkdir()
    (repo / "lint-rules/Z101-x.yaml").write_text("code: Z101\n")
    result = lint("test-rules", "lint-rules")
    assert (
        result.exit_code == 2 and "Z101-x.yaml: name is missing" in result.stderr and "Traceback" not in result.stderr
    )


def test_excluded_files_are_left_out_of_folders_and_hooks(repo: Path, lint: Any) -> None:
    settings = repo / "primus-lint.toml"
    settings.write_text('exclude = ["oom-*", "illegal-*"]\n' + settings.read_text())
    oom = "configs/oom-llama3.1_70B.yaml"
    assert lint("configs").exit_code == 0
    assert lint("--hook", oom).exit_code == 0
    assert lint(oom).exit_code == 1


def test_an_output_that_cannot_be_written_is_a_wrong_use(repo: Path, lint: Any) -> None:
    result = lint("--output-format", "json", "--output", "nowhere/report.json", "configs")
    assert result.exit_code == 2
    assert "--output nowhere/report.json cannot be written" in result.stderr
