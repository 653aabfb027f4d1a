"""Verdict at each labelled world size (`worlds LABELS.csv CORPUS`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.worlds import legal_world_sizes
from tests.validation import corpus

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [2**power for power in range(12)]  # the labels hold 1, 2, 4 ... 2048


def run(paths: list[Path]) -> dict[str, Any]:
    labels, root = paths
    right = total = 0
    disagreements = []
    for row in corpus.rows(labels):
        checked = corpus.check(root, row["file"])
        subjects = [s for s in checked.subjects if s.section.name == row["module"]] or checked.subjects
        ours = set(legal_world_sizes(subjects[0].lowered)) if subjects and not checked.unreadable else set()
        theirs = {int(size) for size in row["legal_world_sizes"].split()}
        for size in SIZES:
            total += 1
            if (size in ours) == (size in theirs):
                right += 1
        wrong = [size for size in SIZES if (size in ours) != (size in theirs)]
        if wrong:
            disagreements.append(
                {
                    "file": row["file"],
                    "sizes": wrong,
                    "label": sorted(theirs),
                    "ours": sorted(size for size in ours if size in SIZES),
                    "reason": row.get("reason_if_8_is_illegal", ""),
                    "ours_says": [f.name + ": " + f.message for f in checked.findings if f.severity == "error"][:3],
                }
            )
    figures = {"agreement": right / max(total, 1), "pairs": total, "disagreements": disagreements}
    print(f"{total} (file, size) pairs, agreement {figures['agreement']:.4f}, {len(disagreements)} files differ")
    for item in disagreements:
        print(
            f"  {item['file']}: at {item['sizes']}; label {item['label']}, ours {item['ours']}; {item['ours_says'][:1]}"
        )
    return figures
