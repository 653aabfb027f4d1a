"""Write the tables of docs/accuracy.md from the figures of the validation command.

    python -m tests.validation ground-truth --json TIME.json
    python -m tests.validation goldens --json GOLDENS.json
    python -m tests.validation oracle --json ORACLE.json
    python -m tools.accuracy TIME.json GOLDENS.json ORACLE.json

What the figures are of is seen in them. Replaces what stands between `<!-- time -->` and `<!-- /time -->` when those of
`ground-truth` are given, and `<!-- memory -->` when all three are.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

from tools.accuracy_memory import memory_section

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
WITHIN = (0.05, 0.10, 0.20, 0.50)
KINDS = {"time": "speed_bias", "goldens": "accounted", "oracle": "bytes_compared"}  # command -> a field of its own


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        given = {kind(figures): figures for figures in map(read, arguments)}
    except (OSError, ValueError) as error:
        given = {}
        print(f"tools.accuracy: {error}", file=sys.stderr)
    if not given or None in given:
        print(__doc__, file=sys.stderr)
        return 2
    text = PAGE.read_text(encoding="utf-8")
    if "time" in given:
        text = put(text, "time", time_section(given["time"]))
    if len(given) == len(KINDS):
        text = put(text, "memory", memory_section(given["goldens"], given["oracle"], given["time"]))
    PAGE.write_text(text, encoding="utf-8")
    return 0


def read(path: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return figures


def kind(figures: dict[str, Any]) -> str | None:
    """Which command made the figures."""
    return next((name for name, field in KINDS.items() if field in figures), None)


def put(page: str, name: str, block: str) -> str:
    """The page with a new block between the marks of `name`. Raises ValueError when it has none."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if start not in page or end not in page:
        raise ValueError(f"the page has no {start} ... {end}")
    return page[: page.index(start) + len(start)] + "\n\n" + block.strip() + "\n\n" + page[page.index(end) :]


def time_section(figures: dict[str, Any]) -> str:
    """Headline, sources with everything stated, sources with something unstated, abstentions, the blog's rows."""
    rows = [row for row in figures["rows"] if "error" in row]
    complete = [abs(row["error"]) for row in rows if row["complete"]]
    lines = [headline(figures, complete), "", *complete_table(figures), "", *incomplete_table(figures), ""]
    lines += abstentions(figures["abstained"])
    lines += ["", *blog(figures["assumed"]), "", *adapters(figures["lora"])]
    return "\n".join(lines)


def headline(figures: dict[str, Any], errors: list[float]) -> str:
    within = ", ".join(
        f"{sum(error <= limit for error in errors) / len(errors):.0%} within {limit:.0%}" for limit in WITHIN
    )
    band = sum(row["band_holds"] for row in figures["rows"] if row.get("complete") and "error" in row) / len(errors)
    return (
        f"**{len(errors)} published runs state everything: mean error {figures['speed_mape_complete']:.1%}, median "
        f"{figures['speed_median_complete']:.1%}, bias {figures['speed_bias']:+.1%}** (positive: projected too fast); {within}. "
        f"The band holds {band:.0%} of them. {calibration(figures['speed_calibrated'])}"
        f"Recipes of one model on the same devices are ranked with a median Kendall tau of {figures['tau_median']:.2f} over "
        f"{figures['tau_groups']} groups."
    )


def calibration(figures: dict[str, dict[str, Any]]) -> str:
    """What one log changes, for recipes of its model and for others."""
    words = {"same": "recipes of its model", "other": "recipes of other models"}
    parts = [
        f"{text} ({after['n']}) are off by {after['mape']:.1%} instead of {after['before']:.1%}, with {after['in_band']:.0%} "
        f"instead of {after['before_in_band']:.0%} of them in the band"
        for name, text in words.items()
        if (after := figures[name])["n"]
    ]
    if not parts:
        return ""
    return f"After one run of a framework and device was learned from, averaged over every choice of it, {'; '.join(parts)}. "


def complete_table(figures: dict[str, Any]) -> list[str]:
    lines = [
        "| source | runs | blind: mean error | median | bias | in band | today's kernels | after one run of the same model (before) "
        "| of another (before) | tau (groups) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for source, entry in figures["by_source"].items():
        one = entry["complete"]
        if not one["n"]:
            continue
        found = [tau for _, tau in entry["tau"].values()]
        tau = f"{median(found):.2f} ({len(found)})" if found else ""
        after = [
            f"{each['mape']:.1%} ({each['before']:.1%})" if each["n"] else ""
            for each in (entry["calibrated"]["same"], entry["calibrated"]["other"])
        ]
        lines.append(
            f"| {source} | {one['n']} | {one['mape']:.1%} | {one['median']:.1%} | {one['bias']:+.1%} | {one['in_band']:.0%} "
            f"| {entry['newest']['mape']:.1%} | {after[0]} | {after[1]} | {tau} |"
        )
    return lines


def incomplete_table(figures: dict[str, Any]) -> list[str]:
    lines = [
        "Runs that leave something unstated which matters, recomputation in most cases (taken as none here):",
        "",
        "| source | runs | mean error | median | bias | tau (groups) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for source, entry in figures["by_source"].items():
        other = entry["incomplete"]
        if not other["n"]:
            continue
        found = [tau for _, tau in entry["tau"].values()]
        tau = f"{median(found):.2f} ({len(found)})" if found and not entry["complete"]["n"] else ""
        lines.append(
            f"| {source} | {other['n']} | {other['mape']:.1%} | {other['median']:.1%} | {other['bias']:+.1%} | {tau} |"
        )
    return lines


def abstentions(abstained: dict[str, int]) -> list[str]:
    """Reasons with their counts; the unknown shapes of single models in one line."""
    merged: dict[str, int] = {}
    for reason, count in abstained.items():
        name = "model without a known shape" if re.match("model .* has no known shape", reason) else reason
        name = "degrees, batch or sequence not stated" if name.startswith("not stated") else name
        merged[name] = merged.get(name, 0) + count
    listed = ", ".join(f"{reason} ({count})" for reason, count in sorted(merged.items(), key=lambda item: -item[1]))
    return [f"Abstained: {listed}."]


def blog(assumed: list[dict[str, Any]]) -> list[str]:
    lines = [
        "The Llama runs of the Primus projection blog state neither global batch nor recomputation; taken as in the shipped",
        "recipes of the same models (interval: 1 to 16 micro-batches, none to full recomputation):",
        "",
        "| run | measured tokens/s/GPU | projected | error | interval |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in assumed:
        low, high = one["interval"]
        lines.append(
            f"| {one['model']} {one['precision']}, {one['gpus']} GPUs | {one['measured']:,.0f} | {one['projected']:,.0f} | "
            f"{one['error']:+.1%} | {low:,.0f} to {high:,.0f} |"
        )
    return lines


def adapters(groups: list[dict[str, Any]]) -> list[str]:
    lines = [
        "LoRA runs of Llama-2 70B in MLPerf Training that state their degrees, taken as FP8 without recomputation (their rows say",
        "neither); overlapped: with `tp_comm_overlap`:",
        "",
        "| GPUs | TP | CP | runs | measured tokens/s/GPU | error | overlapped |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in groups:
        overlapped = f"{one['error_overlapped']:+.1%}" if one["tp"] != "1" else ""
        lines.append(
            f"| {one['gpus']} {one['gpu']} | {one['tp']} | {one['cp']} | {one['runs']} | {one['measured']:,.0f} | {one['error']:+.1%} "
            f"| {overlapped} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
