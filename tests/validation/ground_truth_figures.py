"""Statistics of the ground-truth command: errors by source, rank correlation inside a group, and the printed table."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

from .ground_truth_memory import show as show_memory
from .ground_truth_memory import summary as memory_summary


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


def _calibrated(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Error and share in the band before and after one run was learned from: any, of the same model, of another."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("all", "same", "other"):
        mine = [row for row in rows if name in row.get("calibrated", {})]
        found[name] = {"n": len(mine)}
        if mine:
            found[name].update(
                before=mean(abs(row["error"]) for row in mine),
                before_in_band=mean(bool(row["band_holds"]) for row in mine),
                mape=mean(row["calibrated"][name][0] for row in mine),
                in_band=mean(row["calibrated"][name][1] for row in mine),
            )
    return found


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
            "newest": _mape([row["newest_error"] for row in complete if row["source"] == source]),
            "calibrated": _calibrated(mine),
            "incomplete": _errors([row for row in speed if row["source"] == source and not row["complete"]]),
            "tau": taus(mine),
        }
    all_taus = [tau for _, tau in taus(speed).values()]
    overall = _errors(complete)
    newest = [row["newest_error"] for row in complete]
    confusion: dict[str, int] = {}
    for row in rows:
        if row.get("oom"):
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
        "speed_mape_newest_kernels": mean(abs(error) for error in newest) if newest else None,
        "speed_calibrated": _calibrated(rows),
        "speed_incomplete": _errors([row for row in speed if not row["complete"]]),
        "tau_median": median(all_taus) if all_taus else None,
        "tau_groups": len(all_taus),
        "memory": memory_summary(rows),
        "oom_confusion": confusion,
        "abstained": abstained,
        "by_source": by_source,
        "rows": rows,
    }


def show(figures: dict[str, Any]) -> None:
    print(
        f"{'source':48} {'rows':>5} {'abst.':>5} | complete: n, MAPE, bias, in band | newest  | calibrated | incomplete: n, MAPE, median, bias"
    )
    for source, entry in figures["by_source"].items():
        one, own, other = (entry[part] for part in ("complete", "newest", "incomplete"))
        after = entry["calibrated"]["all"]
        if one["n"] == other["n"] == 0:
            continue
        cells = [
            f"{one['n']:4} {one['mape']:6.1%} {one['bias']:+7.1%} {one['in_band']:5.0%}" if one["n"] else " " * 25,
            f"{own['mape']:6.1%}" if own["n"] else " " * 6,
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
            f"newest kernels {figures['speed_mape_newest_kernels']:.1%}; "
            f"tau median {figures['tau_median']} over {figures['tau_groups']} groups"
        )
    for name, after in figures["speed_calibrated"].items():
        if after["n"]:
            print(
                f"calibrated on one run ({name} models): n {after['n']}, MAPE {after['before']:.1%} -> {after['mape']:.1%}, "
                f"in band {after['before_in_band']:.0%} -> {after['in_band']:.0%}"
            )
    show_memory(figures["memory"])
    print(f"verdicts {figures['oom_confusion']}")
    for one in figures["assumed"]:
        print(
            f"assumed {one['id']} {one['model']} {one['precision']} {one['gpus']} GPUs: measured {one['measured']:,.0f}, "
            f"projected {one['projected']:,.0f} ({one['error']:+.1%}), interval {one['interval'][0]:,.0f} to {one['interval'][1]:,.0f}"
        )
    for one in figures["lora"]:
        print(
            f"LoRA, {one['gpus']} {one['gpu']}, TP {one['tp']}, CP {one['cp']}: {one['runs']} runs, measured {one['measured']:,.0f}, "
            f"{one['error']:+.1%} (with overlapped tensor parallelism {one['error_overlapped']:+.1%})"
        )
    for reason, count in sorted(figures["abstained"].items(), key=lambda item: -item[1]):
        print(f"  abstained {count:5}: {reason}")
