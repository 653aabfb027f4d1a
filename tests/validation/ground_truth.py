"""Error of the projection and of the ledger on published measurements (`ground-truth FILE.csv...`).

Speed is scored on tokens/s (or seconds where a row has only those), blind: nothing is fitted to any row. Figures are
fractions. `complete` rows state everything that design 4.5 names; the other rows that can be built are scored apart,
with recomputation as an interval between none and full where it is not stated.
"""

from __future__ import annotations

import csv
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from primus_lint.hardware import accelerator
from primus_lint.ir.run import Target
from primus_lint.lower.megatron import lower
from primus_lint.projection import project, why_not
from primus_lint.readers.batch import RequestError, read_batch

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
    figures = summary(scored)
    show(figures)
    return figures


def recipe(request: dict[str, Any]) -> tuple[Any, Any]:
    """(Run, accelerator) of a request; (None, None) when it cannot be lowered. Raises RequestError."""
    target = request["target"]
    found = accelerator(target["gpu"])
    if found is None:
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
    result["complete"] = row.complete
    try:
        recipe_run, found = recipe(row.request)
    except RequestError as error:
        return {**result, "abstained": str(error)}
    if recipe_run is None:
        return {**result, "abstained": f"GPU {raw['gpu']!r} or the arguments cannot be lowered"}
    reason = why_not(recipe_run)
    if reason is not None:
        return {**result, "abstained": reason}
    projection = project(recipe_run, found)
    assert projection is not None
    result.update(_compare(raw, projection))
    result["band_holds"] = abs(1 + result["error"]) <= projection.high_s / projection.iteration_s and (
        1 + result["error"] >= projection.low_s / projection.iteration_s
    )
    result["breakdown"] = {key: round(value / projection.iteration_s, 4) for key, value in projection.breakdown_s.items()}
    if any(name.startswith("recompute") for name in row.missing):
        other = dict(row.request, args={**row.request["args"], **RECOMPUTE["full"]})
        slow_run, _ = recipe(other)
        slow = project(slow_run, found)
        if slow is not None:
            result["interval"] = [_compare(raw, slow)["projected"], result["projected"]]
    return result


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
            "incomplete": _errors([row for row in speed if row["source"] == source and not row["complete"]]),
            "tau": {group: value for group, value in taus(mine).items()},
        }
    all_taus = [tau for _, tau in taus(speed).values()]
    overall = _errors(complete)
    abstained: dict[str, int] = {}
    for row in rows:
        if "abstained" in row:
            abstained[row["abstained"]] = abstained.get(row["abstained"], 0) + 1
    return {
        "speed_mape_complete": overall.get("mape"),
        "speed_n_complete": overall["n"],
        "speed_bias": overall.get("bias"),
        "speed_incomplete": _errors([row for row in speed if not row["complete"]]),
        "tau_median": median(all_taus) if all_taus else None,
        "tau_groups": len(all_taus),
        "abstained": abstained,
        "by_source": by_source,
        "rows": rows,
    }


def show(figures: dict[str, Any]) -> None:
    print(f"{'source':48} {'rows':>5} {'abst':>5} | {'n':>4} {'mape':>6} {'bias':>7} | incomplete: {'n':>4} {'mape':>6} {'bias':>7}")
    for source, entry in figures["by_source"].items():
        cells = []
        for part in ("complete", "incomplete"):
            one = entry[part]
            cells.append(f"{one['n']:4} {one['mape']:6.1%} {one['bias']:+7.1%}" if one["n"] else f"{0:4} {'':6} {'':7}")
        taus_here = [tau for _, tau in entry["tau"].values()]
        tau = f" tau {median(taus_here):.2f} ({len(taus_here)})" if taus_here else ""
        print(f"{source[:48]:48} {entry['rows']:5} {entry['abstained']:5} | {cells[0]} |             {cells[1]}{tau}")
    if figures["speed_n_complete"]:
        print(
            f"complete: n {figures['speed_n_complete']}, MAPE {figures['speed_mape_complete']:.1%}, "
            f"bias {figures['speed_bias']:+.1%}; tau median {figures['tau_median']} over {figures['tau_groups']} groups"
        )
    for reason, count in sorted(figures["abstained"].items(), key=lambda item: -item[1]):
        print(f"  abstained {count:5}: {reason}")
