"""The in-situ ratios of hardware_db, fitted on published runs, and left out source by source (`in-situ FILE.csv...`).

`in_situ_ratio` in hardware_db/rates.yaml says by how much products and attention take longer inside a step than alone: a
few numbers, one a class of device and operand. They minimise Huber's loss of log(measured / projected), quadratic up to 15 %
and linear beyond, a run of a source with n of them weighing 1/sqrt(n). A source is scored with the ratios that the others
give, never with its own; the releases of one publisher's table are one source. Runs of the Primus projection blog never take
part. `--json tests/validation/in_situ.json` stores what the ground-truth command scores with; the ratios of all are the values
of rates.yaml.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primus_lint.projection import project

from .ground_truth import prepare, seconds_of
from .ground_truth_rows import build
from .in_situ_ratios import classes, family, with_ratios

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROBE = 1.2  # seconds are linear in a ratio but for what hides behind what: two projections tell the slope
KNEE = 0.15
GRID = [ratio / 100 for ratio in range(85, 161)]
# Sources that take part although a column is blank: 16 bits either way (vTrain, every tenth run), and FP8 recipes of models
# that need no recomputation on their devices (NeMo)
ALSO = ("NVIDIA NeMo", "vTrain")
EVERY_TENTH = "vTrain"


@dataclass
class Sample:
    """A run: what it took, what it takes at ratios of 1, and seconds more for every unit of a class's ratio."""

    family: str
    measured_s: float
    alone_s: float
    slopes: dict[str, float]

    def loss(self, ratios: dict[str, float]) -> float:
        seconds = self.alone_s + sum(slope * (ratios.get(name, 1.0) - 1) for name, slope in self.slopes.items())
        error = abs(math.log(self.measured_s / seconds))
        return error * error / 2 if error <= KNEE else KNEE * (error - KNEE / 2)


def takes_part(row: Any) -> bool:
    if row.source.startswith(EVERY_TENTH) and int(row.id[2:]) % 10:
        return False
    return bool(row.complete or row.source.startswith(ALSO))


def sample(source: str, run: Any, accelerator: Any, node: Any, measured_s: float) -> Sample:
    alone = project(run, with_ratios(accelerator, {}), node)
    assert alone is not None
    slopes = {}
    for name in classes(accelerator):
        probed = project(run, with_ratios(accelerator, {name: PROBE}), node)
        assert probed is not None
        slopes[name] = (probed.iteration_s - alone.iteration_s) / (PROBE - 1)
    return Sample(family(source), measured_s, alone.iteration_s, slopes)


def fit(samples: Iterable[Sample]) -> dict[str, float]:
    """Ratio by class, one after the other on a grid of 0.01 until none moves; a class without runs stays 1."""
    samples = list(samples)
    counts: dict[str, int] = {}
    for one in samples:
        counts[one.family] = counts.get(one.family, 0) + 1
    ratios = {name: 1.0 for one in samples for name in one.slopes}
    for _ in range(10):
        before = dict(ratios)
        for name in sorted(ratios):
            own = [one for one in samples if one.slopes.get(name, 0.0) > 0]

            def loss(ratio: float, name: str = name, own: list[Sample] = own) -> float:
                return sum(one.loss({**ratios, name: ratio}) / math.sqrt(counts[one.family]) for one in own)

            ratios[name] = min(GRID, key=loss)
        if ratios == before:
            break
    return ratios


def left_out(samples: list[Sample]) -> dict[str, dict[str, float]]:
    """Family -> the ratios that all the others give; "" -> those of all."""
    names = sorted({one.family for one in samples})
    return {"": fit(samples), **{name: fit(one for one in samples if one.family != name) for name in names}}


def run(paths: list[Path]) -> dict[str, Any]:
    """Fit on all runs, and on all but those of every source."""
    samples = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            for row in map(build, csv.DictReader(file)):
                one = prepare(row) if takes_part(row) else {}
                if "recipe" in one:
                    recipe_run, accelerator, node, _ = one["recipe"]
                    samples.append(sample(row.source, recipe_run, accelerator, node, seconds_of(row.raw, recipe_run)))
    ratios = left_out(samples)
    alone = {f"only {name}": fit(one for one in samples if one.family == name) for name in ratios if name}
    for name, found in {**ratios, **alone}.items():
        print(f"{name or 'all sources':48}", "  ".join(f"{key} {ratio:.2f}" for key, ratio in sorted(found.items())))
    return {"runs": len(samples), "ratios": ratios}
