"""Error of the projection and of the ledger on published measurements (`ground-truth FILE.csv...`).

Speed is scored on tokens/s (or seconds where a row has only those). Two things rest on scored runs (hardware_db/rates.yaml):
the host time per operation, which is the floor of vTrain's smallest layers, and the in-situ ratios, of which every source
gets those that the other sources give (`in_situ`). The choice of effects and of sources of rates was made with these residuals
in view. Figures are fractions.
`complete` rows state, or their source settles (`ground_truth_facts`, `ground_truth_bridge`), everything that design 4.5
names; the other rows that can be built are scored apart, with recomputation as an interval between none and full where it
is not stated. `newest` repeats the complete rows as if every source ran today's attention library, not the one that its
software pinned. `calibrated` repeats them after one other run of the same framework and device has been learned from
(`primus_lint.projection.calibrate`), averaged over every choice of that run, and apart over those of the same model and of
others; `before` is the blind error of the same rows. A row whose own speed passes the peak of its device is abstained.
"""

from __future__ import annotations

import csv
from copy import copy
from statistics import mean
from typing import TYPE_CHECKING, Any

from primus_lint.hardware import accelerator, node_type
from primus_lint.ir.record import replace
from primus_lint.ir.run import Target
from primus_lint.ledger import ledger
from primus_lint.lower.megatron import lower
from primus_lint.projection import project, why_not
from primus_lint.readers.batch import RequestError, read_batch

from .ground_truth_blog import assumed
from .ground_truth_facts import NETWORKS, RECOMPUTE
from .ground_truth_figures import show, summary
from .ground_truth_lora import lora
from .ground_truth_memory import NO_ACCOUNT, OTHER_ENGINES, memory
from .ground_truth_rows import Row, build, start
from .in_situ_ratios import without_source

if TYPE_CHECKING:
    from pathlib import Path


def run(paths: list[Path]) -> dict[str, Any]:
    rows: list[Row] = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            rows += [build(raw) for raw in csv.DictReader(file)]
    scored = [prepare(row) for row in rows]
    for one in scored:
        if "recipe" in one:
            score(one)
    calibrated(scored)
    figures = summary(scored)
    figures["assumed"] = assumed(rows, recipe)
    figures["lora"] = lora(rows, recipe)
    for row in scored:
        row.pop("recipe", None)
    show(figures)
    return figures


def recipe(request: dict[str, Any]) -> tuple[Any, Any]:
    """(Run, accelerator) of a request; (None, None) when it cannot be lowered. Raises RequestError. `replaced` of a request: parts
    of the run that its software does otherwise than Megatron-LM with these arguments."""
    request = dict(request)
    replaced = request.pop("replaced", {})
    target = request["target"]
    found = accelerator(target["gpu"])
    if found is None or target["world_size"] is None:
        return None, None
    document = read_batch(request)
    place = Target(found.name, target["world_size"], target["gpus_per_node"])
    lowered = lower(document.sections[0], place, "d3528a21", "megatron", request.get("env"), request.get("stack")).run
    if lowered is not None:
        lowered = replace(lowered, **{part: replace(getattr(lowered, part), **new) for part, new in replaced.items()})
    return lowered, found


def prepare(row: Row) -> dict[str, Any]:
    """One row: its `recipe` (run, accelerator, node type, row) and its memory, or why it was abstained."""
    result: dict[str, Any] = {"id": row.id, "source": row.source, "group": row.group, "missing": row.missing}
    raw = row.raw
    if row.reason is not None or row.request is None:
        return {**result, "abstained": row.reason or f"not stated: {', '.join(row.missing)}"}
    needed = [name for name in row.missing if name in ("seq_len", "mbs", "gbs", "tp", "pp", "num_gpus", "gpu")]
    if needed:
        return {**result, "abstained": f"not stated: {', '.join(needed)}"}
    try:
        recipe_run, found = recipe(row.request)
    except RequestError as error:
        return {**result, "abstained": str(error)}
    if recipe_run is None:
        return {**result, "abstained": f"GPU {raw['gpu']!r} or the arguments cannot be lowered"}
    reason = why_not(recipe_run)
    if reason is not None:
        return {**result, "abstained": reason}
    account = ledger(recipe_run, found)
    result["memory"] = memory(row, account)
    result["oom"] = verdict(row, account, found)
    if row.speed_reason is not None:
        return {**result, "abstained": row.speed_reason}
    result["complete"] = row.complete
    node = _node(row, found)
    projection = project(recipe_run, found, node)
    assert projection is not None
    if projection.mfu * projection.iteration_s / seconds_of(raw, recipe_run) > 1:
        return {**{key: result[key] for key in ("id", "source", "group", "missing")}, "abstained": "passes the peak"}
    result["recipe"] = (recipe_run, without_source(found, row.source), node, row)
    return result


