"""The examples of every rule are its tests: `bad` fires as the first error, `fixed` and `good` are silent."""

from __future__ import annotations

import os
from typing import Any

import pytest

from primus_lint import resources
from primus_lint.evaluate import evaluate
from primus_lint.rules.compile import load_rule, rule_files
from primus_lint.rules.examples import bases, request, run_example, runnable

ROOT = resources.data_root("rules")
PATHS = rule_files(ROOT)


def cases() -> list[Any]:
    out = []
    for path in PATHS:
        rule = load_rule(path)
        if runnable(rule):
            for number, example in enumerate(rule.get("examples") or []):
                out.append(pytest.param(rule, example, id=f"{rule['code']}-{number}"))
    return out


@pytest.mark.parametrize("name", sorted(bases(ROOT)))
def test_bases_are_legal(name: str) -> None:
    answer = evaluate(request({"base": name}, {}, ROOT), only="legality")
    assert answer["legal"] is True, [f["message"] for f in answer["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize(("rule", "example"), cases())
def test_example(rule: dict[str, Any], example: dict[str, Any]) -> None:
    assert run_example(rule, example, ROOT) == ""


@pytest.mark.parametrize("path", [pytest.param(path, id=os.path.basename(path)[:-5]) for path in PATHS])
def test_rule_file(path: str) -> None:
    """File name, family and folder agree; every rule shows at least one bad example."""
    rule = load_rule(path)
    assert os.path.basename(path) == f"{rule['code']}-{rule['name']}.yaml"
    assert any("bad" in example for example in rule.get("examples") or []), "no bad example"
