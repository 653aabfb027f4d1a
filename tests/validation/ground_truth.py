"""Error of the projection and of the ledger on published measurements (`ground-truth FILE.csv...`).

Speed is scored on tokens/s (or seconds where a row has only those), blind: nothing is fitted to any run, but for the
host time per operation, which comes from the floor of vTrain's smallest layers (see `projection.device`). Figures are
fractions. `complete` rows state everything that design 4.5 names; the other rows that can be built are scored apart,
with recomputation as an interval between none and full where it is not stated. `calibrated` repeats the complete rows
after one run of every (source, GPU), the first of the file, has set the compute factor; that run is not scored.
"""

from __future__ import annotations

import csv
from copy import copy
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from primus_lint.hardware import accelerator, node_type
from primus_lint.ir.run import Target
from primus_lint.lower.megatron import lower
from primus_lint.projection import project, why_not
from primus_lint.readers.batch import RequestError, read_batch

from .ground_truth_blog import assumed
from .ground_truth_rows import RECOMPUTE, Row, build

if TYPE_CHECKING:
    from pathlib import Path

EXACT_KINDS = ("allocated", "reserved")


def run(paths: list[Path]) -> dict[str, Any]:
    rows: list[Row] = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            rows += [build(raw) for raw in csv.DictReader(file)]
    scored = [score(row) for row in rows]
    calibrated(scored)
    figures = summary(scored)
    figures["assumed"] = assumed(rows, recipe)
    for row in scored:
        row.pop("recipe", None)
    show(figures)
    return figures


def recipe(request: dict[str, Any]) -> tuple[Any, Any]:
    """(Run, accelerator) of a request; (None, None) when it cannot be lowered. Raises RequestError."""
    target = request["target"]
    found = accelerator(target["gpu"])
    if found is None or target["world_size"] is None:
        return None, None
    document = read_batch(request)
    place = Target(found.name, target["world_size"], target["gpus_per_node"])
    return lower(document.sections[0], place, "d3528a21", "megatron").run, found


def score(row: Row) -> dict[str, Any]:
    """One row: measured and projected tokens/s (or seconds), error, or why it was abstained."""
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
    memory(row, recipe_run, found, result)
    if row.speed_reason is not None:
        return {**result, "abstained": row.speed_reason}
    result["complete"] = row.complete
    node = _node(row, found)
    projection = project(recipe_run, found, node, factors=row.factors)
    assert projection is not None
    result["recipe"] = (recipe_run, found, node, row)
    result.update(_compare(raw, projection))
    result["band_holds"] = abs(1 + result["error"]) <= projection.high_s / projection.iteration_s and (
        1 + result["error"] >= projection.low_s / projection.iteration_s
    )
    result["breakdown"] = {
        key: round(value / projection.iteration_s, 4) for key, value in projection.breakdown_s.items()
    }
    if any(name.startswith("recompute") for name in row.missing):
        other = dict(row.request, args={**row.request["args"], **RECOMPUTE["full"]})
        slow_run, _ = recipe(other)
        slow = project(slow_run, found, node, factors=row.factors)
        if slow is not None:
            result["interval"] = [_compare(raw, slow)["projected"], result["projected"]]
    return result


def _node(row: Row, found: Any) -> Any:
    """The node type, with the network that the source states where it is another than the usual one."""
    if row.source.startswith("InternEvo"):  # "4x100Gb RoCE" a node
        node = node_type(found.name, 8)
        assert node is not None
        changed = copy(node)
        changed.nics, changed.nic_bytes_per_s = 4, 12.5e9
        return changed
    return None


