"""The hooks through the real `pre-commit`, and the steps of the composite action through bash. Both install the package
in an environment of its own from a clone of this checkout, which takes minutes:

    python -m pytest -m slow tests/report/test_hooks.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.report.conftest import CLEAN, OOM, SLOW, git

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def slow(request: pytest.FixtureRequest) -> None:
    if "slow" not in request.config.option.markexpr:
        pytest.skip("slow: run with -m slow")


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed here, as a user would get it, with this working tree's hook and action files."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: there is nothing to install a hook from")
    folder = tmp_path_factory.mktemp("clone") / "primus-lint"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


def environment(tmp: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "PRE_COMMIT", "GIT_"))}
    return {**own, "PRE_COMMIT_HOME": str(tmp / "pre-commit"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def test_hook_files_name_what_exists() -> None:
    from primus_lint.cli.options import CHECK

    flags = {option.flag for option in CHECK}
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {hook["id"] for hook in hooks} == {"primus-lint", "primus-lint-fix"}
    for hook in hooks:
        program, command, *words = hook["entry"].split()
        assert (program, command) == ("primus-lint", "check") and set(words) <= flags
        assert "--hook" in words and hook["require_serial"] is True


def test_the_documentation_names_what_exists() -> None:
    from primus_lint.cli.options import CHECK, FORMATS

    text = (ROOT / "docs" / "ci.md").read_text()
    others = {"--files", "--quiet"}  # of pre-commit, pip and git
    flags = set(re.findall(r"--[a-z][a-z-]+", text)) - others
    assert flags <= {option.flag for option in CHECK}
    table = text[text.index("| format | for |") :].split("\n\n")[0]
    named = set(re.findall(r"`([a-z]+)`", "".join(row.split("|")[1] for row in table.splitlines())))
    assert named == set(FORMATS)
    settings = re.search(r"```toml\n(.*?)```", text, re.S)
    assert settings is not None
    from primus_lint.settings import Settings
    from primus_lint.settings_check import fill

    read = Settings("primus-lint.toml")
    fill(read, {"severity": dict(re.findall(r'([\w-]+) = "(\w+)"', settings[1]))}, settings[1])
    assert read.problems == [] and read.severity == (("hbm-tight", "error"), ("T", "info"))


@pytest.mark.slow
def test_pre_commit(slow: None, git_repo: Path, clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Passes on a clean recipe and on YAML that is none, fails on the one that runs out of memory; the fix hook writes."""
    pytest.importorskip("pre_commit", reason="pre-commit is not installed (extra `dev`)")
    (git_repo / "values.yaml").write_text("replicas: 3\n")
    git(git_repo, "add", "-A")
    where = environment(tmp_path_factory.mktemp("home"))

    def run(hook: str, *files: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "pre_commit", "try-repo", str(clone), hook, "--files", *files]
        return subprocess.run(words, cwd=git_repo, env=where, capture_output=True, text=True, check=False)

    passed = run("primus-lint", CLEAN, "values.yaml")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "Passed" in passed.stdout
    failed = run("primus-lint", CLEAN, OOM)
    assert failed.returncode == 1
    assert "error[hbm-overflow]" in failed.stdout and f"{OOM}:13:" in failed.stdout
    text = (git_repo / SLOW).read_text()
    fixed = run("primus-lint-fix", SLOW)
    assert fixed.returncode == 1 and "files were modified by this hook" in fixed.stdout
    assert (git_repo / SLOW).read_text() != text
    again = run("primus-lint-fix", SLOW)
    assert again.returncode == 0, again.stdout + again.stderr


def steps() -> list[dict[str, Any]]:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    found: list[dict[str, Any]] = action["runs"]["steps"]
    return found


def test_inputs_of_the_action_reach_its_scripts_by_environment_only() -> None:
    """An input that were pasted into a script could hold commands."""
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    used = set()
    for step in steps():
        assert "${{" not in step["run"] and step["shell"] == "bash"
        used |= {text.split("inputs.")[1].split(" ")[0] for text in step["env"].values() if "inputs." in text}
    assert used == set(inputs)


@pytest.mark.slow
def test_the_action(slow: None, git_repo: Path, clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both steps as the runner would run them: annotations, SARIF, summary, status; --base of a pull request."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    home = tmp_path_factory.mktemp("runner")
    (git_repo / CLEAN).write_text((git_repo / CLEAN).read_text().replace("micro_batch_size: 2", "micro_batch_size: 1"))
    git(git_repo, "commit", "-q", "-am", "smaller micro-batch")
    where = {
        **environment(home), "RUNNER_TEMP": str(home), "ACTION_PATH": str(clone), "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(home / "output"), "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
        "INPUT_PYTHON": sys.executable, "INPUT_FILES": f"{CLEAN}\n{OOM}\n", "INPUT_ARGS": "--gpu\nmi300x\n--nodes\n1\n",
        "INPUT_BASE": "auto", "PULL_BASE": git(git_repo, "rev-parse", "HEAD~1").strip(), "INPUT_SARIF": "out.sarif",
        "INPUT_HTML": "out.html",
    }  # fmt: skip
    install, check = steps()
    subprocess.run(["bash", "-c", install["run"]], cwd=git_repo, env=where, check=True)
    done = subprocess.run(
        ["bash", "-c", check["run"]], cwd=git_repo, env=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"::error file={OOM},line=13," in done.stdout
    assert (home / "output").read_text() == "status=1\n"
    summary = (home / "summary.md").read_text()
    assert "Changed against" in summary and CLEAN in summary
    assert (git_repo / "out.sarif").stat().st_size > 1000
    assert "<!doctype html>" in (git_repo / "out.html").read_text()
    where["INPUT_FILES"], where["INPUT_BASE"] = f"{CLEAN}\n", ""
    done = subprocess.run(
        ["bash", "-c", check["run"]], cwd=git_repo, env=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
