"""The examples of every rule are its tests: `bad` fires as the first error, `fixed` and `good` are silent."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import pytest
import yaml

from primus_lint import resources
from primus_lint.evaluate import evaluate
from primus_lint.rules.compile import load_rule, rule_files

ROOT = resources.data_root("rules")


@lru_cache(maxsize=None)
def bases() -> dict[str, Any]:
    with open(os.path.join(ROOT, "bases.yaml"), encoding="utf-8") as file:
        loaded: dict[str, Any] = yaml.safe_load(file)
    return loaded


def request(example: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    base = bases()[example.get("base", "dense")]
    merged = {**base["args"], **args}
    for key in example.get("drop") or ():
        merged.pop(key, None)
    return {
        "id": "example",
        "framework": example.get("framework", "megatron"),
        "version": example.get("version"),
        "args": merged,
        "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **(example.get("env") or {})},
        "stack": example.get("stack") or {},
        "target": {"gpu": example.get("gpu"), "world_size": example.get("world_size", base["world_size"])},
    }


def cases() -> list[Any]:
    out = []
    for path in rule_files(ROOT):
        rule = load_rule(path)
        if rule.get("check", "args:").startswith("args:"):
            for number, example in enumerate(rule.get("examples") or []):
                out.append(pytest.param(rule, example, id=f"{rule['code']}-{number}"))
    return out


@pytest.mark.parametrize("name", sorted(bases()))
def test_bases_are_legal(name: str) -> None:
    answer = evaluate(request({"base": name}, {}), only="legality")
    assert answer["legal"] is True, [f["message"] for f in answer["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize(("rule", "example"), cases())
def test_example(rule: dict[str, Any], example: dict[str, Any]) -> None:
    def codes(args: dict[str, Any]) -> list[str]:
        answer = evaluate(request(example, args), only="legality")
        assert answer["ok"], answer["error"]
        findings = answer["findings"]
        if rule["severity"] == "error":
            findings = [finding for finding in findings if finding["severity"] == "error"]
        return [finding["code"] for finding in findings]

    if "good" in example:
        assert rule["code"] not in codes(example["good"] or {})
        return
    fired = codes(example["bad"])
    assert rule["code"] in fired
    if rule["severity"] == "error":
        assert fired[0] == rule["code"] or fired[0] in (example.get("also") or ()), fired
    if "fixed" in example:
        assert rule["code"] not in codes({**example["bad"], **example["fixed"]})


@pytest.mark.parametrize("path", [pytest.param(p, id=os.path.basename(p)[:-5]) for p in rule_files(ROOT)])
def test_rule_file(path: str) -> None:
    """File name, family and folder agree; every rule shows at least one bad example."""
    rule = load_rule(path)
    assert os.path.basename(path) == f"{rule['code']}-{rule['name']}.yaml"
    assert any("bad" in example for example in rule.get("examples") or []), "no bad example"