def memory(row: Row, recipe_run: Any, found: Any, result: dict[str, Any]) -> None:
    """The ledger's peak against the measured one (like with like), and its verdict against fits and OOM labels."""
    from primus_lint.ledger import ledger

    if any(name.startswith("recompute") for name in row.missing):
        return
    account = ledger(recipe_run, found)
    if not account:
        return
    raw = row.raw
    kind = next((name for name in EXACT_KINDS if raw["mem_kind"].startswith(name)), None)
    if kind is not None and raw["measured_mem_gib"]:
        name = f"peak_{kind}_bytes"
        projected = max(int(getattr(rank, name)) for rank in account.ranks) / 2**30
        measured = float(raw["measured_mem_gib"])
        result["memory"] = {
            "kind": kind,
            "measured": measured,
            "projected": projected,
            "error": projected / measured - 1,
        }
    if raw["oom"] in ("yes", "no"):
        fits = account.fits(found.visible_hbm_bytes)
        result["oom"] = (
            f"{'oom' if raw['oom'] == 'yes' else 'ran'}, {({True: 'fits', False: 'oom', None: 'unsure'})[fits]}"
        )


def calibrated(rows: list[dict[str, Any]]) -> None:
    """`calibrated_error` of complete rows, after the first complete run of the same source and GPU set the factor."""
    from primus_lint.projection.calibrate import factors

    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "recipe" in row and row["complete"]:
            groups.setdefault((row["source"], row["group"][2]), []).append(row)
    for group in groups.values():
        run_, found, node, first = group[0]["recipe"]
        fitted = factors([(run_, _seconds(first.raw, run_))], found, node, first.factors)
        for row in group[1:]:
            run_, found, node, one = row["recipe"]
            projection = project(run_, found, node, factors=fitted)
            assert projection is not None
            row["calibrated_error"] = _compare(one.raw, projection)["error"]


def _seconds(raw: dict[str, str], recipe_run: Any) -> float:
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


def kendall_tau(pairs: list[tuple[float, float]]) -> float | None:
    """Tau-b of (measured, projected); None when either side is constant."""
    concordant = discordant = ties_x = ties_y = 0
    for i, (x, y) in enumerate(pairs):
        for other_x, other_y in pairs[:i]:
            dx, dy = x - other_x, y - other_y
            if dx == 0 and dy == 0:
                continue
            if dx == 0:
                ties_x += 1
            elif dy == 0:
                ties_y += 1
            elif (dx > 0) == (dy > 0):
                concordant += 1
            else:
                discordant += 1
    left, right = concordant + discordant + ties_x, concordant + discordant + ties_y
    if left == 0 or right == 0:
        return None
    return float((concordant - discordant) / (left * right) ** 0.5)


