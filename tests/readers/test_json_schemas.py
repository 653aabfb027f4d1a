"""The published JSON Schemas: they take what Primus and the settings take, and refuse what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from primus_lint.readers.primus import REQUIRED
from primus_lint.resources import data_root
from primus_lint.settings import FAIL_ON, KEYS, PROFILES, TARGET_KEYS


def validator(name: str) -> Draft202012Validator:
    with open(f"{data_root('schemas')}/{name}.json", encoding="utf-8") as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def experiment(overrides: dict[str, Any], framework: str = "megatron", **more: Any) -> dict[str, Any]:
    head: dict[str, Any] = dict.fromkeys(REQUIRED, "x")
    module = {"framework": framework, "config": "pre_trainer.yaml", "model": "x.yaml", "overrides": overrides}
    return {**head, "modules": {"pre_trainer": module}, **more}


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (experiment({"lr": 1e-5, "seq_length": "${SEQ:8}", "sequence_parallel": 1, "fp8": None, "unknown": [1]}), None),
        (experiment({"lr": "1e-5"}), "lr"),
        (experiment({"seq_length": 1.5}), "seq_length"),
        (experiment({"bf16": "yes"}), "bf16"),
        (experiment({"training": {"seq_len": 8}}, "torchtitan"), None),
        (experiment({"training": {"seq_len": "x"}}, "torchtitan"), "seq_len"),
        (experiment({"activation_checkpoint": {"mode": "everything"}}, "torchtitan"), "mode"),
        (experiment({}, bases=["x"]), "bases"),
        ({"extends": "a.yaml"}, None),
        ({"modules": {}}, ""),
        (experiment({}, extends=3), "extends"),
        ({**experiment({}), "modules": {"evaluator": {}}}, "modules"),
    ],
)
def test_experiments(data: dict[str, Any], place: str | None) -> None:
    errors = list(validator("primus-experiment").iter_errors(data))
    assert [str((list(error.absolute_path) or [""])[-1]) for error in errors] == ([] if place is None else [place])


def test_every_real_experiment_is_taken(experiments: list[Path]) -> None:
    check = validator("primus-experiment")
    for path in experiments:
        data = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        if "modules" in data or "extends" in data:
            assert [error.message for error in check.iter_errors(data)] == [], path


def test_the_settings_schema_knows_the_keys_of_the_settings() -> None:
    schema = validator("settings").schema
    assert isinstance(schema, dict)
    properties = schema["properties"]
    assert set(properties) == set(KEYS)
    assert set(properties["targets"]["items"]["properties"]) == set(TARGET_KEYS)
    assert properties["profile"]["enum"] == list(PROFILES) and properties["fail-on"]["enum"] == list(FAIL_ON)


@pytest.mark.parametrize(
    ("data", "good"),
    [
        ({"select": ["P"], "targets": [{"files": "*", "nodes": 4}], "per-file-ignores": {"*": ["K"]}}, True),
        ({"selct": []}, False),
        ({"targets": [{"nodes": 4}]}, False),
        ({"targets": [{"files": "*", "nodes": 0}]}, False),
        ({"fail-on": "errors"}, False),
    ],
)
def test_settings(data: dict[str, Any], good: bool) -> None:
    assert validator("settings").is_valid(data) is good


def test_every_rule_fits_the_schema_of_rules() -> None:
    check, rules = validator("rule"), Path(data_root("rules"))
    wrong = {
        path.name: [error.message for error in check.iter_errors(yaml.safe_load(path.read_text()))]
        for path in rules.rglob("*.yaml")
        if path.name != "bases.yaml"
    }
    assert len(wrong) > 500 and {name: errors for name, errors in wrong.items() if errors} == {}
