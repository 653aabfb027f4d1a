"""Every Megatron experiment of the corpus, tuned: `python -m tests.tune.corpus --jobs 2 --json OUT`.

Each file runs on its folder's GPU kind at the smallest legal size of several nodes (two nodes when none is legal). A
proposal counts as wrong when the new text, read anew, has an error of the framework's conditions or is not sure to fit.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText
from primus_lint.tune.fix import Rules, fix_source

ROOT = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "primus" / "examples" / "megatron" / "configs"


def one(path: str) -> dict[str, Any]:
    """Tune one file; figures, and `problem` when a proposal is wrong."""
    source = SourceText.from_path(path)
    alone = check_source(source, Options())
    subjects = [s for s in alone.subjects if s.section.framework == "megatron"]
    name = str(Path(path).relative_to(ROOT))
    if not subjects or subjects[0].run is None or subjects[0].accelerator is None:
        return {"path": name, "skipped": "no recipe that is modelled"}
    sizes = [size for size in subjects[0].legal_world_sizes if size >= 16 and size % 8 == 0]
    size = sizes[0] if sizes else 16
    options = Options(world_size=size)
    start, cpu = time.perf_counter(), time.process_time()
    result = fix_source(source, options, None, Rules())
    row: dict[str, Any] = {
        "path": name, "world_size": size, "legal_before": bool(sizes),
        "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu,
    }  # fmt: skip
    before = result.before.subjects[0]
    certificate = result.certificate
    row["space"] = None if certificate is None else certificate.space
    row["complete"] = None if certificate is None else certificate.complete
    row["messages"] = result.messages
    if result.candidate is None:
        row["outcome"] = "repaired" if result.changed else "unchanged"
        return row
    row["outcome"] = "tuned"
    row["changes"] = result.candidate.changes
    row["text"] = result.source.text
    fresh = check_source(SourceText.from_bytes(path, result.source.data), options)
    subject = fresh.subjects[0]
    old = {f.code for f in before.conditions if f.severity == "error"}
    errors = [f.name for f in subject.conditions if f.severity == "error"]
    new = [f.name for f in subject.conditions if f.severity == "error" and f.code not in old]
    accelerator = subject.accelerator
    fits = subject.ledger is not None and accelerator is not None and subject.ledger.fits(accelerator.visible_hbm_bytes)
    row["errors_left"] = errors
    row["problem"] = f"errors {new}" if new else "" if fits is True else "not sure to fit"
    if before.projection is not None and before.ledger is not None and accelerator is not None:
        row["fitted_before"] = before.ledger.fits(accelerator.visible_hbm_bytes)
        if row["fitted_before"] is not False and subject.projection is not None:
            row["gain"] = float(before.projection.iteration_s) / float(subject.projection.iteration_s) - 1
    return row


def files() -> list[str]:
    return sorted(str(path) for path in ROOT.rglob("*.yaml"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="take every n-th file")
    parser.add_argument("--json")
    given = parser.parse_args()
    from concurrent.futures import ProcessPoolExecutor

    rows = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for row in pool.map(one, files()[:: given.every]):
            rows.append(row)
            shown = (
                row.get("skipped")
                or f"{row['world_size']:5} {row['outcome']:9} {row.get('gain') or 0:+7.1%} {row['cpu_seconds']:6.1f} s"
            )
            print(f"{row['path']:70} {shown} {row.get('problem', '')}", flush=True)
    tuned = [row for row in rows if row.get("outcome") == "tuned"]
    gains = sorted(row["gain"] for row in tuned if "gain" in row)
    wrong = [row for row in tuned if row["problem"]]
    seconds = sorted(row["cpu_seconds"] for row in rows if "cpu_seconds" in row)
    print(
        f"{len(rows)} files, {sum('skipped' in row for row in rows)} not modelled, {len(tuned)} tuned, {len(wrong)} proposals "
        f"that are illegal or do not fit; median gain of those that ran {gains[len(gains) // 2] if gains else 0:.1%}; "
        f"CPU seconds a file: median {seconds[len(seconds) // 2]:.1f}, largest {seconds[-1]:.1f}"
    )
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1, default=str))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
