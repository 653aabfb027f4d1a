"""Agreement with the verdicts of the real Megatron code (`legality CASES.jsonl`).

A case counts at its own version and, where the label holds there too, at the other one. Category of an id: its
leading letters; NEW-* and ARG-* are categories of their own.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from primus_lint.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def category(catalogue_id: str | None) -> str:
    if not catalogue_id:
        return "none"
    if catalogue_id.startswith(("NEW", "ARG")):
        return catalogue_id[:3]
    match = re.match(r"[A-Z]+", catalogue_id)
    return match.group() if match else catalogue_id


def labels(case: dict[str, Any]) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """(version, verdict, catalogue id, notes) for each version at which the case is labelled."""
    yield case["megatron_commit"], case["verdict"], case.get("catalogue_id"), case.get("notes") or []
    other = case.get("other") or {}
    if other.get("same"):
        yield other["megatron_commit"], case["verdict"], case.get("catalogue_id"), case.get("notes") or []
    elif other.get("verdict") in ("legal", "illegal"):
        yield other["megatron_commit"], other["verdict"], other.get("catalogue_id"), other.get("notes") or []


def request(case: dict[str, Any], version: str) -> dict[str, Any]:
    """The case as a line of `primus-lint batch`."""
    env = {key: value for key, value in (case.get("env") or {}).items() if key.isupper()}
    stack = {"arch": 9, "te": "2.11.0", "torch": "2.13.0"}
    stack.update({key: value for key, value in (case.get("env") or {}).items() if not key.isupper()})
    args = dict(case["args"])
    if version == "d98e8a64":  # the two arguments that the label files spell as in the pinned version
        if "cuda_graph_scope" in args:
            both = "cuda_graph_modules" in args
            args["cuda_graph_scope_deprecated" if both else "cuda_graph_modules"] = args.pop("cuda_graph_scope")
        if "enable_gloo_process_groups" in args:
            args["use_gloo_process_groups"] = args.pop("enable_gloo_process_groups")
    return {
        "id": case["id"],
        "framework": "megatron",
        "version": version,
        "args": args,
        "env": env,
        "stack": stack,
        "target": {"gpu": None, "world_size": case["world_size"], "gpus_per_node": 8},
    }


def run(paths: list[Path]) -> dict[str, Any]:
    total = Counter[str]()
    by_category: dict[str, Counter[str]] = defaultdict(Counter)
    by_version: dict[str, Counter[str]] = defaultdict(Counter)
    false_alarms, misses, other_first = [], [], []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            for version, verdict, catalogue_id, notes in labels(case):
                answer = evaluate(request(case, version), only="legality")
                said = "legal" if answer["legal"] else "illegal"
                errors = [f for f in answer["findings"] if f["severity"] == "error"]
                right = said == verdict or (said == "illegal" and "L27" in notes)
                key = category(catalogue_id)
                for counter in (total, by_category[key], by_version[version]):
                    counter["cases"] += 1
                    counter["right"] += right
                if verdict == "illegal":
                    first = errors[0]["catalogue_ids"] if errors else []
                    same = any(category(item) == key for item in first)
                    for counter in (total, by_category[key], by_version[version]):
                        counter["illegal"] += 1
                        counter["first"] += same
                    if not same and errors:
                        other_first.append([case["id"], version, catalogue_id, errors[0]["name"], first])
                    if not right:
                        misses.append([case["id"], version, catalogue_id, case.get("reason", ""), answer["error"]])
                elif not right:
                    false_alarms.append([case["id"], version, [f["name"] + ": " + f["message"] for f in errors[:3]]])

    def shares(counter: Counter[str]) -> dict[str, Any]:
        return {
            "cases": counter["cases"],
            "agreement": counter["right"] / max(counter["cases"], 1),
            "first_error_agreement": counter["first"] / counter["illegal"] if counter["illegal"] else None,
        }

    figures = {
        **shares(total),
        "false_alarms": false_alarms,
        "misses": misses,
        "other_first_error": other_first,
        "by_category": {key: shares(by_category[key]) for key in sorted(by_category)},
        "by_version": {key: shares(by_version[key]) for key in sorted(by_version)},
    }
    print(f"{'category':10}{'cases':>8}{'agreement':>12}{'first error':>13}")
    rows = [("all", figures), *figures["by_version"].items(), *figures["by_category"].items()]
    for name, row in rows:
        first = row["first_error_agreement"]
        print(f"{name:10}{row['cases']:>8}{row['agreement']:>12.4f}{'' if first is None else f'{first:.4f}':>13}")
    print(f"false alarms {len(false_alarms)}, misses {len(misses)}")
    return figures
