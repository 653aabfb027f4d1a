"""`primus-lint tune`: what it prints, writes and leaves alone; the same as a task in a pool of processes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("numpy")

from tests.cli.conftest import lint, repo

__all__ = ["lint", "repo"]

SLOW = "configs/slow-mixtral_8x7B.yaml"
CLEAN = "configs/clean-llama3.1_8B.yaml"
OOM = "configs/oom-llama3.1_70B.yaml"
# a narrow space, so that the tests are quick
NARROW = (
    "--limit", "pipeline_model_parallel_layout=null", "--limit", "context_parallel_size=1,2", "--limit", "cp_comm_type=p2p",
    "--limit", "num_virtual_stages_per_pipeline_rank=null,2",
)  # fmt: skip


def outcome(lint: Any, *words: str) -> dict[str, Any]:
    result = lint("tune", "--json", *words)
    (data,) = json.loads(result.stdout)
    found: dict[str, Any] = data
    return found


def test_json_holds_what_the_issue_asks_for(repo: Path, lint: Any) -> None:
    data = outcome(lint, *NARROW, "--reach", "20", SLOW)
    section = data["sections"][0]
    certificate = section["certificate"]
    parts = (
        sum(certificate["removed"].values()) + certificate["bounded"] + certificate["slower"] + certificate["fitting"]
    )
    assert certificate["space"] == parts and certificate["complete"]
    for side in ("before", "after"):
        figures = section[side]
        assert sum(figures["bottlenecks_s"].values()) == pytest.approx(figures["iteration_s"], rel=1e-9)
        assert figures["peak_bytes"] == max(rank["device_high_bytes"] for rank in figures["ranks"])
    gain = section["after"]["tokens_per_s_per_gpu"] / section["before"]["tokens_per_s_per_gpu"] - 1
    assert section["gain"] == pytest.approx(gain, rel=1e-9) and gain > 0.03
    assert section["safety"] == "safe" and section["changes"]
    assert section["after"]["fits"] is True
    assert {each["why"] for each in section["neighbours"] if each["gain"] is None} != set()
    assert "neighbours that run are within 3%" in section["basin"]
    alone = [each for each in section["one_change"] if not each["why"]]
    assert alone and alone[0]["iteration_s"] >= section["best"]["iteration_s"] * (1 - 1e-9)
    assert [each["gain"] for each in alone] == sorted((each["gain"] for each in alone), reverse=True)
    front = section["front"]
    assert all(a["peak_bytes"] > b["peak_bytes"] for a, b in itertools.pairwise(front)) and front
    best = section["best"]["iteration_s"]
    assert all(best <= each["iteration_s"] <= best * 1.02 for each in section["alternatives"])
    text = yaml.safe_load((repo / SLOW).read_text())["modules"]["pre_trainer"]["overrides"]
    assert all(text.get(key) != value for key, value in section["changes"].items())  # nothing was written
    assert data["diff"].startswith("--- a/")


def test_text_goes_to_the_right_places_and_write_writes(repo: Path, lint: Any) -> None:
    before = (repo / SLOW).read_bytes()
    shown = lint("tune", *NARROW, SLOW)
    assert shown.exit_code == 0 and (repo / SLOW).read_bytes() == before
    assert shown.stdout.startswith("--- a/configs/")
    for words in (
        "exposed EP",
        "contention",
        "optimizer",
        "memory by pipeline rank",
        "none of the space is better",
        "one step away",
        "one change alone",
    ):
        assert words in shown.stderr, words
    written = lint("tune", *NARROW, "--write", SLOW)
    assert written.stdout == shown.stdout and (repo / SLOW).read_bytes() != before
    again = lint("tune", *NARROW, "--write", SLOW)
    assert again.stdout == "" and again.exit_code == 0


def test_what_does_not_fit_has_no_gain(repo: Path, lint: Any) -> None:
    result = lint("tune", *NARROW, OOM)
    assert "does not fit, so there is no gain" in result.stderr
    assert outcome(lint, *NARROW, OOM)["sections"][0]["gain"] is None


def test_what_set_says_cannot_be_written_over_and_is_named(repo: Path, lint: Any) -> None:
    stated = "tensor_model_parallel_size=4"  # eight replicas of one GPU are faster, and fit
    result = lint("tune", *NARROW, "--set", stated, CLEAN)
    assert result.stdout == ""
    assert f"not written: tensor_model_parallel_size comes from --set {stated}, not from the file" in result.stderr


def test_what_belongs_to_a_recomputation_goes_with_it(repo: Path, lint: Any) -> None:
    """Method and number would stay behind without a meaning. (A rule repairs this recipe, too, where it may.)"""
    lines = ["recompute_granularity: full", "recompute_method: block", "recompute_num_layers: 32"]
    text = (repo / CLEAN).read_text().replace("use_dist", "\n      ".join([*lines, "use_dist"]))
    (repo / CLEAN).write_text(text + "# primus-lint: file-ignore[recompute-without-need] the search is to find it\n")
    data = outcome(lint, *NARROW, CLEAN)
    assert [line[1:].strip() for line in data["diff"].splitlines() if line.startswith("-  ")][:3] == lines
    assert data["diff"].count("+  ") == sum(value is not None for value in data["sections"][0]["changes"].values())


def test_several_files_at_a_time(repo: Path, lint: Any) -> None:
    words = ("tune", "--json", *NARROW, "configs")
    alone, together = json.loads(lint(*words).stdout), json.loads(lint(*words, "--jobs", "2").stdout)
    assert [each["path"] for each in alone] == [each["path"] for each in together]
    for a, b in zip(alone, together, strict=True):
        for section in (*a["sections"], *b["sections"]):
            if section["certificate"]:
                section["certificate"]["seconds"] = 0
        assert a == b


def test_objectives(repo: Path, lint: Any) -> None:
    plain = outcome(lint, *NARROW, "--price", "2", CLEAN)["sections"][0]
    own = plain["before"]
    assert own["cost_per_million_tokens"] == pytest.approx(2 / 3600 / own["tokens_per_s_per_gpu"] * 1e6)
    roomy = outcome(lint, *NARROW, "--objective", "memory-headroom", CLEAN)["sections"][0]
    assert roomy["after"]["peak_bytes"] <= own["peak_bytes"]
    assert roomy["after"]["iteration_s"] <= own["iteration_s"] * (1 + 1e-9)
    half = outcome(lint, *NARROW, "--min-headroom", "60", CLEAN)["sections"][0]
    assert half["after"]["peak_bytes"] <= half["after"]["capacity_bytes"] * 0.4


def test_the_cheapest_of_several_world_sizes(repo: Path, lint: Any) -> None:
    (repo / "primus-lint.toml").write_text(
        'gpu-hour-price = 3.0\n[[targets]]\nfiles = "*.yaml"\ngpu = "mi300x"\nnodes = 1\n'
    )
    only = ("--limit", "pipeline_model_parallel_size=1")
    data = outcome(lint, *NARROW, *only, "--objective", "cost", "--world-sizes", "8,16,24", CLEAN)
    rows = {row["world_size"]: row for row in data["world_sizes"]}
    assert rows[24] == {"world_size": 24, "runs": False}  # 128 does not divide among 3, 6, 12 or 24
    costs = {size: row["cost_per_million_tokens"] for size, row in rows.items() if row.get("runs") is not False}
    assert data["sections"][0]["target"]["world_size"] == min(costs, key=lambda size: costs[size])


def test_wrong_uses(repo: Path, lint: Any) -> None:
    assert lint("tune", "--limit", "tensor_model_parallel_size", CLEAN).exit_code == 2
    assert lint("tune", "--gpu", "abacus", CLEAN).exit_code == 2
    (repo / "notes.yaml").write_text("a: 1\n")
    named = lint("tune", "notes.yaml")
    assert named.exit_code == 2 and "not a training recipe" in named.stderr
    assert lint("tune", "missing.yaml").exit_code == 2


def test_what_is_not_modelled_is_said_once(repo: Path, lint: Any) -> None:
    text = (repo / CLEAN).read_text().replace("framework: megatron", "framework: maxtext")
    text = text.replace("model: llama3.1_8B.yaml", "model: llama3_8B.yaml")
    (repo / "other.yaml").write_text(text)
    result = lint("tune", "--gpu", "mi300x", "--nodes", "1", "other.yaml")
    assert result.stderr.count("no search") == 1


def test_an_error_that_remains_is_no_best_recipe(repo: Path, lint: Any) -> None:
    """What no key of the space cures stays said, and nothing is called the best."""
    text = (repo / CLEAN).read_text().replace("lr_warmup_iters: 200", "lr_warmup_iters: 6000")
    (repo / "wrong.yaml").write_text(text)
    every = [word for key in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size")
             for word in ("--keep", key)]  # fmt: skip
    result = lint("tune", "--gpu", "mi300x", "--nodes", "1", *NARROW, *every, "wrong.yaml")
    assert "remains: error" in result.stderr and "best of the space" not in result.stderr


def test_lists_of_modules_are_joined_by_plus() -> None:
    from primus_lint.tune.limits import limits_of

    found = limits_of(("recompute_modules=layernorm+mlp,null", "micro_batch_size=1,2"))
    assert found == {"recompute_modules": (["layernorm", "mlp"], None), "micro_batch_size": (1, 2)}


def test_without_a_target_it_says_what_is_missing(repo: Path, lint: Any) -> None:
    (repo / "primus-lint.toml").unlink()
    result = lint("tune", CLEAN)
    assert "needs a GPU kind and a world size" in result.stderr and result.stdout == ""


def test_a_loaded_checkpoint_is_spoken_of(repo: Path, lint: Any) -> None:
    text = (
        (repo / SLOW)
        .read_text()
        .replace("      mock_data: true", "      mock_data: true\n      load: /ckpt\n      ckpt_format: torch_dist")
    )
    (repo / "loads.yaml").write_text(text)
    result = lint("tune", "--gpu", "mi300x", "--nodes", "2", *NARROW, "loads.yaml")
    assert "the checkpoint /ckpt still opens" in result.stderr


def test_before_is_the_file_as_it_was_not_the_repaired_one(repo: Path, lint: Any) -> None:
    """SLOW recomputes without need, which a rule repairs before the search."""
    section = outcome(lint, *NARROW, SLOW)["sections"][0]
    checked = json.loads(lint("--output-format", "json", SLOW).stdout)["files"][0]
    assert section["before"]["tokens_per_s_per_gpu"] == pytest.approx(checked["time"]["tokens_per_s_per_gpu"])
    assert section["before"]["bottlenecks_s"]["recompute"] > 0 and section["gain"] > 0.2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "foo=1"), "names foo"),
        (("--keep", "micro_bach_size"), "near: micro_batch_size"),
        (("--limit", "micro_batch_size=a"), "whole numbers"),
        (("--limit", "recompute_granularity=whole"), "takes full, selective or null"),
        (("--limit", "sequence_parallel=5"), "takes true and false"),
        (("--limit", "moe_token_dispatcher_type=alltoall,deepep"), "flex or null, not 'deepep'"),
        (("--min-gain", "-5"), "0 or more"),
        (("--min-headroom", "200"), "below 100"),
    ],
)
def test_nonsense_is_refused_before_the_search(repo: Path, lint: Any, words: tuple[str, ...], said: str) -> None:
    for command in ("tune", "--fix"):
        result = lint(command, *words, CLEAN)
        assert result.exit_code == 2 and said in " ".join(result.stderr.split())
