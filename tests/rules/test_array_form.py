"""The array form of a condition says on a grid of recipes what the scalar form says on each of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from primus_lint import resources
from primus_lint.ir.run import Target
from primus_lint.lower.megatron import Lowered, lower
from primus_lint.readers.batch import section_of
from primus_lint.rules import catalogue
from primus_lint.rules.compile import load_rule, rule_files
from primus_lint.rules.engine import UNDECIDED, violated
from primus_lint.rules.examples import request

ROOT = resources.data_root("rules")
AXES = {  # the axes that the tuner broadcasts (primus_lint/tune/space.py)
    "tensor_model_parallel_size": [1, 2, 4],
    "context_parallel_size": [1, 2],
    "expert_model_parallel_size": [1, 4],
    "micro_batch_size": [1, 2],
}
ROWS = list(itertools.product(*AXES.values()))


def cases() -> list[Any]:
    out = []
    for path in rule_files(ROOT):
        rule = load_rule(path)
        if rule.get("check") is None and {"megatron", "primus-megatron"} & set(rule["frameworks"]):
            bad = [example for example in rule["examples"] if "bad" in example]
            out.append(pytest.param(rule, bad[0], id=rule["code"]))
    return out


@pytest.mark.parametrize(("rule", "example"), cases())
def test_array_form_equals_scalar_form(rule: dict[str, Any], example: dict[str, Any]) -> None:
    def lowered(extra: dict[str, Any]) -> Lowered:
        asked = request(example, {**(example["bad"] or {}), **extra}, ROOT)
        section = section_of(asked, asked["framework"])
        target = Target(asked["target"]["gpu"], asked["target"]["world_size"], 8)
        version = asked["version"] or "d3528a21"
        return lower(section, target, version, asked["framework"], asked["env"], asked["stack"])

    single = [lowered(dict(zip(AXES, row, strict=True))) for row in ROWS]
    grid = lowered({key: np.array([row[index] for row in ROWS]) for index, key in enumerate(AXES)})

    def entry(form: str) -> catalogue.Entry:
        return next(e for e in catalogue.applicable(grid.framework, grid.version, form) if e.code == rule["code"])

    function = entry("scalar").function
    assert function is not None
    scalar = [bool(violated(function, one.namespace)) for one in single]
    function = entry("array").function
    assert function is not None
    try:
        array = np.broadcast_to(np.asarray(function(grid.namespace)).astype(bool), len(ROWS)).tolist()
    except UNDECIDED:
        array = [False] * len(ROWS)
    if rule["severity"] == "error":
        assert array == scalar
    else:  # the search reads errors only; the others must not be wrong where they are decided
        assert array == scalar or not any(array)
