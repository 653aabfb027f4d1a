"""`tune --agent`: opt-in, dry run, where the endpoint and its key come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from primus_lint.settings import Settings
from primus_lint.tune.agent.endpoint import Endpoint, endpoint
from tests.cli.conftest import lint, repo
from tests.tune.agent.server import Script, serving, tools

__all__ = ["lint", "repo"]

SLOW = "configs/slow-mixtral_8x7B.yaml"
NARROW = (
    "--limit", "pipeline_model_parallel_layout=null", "--limit", "context_parallel_size=1", "--limit", "cp_comm_type=p2p",
    "--limit", "num_virtual_stages_per_pipeline_rank=null",
)  # fmt: skip
DONE = tools(("finish", {}))


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PRIMUS_LINT_AGENT_URL",
        "PRIMUS_LINT_AGENT_MODEL",
        "PRIMUS_LINT_AGENT_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


def test_without_an_endpoint_everything_else_works(repo: Path, lint: Any) -> None:
    plain, asked = lint("tune", *NARROW, SLOW), lint("tune", *NARROW, "--agent", SLOW)
    assert asked.exit_code == 0 and asked.stdout == plain.stdout
    assert "no agent: set PRIMUS_LINT_AGENT_URL" in asked.stderr and "no agent" not in plain.stderr


def test_it_is_asked_only_when_told_to(repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(DONE)
    with serving(script) as url:
        monkeypatch.setenv("PRIMUS_LINT_AGENT_URL", url)
        monkeypatch.setenv("PRIMUS_LINT_AGENT_MODEL", "m")
        lint("tune", *NARROW, SLOW)
        lint("--fix", "--diff", SLOW)
        assert script.requests == []
        shown = lint("tune", *NARROW, "--agent-dry-run", SLOW)
        assert script.requests == [] and "would be sent to" in shown.stderr and not (repo / "trials.jsonl").exists()
        result = lint("tune", *NARROW, "--agent", SLOW)
    assert len(script.requests) == 1 and script.requests[0]["model"] == "m"
    assert "agent: 0 trials" in result.stderr and (repo / "trials.jsonl").exists()
    request = json.dumps(script.requests[0], indent=1)
    assert request in shown.stderr  # the dry run shows exactly what is sent


def test_what_it_finds_outside_of_the_grid_is_written_like_anything_else(repo: Path, lint: Any) -> None:
    keep = ("--keep", "micro_batch_size")
    base = json.loads(lint("tune", "--json", *NARROW, *keep, SLOW).stdout)[0]["sections"][0]
    changes = {
        **base["best"]["changes"],
        "recompute_granularity": None,
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    changes |= {"pipeline_model_parallel_size": 1, "tensor_model_parallel_size": 1}
    script = Script(tools(("evaluate", {"changes": changes})), tools(("evaluate", {"changes": {"lr": 3}})), DONE)
    with serving(script) as url:
        data = json.loads(
            lint("tune", "--json", *NARROW, *keep, "--agent", "--agent-url", url, "--agent-model", "m", SLOW).stdout
        )[0]
    assert data["agent"] and "2 trials" in data["agent"][0]
    assert data["sections"][0]["best"]["iteration_s"] <= base["best"]["iteration_s"]
    assert "lr: 3" not in data["text"] if "text" in data else True


def settings(url: str | None, model: str | None) -> Settings:
    found = Settings()
    found.agent_url, found.agent_model = url, model
    return found


@pytest.mark.parametrize(
    ("values", "env", "told", "wanted"),
    [
        ({}, {}, None, "no agent: set"),
        ({}, {}, "https://from.settings/v1", Endpoint("https://from.settings/v1", "s", "")),
        ({}, {"OPENAI_API_KEY": "k"}, "https://from.settings/v1", Endpoint("https://from.settings/v1", "s", "")),
        ({}, {"PRIMUS_LINT_AGENT_KEY": "k"}, "https://from.settings/v1", Endpoint("https://from.settings/v1", "s", "k")),
        ({}, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://env/v1/"}, "https://x/v1", Endpoint("https://env/v1", "s", "k")),
        ({"agent_url": "https://cli/v1", "agent_model": "c"}, {"OPENAI_BASE_URL": "https://env/v1"}, None,
         Endpoint("https://cli/v1", "c", "")),
        ({}, {"PRIMUS_LINT_AGENT_KEY": "k"}, "http://far.away/v1", "not sent over plain http to far.away"),
        ({}, {"PRIMUS_LINT_AGENT_KEY": "k"}, "http://localhost:1/v1", Endpoint("http://localhost:1/v1", "s", "k")),
        ({}, {}, "ftp://x/v1", "no base URL"),
        ({}, {}, "https://user:pass@x/v1", "no base URL"),
        ({}, {}, "https://x/v1?key=1", "no base URL"),
    ],
)  # fmt: skip
def test_endpoints(
    values: dict[str, Any],
    env: dict[str, str],
    told: str | None,
    wanted: Endpoint | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = endpoint(values, settings(told, "s" if told else None))
    assert found == wanted if isinstance(wanted, Endpoint) else isinstance(found, str) and wanted in found
