"""`python -m tests.fuzz.run --count 20000 [--seed S] [FILES...]`: hostile files through the whole pipeline.

Every variant must give findings or "could not check" (never a traceback), in bounded time and memory. Prints the
slowest variants and the peak memory; exit status 1 when a variant raised.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import traceback
from pathlib import Path

from primus_lint.pipeline import Options, check_source
from primus_lint.report.json_report import report
from primus_lint.source.text import SourceText
from tests.fuzz.mutate import mutated

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "corpus" / "primus"


def files(arguments: list[str]) -> list[Path]:
    """The given files, else the experiments of the shared corpus, else the shipped examples."""
    if arguments:
        return [Path(name) for name in arguments]
    folder = SHARED / "examples" if SHARED.is_dir() else ROOT / "examples"
    return sorted(folder.rglob("*.yaml"))


def survive(name: str, data: bytes, options: Options) -> str | None:
    """The traceback of a variant that raised, or None."""
    try:
        checked = check_source(SourceText.from_bytes(f"fuzz/MI300X/{name.split(':')[1]}", data), options)
        report([checked], str(ROOT))
        if checked.is_recipe and checked.document.fatal and not any(f.severity == "error" for f in checked.findings):
            return f"{name}: could not be checked, but no error says so"
    except Exception:
        return f"{name}\n{traceback.format_exc(limit=-4)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    sources = files(arguments.files)
    failures: list[str] = []
    slow: list[tuple[float, str]] = []
    targets = [Options(), Options(nodes=1), Options(gpu="mi355x", nodes=4), Options(world_size=3)]
    begin = time.perf_counter()
    for number, (name, data) in enumerate(
        mutated(sources, count=arguments.count, seed=arguments.seed, start=arguments.start)
    ):
        start = time.perf_counter()
        failure = survive(name, data, targets[number % len(targets)])
        slow.append((time.perf_counter() - start, name))
        slow = sorted(slow, reverse=True)[:5]
        if failure:
            failures.append(failure)
            if len(failures) <= 20:
                print(failure, file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{arguments.count} variants of {len(sources)} files in {time.perf_counter() - begin:.0f} s: {len(failures)} raised"
    )
    print(f"peak memory {peak:.0f} MiB; slowest: " + ", ".join(f"{took:.2f} s {name}" for took, name in slow))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
