"""How good the tool's choice is among measured configurations of one training (`choice FILE.csv...`).

A group holds runs of one source that share model, GPUs, sequence, global batch and precision, and differ in how they are
laid out; repeats are averaged, and a crash or an out-of-memory counts as no speed. The pick is, of those that the ledger does
not call out of memory, the one with the highest projected tokens/s, or of those that the projection cannot tell from it
(`tune.ties`) the one with the fewest GPUs a replica. Beside it the first feasible one: the
smallest TP x PP that the same ledger lets pass, with the largest micro-batch. Regret: the share of the measured best
tokens/s that a choice gives away.
"""

from __future__ import annotations

import csv
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.ledger import ledger
from primus_lint.projection import project, why_not
from primus_lint.readers.batch import RequestError
from primus_lint.tune.ties import model_parallel, told_apart

from .ground_truth import _node, recipe
from .ground_truth_rows import build

if TYPE_CHECKING:
    from pathlib import Path

    from primus_lint.projection import Projection

AT_LEAST = 4  # configurations of a group
LAID_OUT = ("mbs", "tp", "pp", "vpp", "cp", "ep", "etp", "dp_shard", "seq_parallel", "recompute", "dist_opt", "other")


class Configuration(NamedTuple):
    """One layout of a training. `measured`: tokens/s/GPU of its runs (0: it crashed)."""

    measured: float
    projection: Projection
    fits: bool | None
    gpus: int  # that hold one replica
    size: tuple[int, int, int]  # TP x PP, TP, minus the micro-batch: what the first feasible one is ordered by


def run(paths: list[Path]) -> dict[str, Any]:
    groups: dict[tuple[str, ...], dict[tuple[str, ...], list[Any]]] = {}
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            for raw in csv.DictReader(file):
                group = tuple(raw[key] for key in ("source", "model", "gpu", "num_gpus", "seq_len", "gbs", "precision"))
                groups.setdefault(group, {}).setdefault(tuple(raw[key] for key in LAID_OUT), []).append(raw)
    chosen = []
    for group, layouts in groups.items():
        if len(layouts) >= AT_LEAST:
            found = [each for each in map(configuration, layouts.values()) if each is not None]
            if len(found) >= AT_LEAST and max(each.measured for each in found) > 0:
                chosen.append((group, found))
    figures = {"all": summary([found for _, found in chosen])}
    for source in sorted({group[0] for group, _ in chosen}):
        figures[source] = summary([found for group, found in chosen if group[0] == source])
    show(figures)
    return figures


def configuration(raws: list[dict[str, str]]) -> Configuration | None:
    """A layout with its measured and projected speed; None when it cannot be projected or was not measured."""
    row = build(raws[0])
    speeds = [0.0 if raw["oom"] == "yes" else _measured(raw) for raw in raws]
    known = [speed for speed in speeds if speed is not None]
    if row.request is None or row.reason is not None or not known:
        return None
    try:
        lowered, found = recipe(row.request)
    except RequestError:
        return None
    if lowered is None or why_not(lowered) is not None:
        return None
    projection = project(lowered, found, _node(row, found))
    if projection is None:
        return None
    account = ledger(lowered, found)
    fits = account.fits(found.visible_hbm_bytes) if account else None
    parallel = lowered.parallel
    size = parallel.tp * parallel.pp, parallel.tp, -lowered.batch.micro_batch_size
    gpus = model_parallel(parallel.tp, parallel.pp, parallel.cp)
    return Configuration(mean(known), projection, fits, gpus, size)


def _measured(raw: dict[str, str]) -> float | None:
    """Tokens/s/GPU of a run; None when it states none."""
    if raw["measured_tokens_per_s_per_gpu"]:
        return float(raw["measured_tokens_per_s_per_gpu"])
    if raw["measured_iter_s"] and raw["gbs"] and raw["seq_len"] and raw["num_gpus"]:
        tokens = float(raw["gbs"]) * float(raw["seq_len"])
        return tokens / float(raw["measured_iter_s"]) / float(raw["num_gpus"])
    return None


def summary(groups: list[list[Configuration]]) -> dict[str, Any]:
    """Shares of groups in which the pick is the measured best or among the best three, and the regret of both choices."""
    ours, first = [], []
    for found in groups:
        feasible = [each for each in found if each.fits is not False] or found
        ours.append(_ranked(found, picked(feasible)))
        first.append(_ranked(found, min(feasible, key=lambda each: each.size)))
    return {
        "groups": len(groups),
        "configurations": sum(map(len, groups)),
        "pick": _figures(ours),
        "first_feasible": _figures(first),
    }


def picked(feasible: list[Configuration]) -> Configuration:
    """The fastest by projection, or what cannot be told from it and needs fewer GPUs a replica."""
    fastest = max(feasible, key=lambda each: float(each.projection.tokens_per_s_per_gpu))
    work = [each for each in feasible if tokens(each) == tokens(fastest)]
    tied = [each for each in work if not told_apart(each.projection, fastest.projection)]
    return min(tied, key=lambda each: (each.gpus, float(each.projection.iteration_s)))


def tokens(each: Configuration) -> int:
    """Tokens of a step and GPU: steps of the same work can be compared."""
    return round(float(each.projection.tokens_per_s_per_gpu) * float(each.projection.iteration_s))


def _ranked(found: list[Configuration], choice: Configuration) -> tuple[int, float]:
    """Place of a choice among the measured ones (0: the best), and its regret."""
    best = max(each.measured for each in found)
    return sum(each.measured > choice.measured for each in found), 1 - choice.measured / best


def _figures(ranked: list[tuple[int, float]]) -> dict[str, float]:
    places, regrets = [place for place, _ in ranked], [regret for _, regret in ranked]
    return {
        "top_1": mean(place < 1 for place in places),
        "top_3": mean(place < 3 for place in places),
        "mean_regret": mean(regrets),
        "median_regret": median(regrets),
    }


def show(figures: dict[str, Any]) -> None:
    print(f"{'':44} groups  runs | pick: top 1  top 3  regret | first feasible: top 1  top 3  regret")
    for name, row in figures.items():
        shown = []
        for side in ("pick", "first_feasible"):
            data = row[side]
            shown.append(f"{data['top_1']:6.0%} {data['top_3']:6.0%} {data['mean_regret']:7.1%}")
        print(f"{name[:44]:44} {row['groups']:6} {row['configurations']:5} | {shown[0]:>26} | {shown[1]}")
