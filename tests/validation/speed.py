"""Speed figures (`speed CORPUS`): recipes per second of the array form, cold start against a bare interpreter."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def run(paths: list[Path]) -> dict[str, Any]:
    root = paths[0]
    files = sorted(
        str(path)
        for folder in ("examples", "tests")
        if (root / folder).is_dir()
        for path in (root / folder).rglob("*.yaml")
    ) or sorted(str(path) for path in root.rglob("*.yaml"))
    one = next((name for name in files if "llama3.1_8B-BF16-pretrain" in name), files[0])
    bare = cpu_seconds([sys.executable, "-c", "pass"])
    cold = cpu_seconds([sys.executable, "-m", "primus_lint", "--gpu", "mi300x", "--nodes", "1", one])
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "primus_lint", "--gpu", "mi300x", "--output-format", "json", *files],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    corpus_s = time.perf_counter() - start
    parses, modules = count(files)
    figures: dict[str, Any] = {
        "corpus_parses": parses,
        "corpus_modules": modules,
        "memory_recipes_per_s": None,
        "memory_time_recipes_per_s": None,
        "cold_over_bare_cpu": cold / bare,
        "corpus_s": corpus_s,
        "corpus_files": len(files),
        "bare_cpu_s": bare,
        "cold_cpu_s": cold,
    }
    try:
        from primus_lint.tune.bench import recipes_per_second
    except ImportError:
        pass
    else:
        figures.update(recipes_per_second())
    for name, value in figures.items():
        print(f"{name:28}{value}")
    return figures


def count(files: list[str]) -> tuple[int, int]:
    """Files parsed as YAML and modules imported while all files are checked in one process."""
    code = (
        "import sys, contextlib, io\n"
        "from primus_lint.source.spans import SpanDoc\n"
        "parses = 0\n"
        "original = SpanDoc.parse.__func__\n"
        "def parse(cls, *a, **k):\n    global parses\n    parses += 1\n    return original(cls, *a, **k)\n"
        "SpanDoc.parse = classmethod(parse)\n"
        "from primus_lint.cli.run import run_check\n"
        "from primus_lint.cli.options import plain\n"
        "words = sys.stdin.read().split(chr(10))\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        "    run_check(*plain(['--gpu', 'mi300x', *words]))\n"
        "print(parses, sum(name.startswith('primus_lint') for name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(files), capture_output=True, text=True, check=True
    )
    parses, modules = done.stdout.split()
    return int(parses), int(modules)


def cpu_seconds(command: list[str], runs: int = 9) -> float:
    """Median CPU seconds (user + system) of a command, after one warm-up that leaves compiled modules behind.

    An installed package has its modules compiled; a checkout with PYTHONDONTWRITEBYTECODE would compile them anew at
    every start, so the runs keep theirs in a folder of their own.
    """
    times = []
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(runs + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=env)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return sorted(times[1:])[runs // 2]
