"""Known defects of a corpus, and false alarms on it (`defects LABELS.csv CORPUS`).

A defect row counts as found when an error-level finding stands at its key in its file (or, for a preset, when a file
that uses the preset has an error-level finding that points at the preset's key). Legal sizes come from
`megatron-legal-world-sizes.csv` beside the labels; a memory observation `fits` from `memory-observations.csv`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.validation import corpus

if TYPE_CHECKING:
    from pathlib import Path

    from primus_lint.pipeline import Checked
    from primus_lint.rules.finding import Finding


def run(paths: list[Path]) -> dict[str, Any]:
    labels, root = paths
    rows = [row for row in corpus.rows(labels) if row["level"] == "error"]
    legal_at = {}
    sizes_file = labels.parent / "megatron-legal-world-sizes.csv"
    if sizes_file.exists():
        legal_at = {row["file"]: row["legal_world_sizes"].split() for row in corpus.rows(sizes_file)}
    files = sorted(
        path.relative_to(root).as_posix()
        for folder in ("examples", "tests")
        for path in (root / folder).rglob("*.yaml")
    )
    checked: dict[str, Checked] = {name: corpus.check(root, name) for name in files}
    checked = {name: item for name, item in checked.items() if item.is_recipe}
    users: dict[str, list[str]] = defaultdict(list)
    for name, item in checked.items():
        for preset in item.document.presets:
            users[corpus.relative_to(root, preset)].append(name)

    found, missed = [], []
    for row in rows:
        targets = [row["file"]] if row["file"] in checked else users.get(row["file"], [])
        if any(_matches(row, finding, root) for name in targets for finding in checked[name].findings):
            found.append(row)
        else:
            missed.append({"id": row["id"], "file": row["file"], "key": row["key"]})
    labelled = {row["file"] for row in rows}
    false_errors, memory_errors, unlabelled_errors = [], [], []
    for name, item in checked.items():
        excused = name in labelled or any(
            corpus.relative_to(root, preset) in labelled for preset in item.document.presets
        )
        for finding in item.findings:
            if finding.severity != "error":
                continue
            entry = {"file": name, "rule": finding.name, "message": finding.message}
            if finding.code.startswith("M"):
                memory_errors.append(entry)
            elif not excused and name not in legal_at:
                unlabelled_errors.append(entry)  # no label says whether the file starts
            elif not excused and legal_at[name]:
                false_errors.append(entry)
    figures = {
        "error_found": len(found),
        "error_total": len(rows),
        "missed": missed,
        "false_errors": false_errors,
        "memory_errors": memory_errors,
        "unlabelled_errors": unlabelled_errors,
        "files": len(checked),
    }
    print(f"{len(found)} of {len(rows)} error-level defects found in {len(checked)} files; "
          f"{len(false_errors)} false errors, {len(memory_errors)} memory errors")  # fmt: skip
    for name in ("missed", "false_errors", "unlabelled_errors", "memory_errors"):
        for entry in figures[name]:  # type: ignore[attr-defined]
            print(f"  {name}: {json.dumps(entry)}")
    return figures


def _matches(row: dict[str, str], finding: Finding, root: Path) -> bool:
    """An error-level finding at the defect's key: by key name, at the file that holds it."""
    if finding.severity != "error":
        return False
    if row["kind"] == "memory":
        return finding.code.startswith("M")
    places = [place for place in [finding.place, *finding.related] if place is not None]
    if not any(corpus.relative_to(root, place.path) == row["file"] for place in places):
        return False
    keys = {key.strip() for key in row["key"].replace("|", ",").split(",")}
    if row["key"].startswith("("):
        return True
    return bool(keys & ({str(part) for part in finding.key_path} | set(finding.keys)))
