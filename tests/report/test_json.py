"""report-v1: the contract field by field, the published schema, and real output over the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from primus_lint import resources
from tests.report.conftest import CLEAN, ILLEGAL, OOM

SCHEMA = json.loads((Path(resources.data_root("schemas")) / "report-v1.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# Section 4.4 (and 4.3 for memory and time) of the contracts, written down once more.
TOP = {"version", "tool", "assumed", "files", "findings", "summary"}
FILE = {
    "path",
    "format",
    "framework",
    "framework_version",
    "target",
    "legal_world_sizes",
    "memory",
    "time",
    "abstained",
    "not_modelled",
}
FINDING = {
    "code", "name", "severity", "confidence", "catalogue_ids", "message", "path", "key_path", "span", "related",
    "fingerprint", "suppressed", "fixes",
}  # fmt: skip
SPAN = {"line", "column", "end_line", "end_column", "byte_start", "byte_end"}
MEMORY = {"fits", "reason", "capacity_bytes", "worst_rank", "ranks", "host"}
RANK = {
    "pp_rank", "dp", "count", "static_bytes", "steady_allocated_bytes", "peak_allocated_bytes", "peak_reserved_bytes",
    "device_low_bytes", "device_high_bytes", "items", "steady_allocated_low_bytes", "steady_allocated_high_bytes",
    "peak_allocated_low_bytes", "peak_allocated_high_bytes", "peak_reserved_low_bytes", "peak_reserved_high_bytes",
}  # fmt: skip
TIME = {
    "fits", "iteration_s", "low_s", "high_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "bubble_fraction",
    "breakdown_s", "source", "tiers", "notes",
}  # fmt: skip


def problems(data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(data)]


def test_a_time_that_no_run_can_take_is_marked(repo: Path, report: Any) -> None:
    [no_room, room] = report("--gpu", "mi300x", "--nodes", "1", OOM, CLEAN)["files"]
    assert no_room["memory"]["fits"] is False and no_room["time"]["fits"] is False
    assert room["memory"]["fits"] is True and room["time"]["fits"] is True


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_fields_are_those_of_the_contract(repo: Path, report: Any) -> None:
    data = report("configs")
    assert set(data) == TOP and data["version"] == 1
    assert {frozenset(file) for file in data["files"]} == {frozenset(FILE)}
    assert {frozenset(finding) for finding in data["findings"]} == {frozenset(FINDING)}
    spans = [finding["span"] for finding in data["findings"]] + [
        other["span"] for finding in data["findings"] for other in finding["related"]
    ]
    assert {frozenset(span) for span in spans} == {frozenset(SPAN)}
    edits = [edit for finding in data["findings"] for fix in finding["fixes"] for edit in fix["edits"]]
    assert edits and {frozenset(edit) for edit in edits} == {frozenset(("path", "byte_start", "byte_end", "text"))}
    accounts = [file["memory"] for file in data["files"] if file["memory"]]
    assert {frozenset(account) for account in accounts} == {frozenset(MEMORY)}
    assert {frozenset(rank) for account in accounts for rank in account["ranks"]} == {frozenset(RANK)}
    assert {frozenset(file["time"]) for file in data["files"] if file["time"]} == {frozenset(TIME)}


def test_paths_are_relative_to_the_repository(repo: Path, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "configs")
    data = report(Path(OOM).name)
    assert data["files"][0]["path"] == OOM
    assert {finding["path"] for finding in data["findings"]} == {OOM}
    assert list(data["assumed"]) == [OOM]
    assert str(repo) not in json.dumps(data)


def test_the_edits_of_a_fix_make_the_text_that_fix_writes(repo: Path, report: Any, lint: Any) -> None:
    name = "configs/slow-mixtral_8x7B.yaml"
    [finding] = [finding for finding in report(name)["findings"] if finding["fixes"]]
    data = (repo / name).read_bytes()
    for edit in sorted(finding["fixes"][0]["edits"], key=lambda edit: -edit["byte_start"]):
        data = data[: edit["byte_start"]] + edit["text"].encode() + data[edit["byte_end"] :]
    lint("--fix", "--no-tune", name)
    assert (repo / name).read_bytes() == data != b""


def test_examples_follow_the_schema(git_repo: Path, report: Any, lint: Any) -> None:
    assert problems(report("configs")) == []
    lint("--update-baseline", OOM)
    text = (git_repo / CLEAN).read_text()
    (git_repo / CLEAN).write_text(text.replace("micro_batch_size: 2", "micro_batch_size: 1"))
    (git_repo / ILLEGAL).write_text(
        "# primus-lint: file-ignore[layers-divide-pipeline] known\n" + (git_repo / ILLEGAL).read_text()
    )
    (git_repo / "configs" / "broken.yaml").write_text("modules:\n  pre_trainer:\n   a: 1\n  b\n")
    data = report("--baseline", "--base", "HEAD", "configs")
    assert problems(data) == []
    assert data["summary"]["base"]["files"] and data["summary"]["baseline"]["accepted"] == 1
    assert data["summary"]["unreadable"] == ["configs/broken.yaml"]
    assert data["summary"]["suppressed"] == 2


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data.pop("summary"),
        lambda data: data["findings"][0].pop("fingerprint"),
        lambda data: data["findings"][0].update(notes=[]),
        lambda data: data["findings"][0].update(severity="fatal"),
        lambda data: data["findings"][0]["span"].update(line=0),
        lambda data: data["files"][0].update(memory={}),
        lambda data: data.update(version=2),
    ],
)
def test_the_schema_refuses_what_breaks_the_contract(repo: Path, report: Any, harm: Any) -> None:
    data = report(OOM)
    harm(data)
    assert problems(data) != []


@pytest.mark.parametrize("target", [[], ["--nodes", "8"]])
def test_the_corpus_follows_the_schema(corpus_words: list[str], report: Any, target: list[str]) -> None:
    data = report(*target, *corpus_words)
    assert problems(data) == []
    assert len(data["files"]) == 355
    prints = [finding["fingerprint"] for finding in data["findings"]]
    assert len(set(prints)) == len(prints)
    sized = [file for file in data["files"] if file["memory"] is not None]
    assert bool(sized) == bool(target)
    for file in sized:
        for rank in file["memory"]["ranks"]:
            assert rank["static_bytes"] <= rank["steady_allocated_bytes"] <= rank["peak_allocated_bytes"]
            assert rank["device_low_bytes"] <= rank["device_high_bytes"]
    for file in data["files"]:
        for part in ("memory", "time"):
            assert (file["abstained"][part] is None) == (file[part] is not None or file["format"] is None), file["path"]
        if file["time"] is not None:
            assert sum(file["time"]["breakdown_s"].values()) == pytest.approx(file["time"]["iteration_s"])


@pytest.mark.parametrize(
    ("framework", "module", "model", "version"),
    [
        ("megatron", "pre_trainer", "llama3.1_8B", "d3528a21"),
        ("torchtitan", "pre_trainer", "llama3.1_8B", "v0.2.2"),
        (
            "maxtext",
            "pre_trainer",
            "llama3_8B",
            "e591f30c",
        ),  # the commits whose keys are tabled (shared/catalogue/keys)
        ("megatron_bridge", "sft_trainer", "qwen3_8b", "9577b128"),
        ("hummingbirdxt", "post_trainer", "x", None),
    ],
)
def test_the_version_is_that_of_the_files_own_framework(
    repo: Path, report: Any, framework: str, module: str, model: str, version: str | None
) -> None:
    (repo / "x.yaml").write_text(
        "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\nmodules:\n  pre_trainer:\n"
        f"    framework: {framework}\n    config: {module}.yaml\n    model: {model}.yaml\n    overrides: {{}}\n"
    )
    assert report("x.yaml")["files"][0]["framework_version"] == version


def test_a_recipe_without_its_presets_is_not_called_illegal(repo: Path, report: Any) -> None:
    """What the missing files would have set is no broken rule."""
    text = (repo / CLEAN).read_text().replace("config: pre_trainer.yaml", "config: nowhere.yaml")
    (repo / "x.yaml").write_text(text.replace("llama3.1_8B.yaml", "llama9.yaml"))
    reasons = report("x.yaml")["files"][0]["abstained"]
    assert reasons == {key: ["the recipe is incomplete: preset-missing"] for key in ("memory", "time")}
