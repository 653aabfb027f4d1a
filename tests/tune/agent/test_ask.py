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

CLEAN = "configs/clean-llama3.1_8B.yaml"
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


LIMITS = (
    "--keep", "tensor_model_parallel_size,pipeline_model_parallel_size,context_parallel_size,micro_batch_size",
    "--limit", "recompute_granularity=full", "--limit", "recompute_method=block",
)  # fmt: skip


def test_what_it_finds_outside_of_the_grid_is_written_and_verified_like_anything_else(repo: Path, lint: Any) -> None:
    """The grid steps from 14 to 16 recomputed layers; 15 is the model's idea, and fits."""
    path = repo / "wide.yaml"
    path.write_text((repo / CLEAN).read_text().replace("micro_batch_size: 2", "micro_batch_size: 4 # wide"))
    target = ("--gpu", "mi300x", "--nodes", "1", "--json", *LIMITS)
    alone = json.loads(lint("tune", *target, "wide.yaml").stdout)[0]["sections"][0]
    assert alone["after"] is not None and alone["changes"]["recompute_num_layers"] == 16
    ideas = [{**alone["changes"], "recompute_num_layers": number} for number in (13, 15, 17)]
    ideas.append({"global_batch_size": 8})
    script = Script(*(tools(("evaluate", {"changes": each})) for each in ideas), DONE)
    with serving(script) as url:
        words = ("--agent", "--agent-url", url, "--agent-model", "m", "--write")
        (data,) = json.loads(lint("tune", *target, *words, "wide.yaml").stdout)
    outcomes = [json.loads(m["content"]) for m in script.requests[-1]["messages"] if m["role"] == "tool"]
    assert "does_not_fit" in outcomes[0] and "may not change" in outcomes[-1]["rejected"]
    assert "step_s" in outcomes[1] and outcomes[1]["against_best"].startswith("+")
    section = data["sections"][0]
    assert section["written"] and section["changes"] == {**alone["changes"], "recompute_num_layers": 15}
    assert section["after"]["iteration_s"] < alone["after"]["iteration_s"] and section["after"]["fits"] is True
    assert "recompute_num_layers: 15" in path.read_text() and "micro_batch_size: 4 # wide" in path.read_text()
    assert "4 trials" in data["agent"][0] and "against the search" in data["agent"][0]


def test_a_dry_run_shows_what_a_resumed_session_would_send(repo: Path, lint: Any) -> None:
    script = Script(tools(("evaluate", {"changes": {"sequence_parallel": True}})), DONE)
    with serving(script) as url:
        words = (*NARROW, "--agent-url", url, "--agent-model", "m", SLOW)
        lint("tune", "--agent", *words)
        shown = lint("tune", "--agent-dry-run", *words)
        before = (repo / "trials.jsonl").read_bytes()
        lint("tune", "--agent", *words)
    assert json.dumps(script.requests[-1], indent=1) in shown.stderr and "earlier_sessions" in shown.stderr
    assert (repo / "trials.jsonl").read_bytes().startswith(before)


def test_a_log_that_cannot_be_written_is_said_and_nothing_is_sent(repo: Path, lint: Any) -> None:
    script = Script(DONE)
    with serving(script) as url:
        words = ("--agent", "--agent-url", url, "--agent-model", "m", "--trials", "nowhere/trials.jsonl")
        result = lint("tune", *NARROW, *words, SLOW)
    assert "the log nowhere/trials.jsonl cannot be used" in result.stderr and script.requests == []
    assert result.stdout == lint("tune", *NARROW, SLOW).stdout


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
        ({}, {}, "https://:pass@x/v1", "no base URL"),
        ({}, {}, "https://x:99999/v1", "no base URL"),
        ({}, {}, "https://[::1/v1", "no base URL"),
        ({}, {"PRIMUS_LINT_AGENT_KEY": "a\nHost: b"}, "https://x/v1", "no HTTP header"),
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
