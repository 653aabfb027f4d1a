"""The examples of rules about text and keys: `bad` is said at its place, `fixed` and `good` are silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from primus_lint import resources
from primus_lint.rules.compile import load_rule, rule_files
from primus_lint.rules.examples import runnable
from tests.rules.texts import check_text, codes

if TYPE_CHECKING:
    from pathlib import Path

ROOT = resources.data_root("rules")


def cases() -> list[Any]:
    out = []
    for path in rule_files(ROOT):
        rule = load_rule(path)
        if not runnable(rule):
            for number, example in enumerate(rule["examples"]):
                out.append(pytest.param(rule, example, id=f"{rule['code']}-{number}"))
    return out


@pytest.mark.parametrize(("rule", "example"), cases())
def test_example(rule: dict[str, Any], example: dict[str, Any], tmp_path: Path) -> None:
    if "good" in example:
        assert rule["code"] not in codes(example["good"], example, tmp_path)
        return
    checked = check_text(example["bad"], example, tmp_path)
    found = [finding for finding in checked.findings if finding.code == rule["code"]]
    assert found, [str(finding) for finding in checked.findings]
    for finding in found:
        assert finding.name == rule["name"]
        assert finding.severity == rule["severity"] or finding.severity == "error", finding
        assert finding.place is not None
        assert finding.place.line >= 1 or finding.place.path == "<command line>"
    if "fixed" in example:
        assert rule["code"] not in codes(example["fixed"], example, tmp_path)


def test_every_reason_says_what_happens_and_no_more() -> None:
    """`why` is read by someone whose run is refused: a phrase says too little, a page too much."""
    words = {rule["code"]: len(rule["why"].split()) for rule in map(load_rule, rule_files(ROOT))}
    assert [code for code, count in words.items() if not 10 <= count <= 80] == []
