"""A server process in a scratch copy of the example repository."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.client import Client

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A copy of examples/ in an empty repository."""
    from primus_lint.settings import forget_settings

    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    (tmp_path / ".git").mkdir()
    forget_settings()
    return tmp_path


@pytest.fixture
def client(repo: Path) -> Iterator[Client]:
    """A started server; it must have ended well, with nothing on standard error, when the test is over."""
    found = Client(repo)
    try:
        found.start()
        yield found
        assert found.stop() == 0
        assert found.process.stderr is not None
        assert found.process.stderr.read().decode() == ""
    finally:
        found.kill()
