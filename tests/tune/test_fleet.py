"""The same task on a cluster of Dask workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("distributed", reason="extra `fleet`")

from distributed import LocalCluster

from tests.cli.conftest import lint, repo
from tests.tune.test_command import NARROW

__all__ = ["lint", "repo"]


def plain(text: str) -> Any:
    found = json.loads(text)
    for data in found:
        for section in data.get("sections", ()):
            if section["certificate"]:
                section["certificate"]["seconds"] = 0
    return found


def test_a_cluster_finds_what_one_process_finds(repo: Path, lint: Any) -> None:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        words = ("tune", "--json", *NARROW, str(repo / "configs"))
        spread = lint(*words, "--cluster", cluster.scheduler_address)
    alone = lint(*words)
    assert plain(spread.stdout) == plain(alone.stdout) and spread.exit_code == alone.exit_code
    assert len(plain(alone.stdout)) >= 3


def test_without_a_scheduler_it_says_so(repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primus_lint.tune.fleet.CONNECT_S", 0.2)
    result = lint("tune", "configs", "--cluster", "tcp://127.0.0.1:9")
    assert result.exit_code == 2 and "no Dask scheduler at tcp://127.0.0.1:9" in result.stderr
