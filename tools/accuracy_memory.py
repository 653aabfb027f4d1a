"""The section of docs/accuracy.md on memory, from the figures of `goldens`, `oracle` and `ground-truth`."""

from __future__ import annotations

from statistics import median
from typing import Any

Figures = dict[str, Any]


def memory_section(goldens: Figures, oracle: Figures | None, published: Figures | None) -> str:
    """Oracle totals, the goldens by platform and software, their outliers by cause, published memory by source."""
    lines: list[str] = []
    if oracle is not None:
        lines += [oracle_line(oracle), ""]
    lines += [headline(goldens), "", *ceilings(goldens), "", *environments(goldens), "", *outliers(goldens)]
    if published is not None:
        lines += ["", *sources(published)]
    return "\n".join(lines)


def oracle_line(figures: Figures) -> str:
    kept = figures["activations"]
    return (
        f"**Against the real Megatron-Core objects** (`python -m tests.validation oracle`): {figures['pairs']} (recipe, rank) "
        f"pairs, {figures['bytes_compared']:,} bytes of parameter, gradient and optimizer buffers, "
        f"{figures['bytes_different']:,} different; kept activations of {kept['cases']} cases, {kept['bytes_compared']:,} bytes, "
        f"{kept['bytes_different']:,} different."
    )


def headline(figures: Figures) -> str:
    part, bands = figures["without_skipped"], figures["band"]
    return (
        f"**{figures['accounted']} of {figures['runs']} runs of Megatron-LM's functional tests** "
        f"(`python -m tests.validation goldens`; last rank, {len(figures['skipped'])} runs without an account): allocated "
        f"after a step within 0.1 % for {part['steady_within_0.1pct']:.0%}, within 1 % for {part['steady_within_1pct']:.0%}; "
        f"peak off by {part['peak_median_error']:.2%} in the middle, {part['peak_p90_error']:.1%} at the 90th percentile, "
        f"{part['peak_max_error']:.0%} at most. Two measured runs of one recipe on one accelerator agree within 0.1 % in "
        f"{figures['repeated']['within_0.1pct']:.0%} of {figures['repeated']['pairs']} pairs. The band holds {bands['steady']['inside']:.1%} of the values after a step and "
        f"{bands['peak']['inside']:.1%} of the peaks; it is {bands['steady']['median_width']:.1%} and "
        f"{bands['peak']['median_width']:.1%} of the value wide in the middle ({bands['steady']['mean_width']:.1%} and "
        f"{bands['peak']['mean_width']:.1%} on average)."
    )


def ceilings(figures: Figures) -> list[str]:
    """What the scatter between measured runs leaves to any projection."""
    lines = [
        "Runs of one recipe on one accelerator scatter: the share that the best number for each group of runs which a projection",
        "cannot tell apart has within 0.1 % after a step. A run alone in its group counts as reached, which nothing shows; the last",
        "columns are of the others: the best number, another measured run of the group, and this account.",
        "",
        "| told beside recipe and accelerator | groups | best, all runs | runs with others | best | another run | this account |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in figures["ceilings"]:
        lines.append(
            f"| {one['told']} | {one['groups']} | {one['reachable']:.0%} | {one['runs_with_others']} "
            f"| {one['reachable_with_others']:.0%} | {one['another_run']:.0%} | {one['ours']:.0%} |"
        )
    return lines


def software(run: str) -> str:
    """The environment of a run's name: software and cluster; `2nd`: resumed from a checkpoint."""
    name = "oldest lts" if run.startswith("lts_dgxa100_dracooci") else run.split("_")[0]
    return f"{name}, resumed" if run.endswith("_2nd") else name


def environments(figures: Figures) -> list[str]:
    groups: dict[tuple[str, str], list[Figures]] = {}
    for row in figures["rows"]:
        groups.setdefault((row["platform"], software(row["run"])), []).append(row)
    lines = [
        "| platform | software | runs | after a step: within 0.1 % | within 1 % | in band | peak: median | p90 | in band |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (platform, name), rows in sorted(groups.items()):
        steady = [abs(row["steady_error"]) for row in rows]
        peaks = sorted(abs(row["peak_error"]) for row in rows)
        lines.append(
            f"| {platform} | {name} | {len(rows)} | {share(error <= 0.001 for error in steady)} "
            f"| {share(error <= 0.01 for error in steady)} | {share(row['steady_in_band'] for row in rows)} "
            f"| {median(peaks):.2%} | {peaks[int(0.9 * (len(peaks) - 1))]:.1%} "
            f"| {share(row['peak_in_band'] for row in rows)} |"
        )
    return lines


def share(values: Any) -> str:
    found = list(values)
    return f"{sum(found) / len(found):.0%}"


def outliers(figures: Figures) -> list[str]:
    causes: dict[str, list[Figures]] = {}
    for row in figures["rows"]:
        if row["cause"]:
            causes.setdefault(row["cause"], []).append(row)
    lines = [
        "Runs off by more than 1 % after a step or 3 % at the peak, by cause (negative: measured more than projected):",
        "",
        "| cause | runs | after a step | peak |",
        "| --- | --- | --- | --- |",
    ]
    for cause, rows in sorted(causes.items(), key=lambda item: -max(abs(row["peak_error"]) for row in item[1])):
        cells = [extent([row[f"{name}_error"] for row in rows]) for name in ("steady", "peak")]
        lines.append(f"| {cause} | {len(rows)} | {cells[0]} | {cells[1]} |")
    return lines


def extent(errors: list[float]) -> str:
    low, high = min(errors), max(errors)
    return f"{low:+.1%}" if f"{low:+.1%}" == f"{high:+.1%}" else f"{low:+.1%} to {high:+.1%}"


def sources(figures: Figures) -> list[str]:
    lines = [
        "Published runs that state memory, each in the kind that was measured: allocated or reserved by PyTorch, what a tool shows of",
        "the device (against the middle of the verdict's band; in band: up to a fragmented allocator), unknown (against what is",
        "allocated; in band: up to the device). DeepSpeed and nanotron keep other states and run other kernels than Megatron: there",
        f"the account shows no more than the order of size. The states alone exceed the measured value in {figures['memory']['floor_above']} runs.",
        "",
        "| source | kind | values | mean error | median | bias | largest | in band | the source's own projection |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in sorted(figures["memory"]["groups"], key=lambda one: one["other_engine"]):
        engine = ", another engine" if one["other_engine"] else ""
        theirs = "" if one["published_mape"] is None else f"{one['published_mape']:.1%}"
        lines.append(
            f"| {one['source']}{engine} | {one['kind']} | {one['n']} | {one['mape']:.1%} | {one['median']:.1%} | {one['bias']:+.1%} "
            f"| {one['largest']:+.1%} | {one['in_band']:.0%} | {theirs} |"
        )
    verdicts = ", ".join(f"{name}: {count}" for name, count in sorted(figures["oom_confusion"].items()))
    return [*lines, "", f"Runs labelled as run or out of memory, against the verdict: {verdicts}."]