def taus(rows: list[dict[str, Any]]) -> dict[str, tuple[int, float]]:
    """Kendall tau inside every (source, model, GPU, GPU count) group of at least three scored rows."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows:
        if "error" in row:
            sign = 1 if row["unit"] != "s" else -1
            groups.setdefault(row["group"], []).append((sign * row["measured"], sign * row["projected"]))
    found = {}
    for group, pairs in groups.items():
        if len(pairs) >= 3:
            tau = kendall_tau(pairs)
            if tau is not None:
                found[" | ".join(group)] = (len(pairs), tau)
    return found


def _errors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [row["error"] for row in rows]
    if not errors:
        return {"n": 0}
    return {
        "n": len(errors),
        "mape": mean(abs(error) for error in errors),
        "median": median(abs(error) for error in errors),
        "bias": mean(errors),
        "in_band": mean(bool(row["band_holds"]) for row in rows),
    }


def _mape(errors: list[float]) -> dict[str, Any]:
    return {"n": len(errors), "mape": mean(abs(error) for error in errors)} if errors else {"n": 0}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    speed = [row for row in rows if "error" in row]
    complete = [row for row in speed if row["complete"]]
    by_source: dict[str, Any] = {}
    for source in dict.fromkeys(row["source"] for row in rows):
        mine = [row for row in rows if row["source"] == source]
        by_source[source] = {
            "rows": len(mine),
            "abstained": sum("abstained" in row for row in mine),
            "complete": _errors([row for row in complete if row["source"] == source]),
            "calibrated": _mape([row["calibrated_error"] for row in mine if "calibrated_error" in row]),
            "incomplete": _errors([row for row in speed if row["source"] == source and not row["complete"]]),
            "tau": taus(mine),
        }
    all_taus = [tau for _, tau in taus(speed).values()]
    overall = _errors(complete)
    after = [row["calibrated_error"] for row in rows if "calibrated_error" in row]
    exact = [row["memory"]["error"] for row in rows if "memory" in row]
    confusion: dict[str, int] = {}
    for row in rows:
        if "oom" in row:
            confusion[row["oom"]] = confusion.get(row["oom"], 0) + 1
    abstained: dict[str, int] = {}
    for row in rows:
        if "abstained" in row:
            abstained[row["abstained"]] = abstained.get(row["abstained"], 0) + 1
    return {
        "speed_mape_complete": overall.get("mape"),
        "speed_n_complete": overall["n"],
        "speed_bias": overall.get("bias"),
        "speed_median_complete": overall.get("median"),
        "speed_mape_calibrated": mean(abs(error) for error in after) if after else None,
        "speed_n_calibrated": len(after),
        "speed_incomplete": _errors([row for row in speed if not row["complete"]]),
        "tau_median": median(all_taus) if all_taus else None,
        "tau_groups": len(all_taus),
        "memory_mape_exact_kinds": mean(abs(error) for error in exact) if exact else None,
        "memory_n": len(exact),
        "oom_confusion": confusion,
        "abstained": abstained,
        "by_source": by_source,
        "rows": rows,
    }


def show(figures: dict[str, Any]) -> None:
    print(
        f"{'source':48} {'rows':>5} {'abst.':>5} | complete: n, MAPE, bias, in band | calibrated | incomplete: n, MAPE, median, bias"
    )
    for source, entry in figures["by_source"].items():
        one, after, other = entry["complete"], entry["calibrated"], entry["incomplete"]
        if one["n"] == other["n"] == 0:
            continue
        cells = [
            f"{one['n']:4} {one['mape']:6.1%} {one['bias']:+7.1%} {one['in_band']:5.0%}" if one["n"] else " " * 25,
            f"{after['mape']:6.1%}" if after["n"] else " " * 6,
            f"{other['n']:5} {other['mape']:7.1%} {other['median']:6.1%} {other['bias']:+7.1%}"
            if other["n"]
            else " " * 28,
        ]
        found = [tau for _, tau in entry["tau"].values()]
        tau = f" tau {median(found):.2f} ({len(found)})" if found else ""
        print(f"{source[:48]:48} {entry['rows']:5} {entry['abstained']:5} | {' | '.join(cells)}{tau}")
    if figures["speed_n_complete"]:
        print(
            f"complete: n {figures['speed_n_complete']}, MAPE {figures['speed_mape_complete']:.1%}, "
            f"median {figures['speed_median_complete']:.1%}, bias {figures['speed_bias']:+.1%}; "
            f"calibrated n {figures['speed_n_calibrated']}, MAPE {figures['speed_mape_calibrated'] or 0:.1%}; "
            f"tau median {figures['tau_median']} over {figures['tau_groups']} groups"
        )
    print(
        f"memory: n {figures['memory_n']}, MAPE {figures['memory_mape_exact_kinds']}; verdicts {figures['oom_confusion']}"
    )
    for one in figures["assumed"]:
        print(
            f"assumed {one['id']} {one['model']} {one['precision']} {one['gpus']} GPUs: measured {one['measured']:,.0f}, "
            f"projected {one['projected']:,.0f} ({one['error']:+.1%}), interval {one['interval'][0]:,.0f} to {one['interval'][1]:,.0f}"
        )
    for reason, count in sorted(figures["abstained"].items(), key=lambda item: -item[1]):
        print(f"  abstained {count:5}: {reason}")
