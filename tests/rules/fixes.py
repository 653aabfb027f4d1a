"""Apply every fix that a rule offers, and see whether its finding vanishes without a new error.

`python -m tests.rules.fixes [CASES.jsonl]` runs the examples of all rules and every labelled case.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from primus_lint import resources
from primus_lint.evaluate import subject_of
from primus_lint.rules.compile import load_rule, rule_files
from primus_lint.rules.examples import request as example_request
from primus_lint.rules.examples import runnable
from primus_lint.rules.finding import Fix
from primus_lint.rules.verify import keep_working_fixes

SHARED = Path(__file__).resolve().parents[3] / "shared"


def applied(request: dict[str, Any], fix: Fix) -> dict[str, Any]:
    """The request with the changes of a fix made to its arguments."""
    args = dict(request["args"])
    for change in fix.changes:
        if change.op == "set":
            args[change.key] = change.value
        elif change.op == "drop":
            args.pop(change.key, None)
        else:
            args[change.value] = args.pop(change.key)
    return {**request, "args": args}


def failures(request: dict[str, Any], counts: Counter[str], only: str | None = None) -> list[str]:
    """What goes wrong with the fixes of a request's findings."""
    subject = subject_of(request)
    before = subject.conditions
    counts["raw"] += sum(len(finding.fixes) for finding in before if only in (None, finding.code))
    keep_working_fixes(before, subject)
    errors = {finding.code for finding in before if finding.severity == "error"}
    out = []
    for finding in before:
        if only is not None and finding.code != only:
            continue
        for fix in finding.fixes:
            counts["fixes"] += 1
            after = subject_of(applied(request, fix)).conditions
            new = {other.code for other in after if other.severity == "error"} - errors
            stays = sum(other.code == finding.code for other in after) >= sum(f.code == finding.code for f in before)
            if stays or new:
                counts["failed"] += 1
                what = "stays" if stays else f"brings {', '.join(sorted(new))}"
                out.append(f"{finding.code} {finding.name}: {fix.title!r} {what}")
    return out


def example_failures(counts: Counter[str]) -> list[str]:
    """The same for the bad example of every rule."""
    root = resources.data_root("rules")
    out = []
    for path in rule_files(root):
        rule = load_rule(path)
        if not runnable(rule) or str(rule.get("check") or "").startswith(("memory", "throughput")):
            continue
        for example in rule.get("examples") or []:
            if "bad" in example:
                out += failures(example_request(example, example["bad"] or {}, root), counts, rule["code"])
    return out


def labelled_failures(path: Path, counts: Counter[str], every: int = 1) -> list[str]:
    """The same for the illegal cases of a labelled file, every n-th of them, at each version."""
    from tests.validation.legality import labels, request

    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        if number % every:
            continue
        case = json.loads(line)
        for version, verdict, _, _ in labels(case):
            if verdict == "illegal":
                out += [f"{case['id']} {version} {text}" for text in failures(request(case, version), counts)]
    return out


def main() -> int:
    counts: Counter[str] = Counter()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED / "legality" / "labelled.jsonl"
    texts = example_failures(counts)
    if path.exists():
        texts += labelled_failures(path, counts)
    by_fix = Counter(text.split(" ", 2)[-1] if text[:16].isalnum() else text for text in texts)
    for text, number in by_fix.most_common():
        print(f"{number:>5}  {text}")
    print(f"{counts['raw']} fixes of the catalogue, {counts['fixes']} offered and applied, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
