"""The method end to end: measure one process, project two, train two, compare. Nothing is simulated on the truth side.

    python -m tests.measure.live [--repeat 3] [--steps 5] [--seconds 1] [--alone] [--json OUT]

Once a repetition: the layers of the recipe are measured in one process (`primus-lint measure`, whole and as one of two
tensor-parallel shares), the collectives by two; the step of three two-process runs is projected; the three are trained
with gloo, and the median step (the first one left out) is compared. "tp carried" projects tensor parallelism from the whole
layers alone, "simulated" the three from bare products, attention and memory traffic without any measured layer, "busy"
the three from layers that two processes measured at the same time, as `measure` does under torchrun: caches and memory are
then shared as they are in training. `--alone` gives every process a real-time priority (root), without which other work on
the machine delays whoever wakes up from a collective.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from primus_lint.measure.records import LAYERS

from .recipe import PLAIN, SIZES, WAYS, live_run

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("dp", "tp", "pp")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(words: list[str], store: Path, rank: int, world: int, port: int) -> subprocess.Popen[str]:
    """One process of the run, with one thread."""
    env = {
        **os.environ, "PRIMUS_LINT_STORE": str(store), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def together(words: list[str], store: Path, world: int) -> str:
    """Standard output of rank 0. Raises RuntimeError with what a failing rank said."""
    port = free_port()
    ranks = [start(words, store, rank, world, port) for rank in range(world)]
    try:
        said = [process.communicate(timeout=300) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, (_, error) in zip(ranks, said, strict=True):
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)}: {error[-2000:]}")
    return said[0][0]


def measure(store: Path, way: str, seconds: float, only: tuple[str, ...], world: int = 1) -> None:
    words = ["-m", "primus_lint", "measure", "--model", "llama3-8b", "--device", "cpu", "--threads", "1"]
    for key, value in {**SIZES, **PLAIN, **WAYS[way]}.items():
        words += ["--set", f"{key}={str(value).lower()}"]
    for part in only:
        words += ["--only", part]
    together([*words, "--seconds", str(seconds)], store, world)


def measure_collectives(store: Path, seconds: float) -> None:
    words = ["-m", "primus_lint", "measure", "--device", "cpu", "--threads", "1", "--only", "collectives"]
    together([*words, "--seconds", str(seconds / 4)], store, 2)


def forget(store: Path, operations: tuple[str, ...]) -> None:
    with sqlite3.connect(store) as database:
        database.executemany("DELETE FROM measurements WHERE operation = ?", [(operation,) for operation in operations])


def device_in(store: Path) -> str:
    from primus_lint.measure.store import Store

    with Store(str(store)) as opened:
        return str(opened.summary()[0][0])


def project(store: Path, way: str) -> Any:
    """The projection of one way with what the store holds."""
    from primus_lint.hardware import accelerator, node_type
    from primus_lint.projection import project as projected

    before = os.environ.get("PRIMUS_LINT_STORE")
    os.environ["PRIMUS_LINT_STORE"] = str(store)
    try:
        name = device_in(store)
        found = projected(live_run(way, name), accelerator(name), node_type(name))
    finally:
        os.environ.pop("PRIMUS_LINT_STORE")
        if before is not None:
            os.environ["PRIMUS_LINT_STORE"] = before
    assert found is not None
    return found


def train(way: str, steps: int, store: Path) -> dict[str, Any]:
    """Seconds of a step (median, first one left out) and the losses of a real run."""
    said = together(["-m", "tests.measure.training", way, str(steps)], store, 1 if way == "one" else 2)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {**result, "step_s": median(result["seconds"][1:])}


def repetition(steps: int, seconds: float) -> dict[str, Any]:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        whole, shares, bare, busy = (Path(folder) / name for name in ("whole", "shares", "bare", "busy"))
        measure(whole, "one", seconds, ("layers", "memory"))
        measure_collectives(whole, seconds)
        for copy in (shares, bare, busy):
            copy.write_bytes(whole.read_bytes())
        measure(shares, "tp", seconds, ("layers",))
        forget(bare, LAYERS)
        measure(bare, "one", seconds, ("products", "attention"))
        measure(bare, "tp", seconds, ("products", "attention"))
        measure(busy, "one", seconds, ("layers", "memory"), world=2)
        measure(busy, "tp", seconds, ("layers",), world=2)
        projected = {way: project(shares, way) for way in ("one", *KINDS)}
        projected["tp carried"] = project(whole, "tp")
        projected.update({f"{way} simulated": project(bare, way) for way in KINDS})
        projected.update({f"{way} busy": project(busy, way) for way in KINDS})
        trained = {way: train(way, steps, whole) for way in ("one", *KINDS)}
    rows = {}
    for name, projection in projected.items():
        truth = trained[name.partition(" ")[0]]["step_s"]
        rows[name] = {
            "projected_s": projection.iteration_s,
            "low_s": projection.low_s,
            "high_s": projection.high_s,
            "source": projection.source,
            "trained_s": truth,
            "error": projection.iteration_s / truth - 1,
            "breakdown_s": {kind: value for kind, value in projection.breakdown_s.items() if value},
        }
    return {"rows": rows, "load": load, "losses": {way: run["losses"] for way, run in trained.items()}}


def summary(repetitions: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of every way over the repetitions."""
    figures: dict[str, Any] = {}
    for name in repetitions[0]["rows"]:
        errors = [repetition["rows"][name]["error"] for repetition in repetitions]
        figures[name] = {
            "errors": errors,
            "mean_absolute_error": sum(map(abs, errors)) / len(errors),
            "inside_band": sum(
                row["low_s"] <= row["trained_s"] <= row["high_s"] for row in (r["rows"][name] for r in repetitions)
            ),
        }
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.live", description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measured time")
    parser.add_argument("--alone", action="store_true", help="a real-time priority for every process")
    parser.add_argument("--json", dest="out")
    arguments = parser.parse_args()
    if arguments.alone:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    repetitions = []
    for number in range(arguments.repeat):
        repetitions.append(repetition(arguments.steps, arguments.seconds))
        for name, row in repetitions[-1]["rows"].items():
            print(
                f"{number + 1} {name:14} projected {row['projected_s']:.3f} s [{row['low_s']:.3f}, {row['high_s']:.3f}] "
                f"({row['source']}), trained {row['trained_s']:.3f} s, error {row['error']:+.1%}",
                flush=True,
            )
    figures = summary(repetitions)
    for name, figure in figures.items():
        print(
            f"{name:14} mean absolute error {figure['mean_absolute_error']:.1%}, inside the band {figure['inside_band']}"
        )
    if arguments.out:
        Path(arguments.out).write_text(json.dumps({"figures": figures, "repetitions": repetitions}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