def score(result: dict[str, Any]) -> None:
    """Measured and projected tokens/s (or seconds) and the error of a prepared row."""
    recipe_run, found, node, row = result["recipe"]
    raw = row.raw
    projection = project(recipe_run, found, node)
    assert projection is not None
    result.update(_compare(raw, projection))
    today, _ = recipe({**row.request, "stack": None})
    newest = project(today, found, node)
    assert newest is not None
    result["newest_error"] = _compare(raw, newest)["error"]
    result["band_holds"] = _in_band(result["error"], projection)
    result["breakdown"] = {
        key: round(value / projection.iteration_s, 4) for key, value in projection.breakdown_s.items()
    }
    if any(name.startswith("recompute") for name in row.missing):
        other = dict(row.request, args={**row.request["args"], **RECOMPUTE["full"]})
        slow_run, _ = recipe(other)
        slow = project(slow_run, found, node)
        if slow is not None:
            result["interval"] = [_compare(raw, slow)["projected"], result["projected"]]


def _node(row: Row, found: Any) -> Any:
    """The node type, with the network of the source's machine where it is another than the usual one."""
    network = start(row.source, NETWORKS)
    if network is None:
        return None
    node = node_type(found.name, 8)
    assert node is not None
    changed = copy(node)
    changed.nics, changed.nic_bytes_per_s = network
    return changed


def verdict(row: Row, account: Any, found: Any) -> str | None:
    """What a run did, "ran" or "oom", and what the account says; None where either is not known."""
    raw = row.raw
    unknown = raw["oom"] not in ("yes", "no") or not account
    if unknown or any(name.startswith("recompute") for name in row.missing):
        return None
    if any(name in raw["framework"] for name in (*OTHER_ENGINES, *NO_ACCOUNT)):
        return None
    said = {True: "fits", False: "oom", None: "unsure"}[account.fits(found.visible_hbm_bytes)]
    return f"{'oom' if raw['oom'] == 'yes' else 'ran'}, {said}"


def calibrated(rows: list[dict[str, Any]]) -> None:
    """`calibrated` of complete rows: mean error and share in the band after one other run of the framework and device was
    learned from, as the command `calibrate` does it, over "all" choices of that run, those of the "same" model, and "other"
    ones."""
    from primus_lint.projection.calibrate import learn, lesson, model_of

    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "recipe" in row and row["complete"]:
            groups.setdefault((row["recipe"][3].raw["framework"], row["recipe"][1].name), []).append(row)
    for group in groups.values():
        lessons = []
        for row in group:
            run_, found, node, one = row["recipe"]
            lessons.append(lesson(run_, seconds_of(one.raw, run_), found, node))
        for index, row in enumerate(group):
            run_, found, node, one = row["recipe"]
            model = model_of(run_)
            scores: dict[str, list[tuple[float, bool]]] = {}
            for other, learned in enumerate(lessons):
                if other == index or learned is None:
                    continue
                projection = project(run_, found, node, learned=learn((learned,), model))
                assert projection is not None
                error = _compare(one.raw, projection)["error"]
                score = abs(error), _in_band(error, projection)
                scores.setdefault("all", []).append(score)
                scores.setdefault("same" if learned.model == model else "other", []).append(score)
            row["calibrated"] = {name: tuple(map(mean, zip(*each, strict=True))) for name, each in scores.items()}


def _in_band(error: float, projection: Any) -> bool:
    """Whether the band holds a run: `error` is measured over projected seconds, minus 1."""
    return bool(projection.low_s <= (1 + error) * projection.iteration_s <= projection.high_s)


def seconds_of(raw: dict[str, str], recipe_run: Any) -> float:
    """Seconds of an iteration of a measured row."""
    if raw["measured_tokens_per_s_per_gpu"]:
        tokens = recipe_run.batch.global_batch_size * recipe_run.batch.seq_length
        return float(tokens / float(raw["measured_tokens_per_s_per_gpu"]) / recipe_run.target.world_size)
    return float(raw["measured_iter_s"])


def _compare(raw: dict[str, str], projection: Any) -> dict[str, Any]:
    """Measured and projected speed; `error` is projected over measured, minus 1, of tokens/s."""
    if raw["measured_tokens_per_s_per_gpu"]:
        measured, projected = float(raw["measured_tokens_per_s_per_gpu"]), projection.tokens_per_s_per_gpu
        return {"unit": "tokens/s/GPU", "measured": measured, "projected": projected, "error": projected / measured - 1}
    measured, projected = float(raw["measured_iter_s"]), projection.iteration_s
    return {"unit": "s", "measured": measured, "projected": projected, "error": measured / projected - 1}
