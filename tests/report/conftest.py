"""The scratch repository of the command-line tests, a real git one, and reports of the corpus."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import lint, repo

__all__ = ["lint", "repo"]

SHARED = Path(__file__).resolve().parents[3] / "shared"
CLEAN = "configs/clean-llama3.1_8B.yaml"
OOM = "configs/oom-llama3.1_70B.yaml"
ILLEGAL = "configs/illegal-qwen2.5_7B.yaml"
SLOW = "configs/slow-mixtral_8x7B.yaml"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def git_repo(repo: Path) -> Path:
    """The scratch repository with one commit."""
    (repo / ".git").rmdir()
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "first")
    return repo


@pytest.fixture
def report(lint: Any) -> Any:
    """The JSON report of a check."""

    def call(*words: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(lint("--output-format", "json", *words).stdout)
        return data

    return call


@pytest.fixture(scope="session")
def corpus_words() -> list[str]:
    """Command-line words that check the corpus of real experiments."""
    folder = SHARED / "corpus" / "primus"
    if not folder.is_dir():
        pytest.skip("the corpus of real experiments (../shared/corpus/primus) is not at hand")
    return ["--primus-root", str(folder), str(folder)]
