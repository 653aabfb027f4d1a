"""A scratch repository with the shipped examples, and a way to call the command line in this process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of examples/ in an empty repository; the working directory is its root."""
    from primus_lint.settings import forget_settings

    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)  # it chooses the default format
    forget_settings()
    return tmp_path


@pytest.fixture
def lint() -> Any:
    """Call `primus-lint` with some words; output and exit status in the result."""
    from primus_lint.cli.group import cli

    def call(*words: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, [str(word) for word in words], input=stdin, catch_exceptions=False)

    return call
