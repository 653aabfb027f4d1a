"""Run the examples of rule files: `bad` fires (first, among errors), `fixed` and `good` are silent."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple

from primus_lint import resources
from primus_lint.evaluate import evaluate
from primus_lint.rules.compile import load_rule, rule_files

RUN_ALONE = (
    "",
    "args",
    "memory",
    "throughput",
    "amd",
    "derived",
    "primus",
    "worlds",
)  # modules of checks that need nothing but a recipe


class Result(NamedTuple):
    """One example. `problem` is "" when it behaved as it says."""

    code: str
    number: int
    problem: str


@cache
def bases(folder: str) -> dict[str, Any]:
    """The legal recipes that examples build on: the shipped ones and those of the folder's own `bases.yaml`."""
    import yaml

    found: dict[str, Any] = {}
    for place in dict.fromkeys((resources.data_root("rules"), folder)):
        path = os.path.join(place, "bases.yaml")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                found.update(yaml.safe_load(file))
    return found


def request(example: dict[str, Any], args: dict[str, Any], folder: str) -> dict[str, Any]:
    """The batch request of an example with `args` on top of its base."""
    base = bases(folder)[example.get("base", "dense")]
    merged = {**base["args"], **args}
    for key in example.get("drop") or ():
        merged.pop(key, None)
    return {
        "id": "example",
        "framework": example.get("framework", base.get("framework", "megatron")),
        "version": example.get("version", base.get("version")),
        "args": merged,
        "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **(base.get("env") or {}), **(example.get("env") or {})},
        "stack": {**(base.get("stack") or {}), **(example.get("stack") or {})},
        "target": {"gpu": example.get("gpu"), "world_size": example.get("world_size", base["world_size"])},
    }


def codes(rule: dict[str, Any], example: dict[str, Any], args: dict[str, Any], folder: str) -> list[str]:
    """Codes of the findings, the first failing stage first; only errors when the rule is one."""
    conditions_only = rule.get("check") is None or rule["check"].startswith("args:")
    answer = evaluate(request(example, args, folder), only="legality" if conditions_only else None)
    if not answer["ok"]:
        return [f"not evaluated: {answer['error']}"]
    return [
        finding["code"]
        for finding in answer["findings"]
        if finding["severity"] == "error" or rule["severity"] != "error"
    ]


def run_example(rule: dict[str, Any], example: dict[str, Any], folder: str) -> str:
    """Why an example does not behave as it says, or ""."""
    if "good" in example:
        fired = codes(rule, example, example["good"] or {}, folder)
        return f"good: fired {fired}" if rule["code"] in fired else ""
    fired = codes(rule, example, example["bad"] or {}, folder)
    if rule["code"] not in fired:
        return f"bad: did not fire, but {fired}"
    first_matters = rule["severity"] == "error" and rule["code"][0] not in "MT"
    if first_matters and fired[0] != rule["code"] and fired[0] not in (example.get("also") or ()):
        return f"bad: {fired[0]} fired first"
    if "fixed" in example and rule["code"] in codes(rule, example, {**example["bad"], **example["fixed"]}, folder):
        return "fixed: fires still"
    return ""


def runnable(rule: dict[str, Any]) -> bool:
    """Whether the examples of a rule are recipes as data (those of key and text rules are files, tested elsewhere)."""
    return rule["code"][0] == "Z" or str(rule.get("check") or "").partition(":")[0] in RUN_ALONE


def run_examples(folder: str) -> list[Result]:
    """Run all examples below `folder`. Raises RuleError for a malformed rule."""
    results = []
    for path in rule_files(folder):
        rule = load_rule(path)
        if runnable(rule):
            for number, example in enumerate(rule.get("examples") or []):
                results.append(Result(rule["code"], number, run_example(rule, example, folder)))
    return results
