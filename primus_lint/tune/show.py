"""The outcome of `primus-lint tune` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 26
ALTERNATIVES = 5
SINGLES = 8


def lines(data: dict[str, Any]) -> Iterator[str]:
    """Lines about one file (of `job.tune_file`)."""
    path = data["path"]
    if data.get("error"):
        yield f"{path}: {data['error']}"
        return
    for text in data.get("agent") or ():
        yield f"{path}: {text}"
    for error in data["remaining_errors"]:
        yield f"{path}: remains: error[{error['name']}] {error['message']}"
    reasons = {section["reason"] for section in data["sections"]}  # said with the sections
    for text in data["messages"]:
        if text not in reasons:
            yield f"{path}: {text}"
    for title in data["applied"]:
        if title not in reasons:
            yield f"{path}: {title}"
    for section in data["sections"]:
        yield from section_lines(path, section)
    if data.get("world_sizes"):
        yield from size_lines(data["world_sizes"])


def section_lines(path: str, section: dict[str, Any]) -> Iterator[str]:
    target = section["target"]
    known = target["world_size"] is not None and target["gpu"] is not None
    where = f" on {target['world_size']} x {target['gpu']}" if known else ""
    yield f"{path}: {section['section']}{where}: {section['reason'] or 'searched'}"
    before, after = section["before"], section["after"]
    if after is None:
        if section["certificate"] is not None:
            yield from certificate_lines(section["certificate"])
        return
    yield from comparison(before, after, section)
    yield from memory_lines(before, after)
    if section["changes"]:
        yield f"  changes ({section['safety']}): {changes_text(section['changes'])}"
    best = section["best"]
    if best["changes"] != section["changes"]:
        slower = after["iteration_s"] / best["iteration_s"] - 1
        apart = f"{slower:.2%} slower" if slower >= 0 else f"{-slower:.2%} faster"
        yield f"  fewer changes than the best of the search, {apart}; that one: {changes_text(best['changes'])}"
    yield from certificate_lines(section["certificate"])
    yield from single_lines(section["one_change"])
    yield from neighbour_lines(section)
    yield from front_lines(section)
    if section["alternatives"]:
        near = sum(not each["told_apart"] for each in section["alternatives"])
        yield f"  alternatives within 2 %, against the winner; {near} too near for the projection to tell which is faster (~)"
        yield from point_lines(section["alternatives"][:ALTERNATIVES])
    if section["unsafe"] is not None:
        yield from unsafe_lines(section["unsafe"])


def comparison(before: dict[str, Any] | None, after: dict[str, Any], section: dict[str, Any]) -> Iterator[str]:
    """Before and after by bottleneck."""
    runs = before is not None and before["fits"] is not False and not (section["broken"] and section["gain"] is None)
    if before is None or before["iteration_s"] is None:
        yield "  before: does not start, so it has no speed"
    elif not runs:
        yield "  before: does not fit, so there is no gain to speak of; its times are what it would take if it did"
    yield f"  {'':{WIDTH}}{'before':>12}{'after':>12}"
    names = [name for name in after["bottlenecks_s"] if _value(before, name) or after["bottlenecks_s"][name]]
    for name in names:
        yield f"  {name:{WIDTH}}{_ms(_value(before, name)):>12}{_ms(after['bottlenecks_s'][name]):>12}"
    old = None if before is None else before["iteration_s"]
    yield f"  {'step':{WIDTH}}{_ms(old):>12}{_ms(after['iteration_s']):>12}"
    rate = None if before is None else before["tokens_per_s_per_gpu"]
    gain = section["gain"]
    shown = f"  ({gain:+.1%})" if gain is not None else ""
    yield f"  {'tokens/s/GPU':{WIDTH}}{_number(rate):>12}{_number(after['tokens_per_s_per_gpu']):>12}{shown}"
    if after["cost_per_million_tokens"] is not None:
        cost = None if before is None else before["cost_per_million_tokens"]
        yield (
            f"  {'cost per million tokens':{WIDTH}}{_number(cost, 4):>12}{_number(after['cost_per_million_tokens'], 4):>12}"
        )


def _value(before: dict[str, Any] | None, name: str) -> float | None:
    return None if before is None else before["bottlenecks_s"].get(name)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.1f} ms"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def memory_lines(before: dict[str, Any] | None, after: dict[str, Any]) -> Iterator[str]:
    """Memory by pipeline rank against what the device shows."""
    yield f"  memory by pipeline rank, of {gib(after['capacity_bytes'])}"
    for name, data in (("before", before), ("after", after)):
        if data is None:
            continue
        peaks: dict[int, int] = {}
        for rank in data["ranks"]:
            peaks[rank["pp_rank"]] = max(peaks.get(rank["pp_rank"], 0), rank["device_high_bytes"])
        ranks = ", ".join(f"{rank}: {gib(peak)}" for rank, peak in peaks.items())
        over = " OVER" if data["fits"] is False else " (the band crosses the limit)" if data["fits"] is None else ""
        yield f"    {name:7}{ranks}{over}"


def certificate_lines(certificate: dict[str, Any]) -> Iterator[str]:
    removed = ", ".join(f"{name} {number:,}" for name, number in list(certificate["removed"].items())[:6])
    yield (
        f"  space: {certificate['space']:,} recipes in {certificate['bases']:,} splits and switches, "
        f"{certificate['seconds']:.1f} s; {certificate['statement']}"
    )
    yield (
        f"    {certificate['legal']:,} scored, {certificate['bounded']:,} out by their bound, {certificate['slower']:,} too "
        f"slow, {certificate['fitting']:,} fit, {certificate['rescored']} rescored exactly"
    )
    if certificate["not_looked_at"]:
        over = (
            ": the budget was over"
            if certificate["gap"] > 0
            else ", and none can be faster by its bound: the budget was over"
        )
        yield f"    {certificate['not_looked_at']:,} not looked at{over}"
    yield f"    removed by {removed or 'nothing'}"
    if certificate["always_on"]:
        yield f"    on in every candidate, as it never costs: {', '.join(certificate['always_on'])}"


def single_lines(singles: list[dict[str, Any]]) -> Iterator[str]:
    """What each change alone would do, the most useful ones."""
    runs = [each for each in singles if each["why"] == ""]
    if not singles:
        return
    yield f"  one change alone: {len(runs)} of {len(singles)} that were tried run; the fastest of them"
    for each in runs[:SINGLES]:
        gain = f"{each['gain']:+.1%}" if each["gain"] is not None else f"{each['iteration_s']:.2f} s a step"
        yield f"    {changes_text(each['changes'])}: {gain}, {gib(each['peak_bytes'])}"


def neighbour_lines(section: dict[str, Any]) -> Iterator[str]:
    if not section["neighbours"]:
        return
    yield f"  one step away: {section['basin']}"
    for each in section["neighbours"]:
        yield f"    {changes_text(each['changes'])}: {outcome(each)}"


def outcome(neighbour: dict[str, Any]) -> str:
    if neighbour["gain"] is None:
        return str(neighbour["why"])
    return f"{neighbour['gain']:+.1%}, {gib(neighbour['peak_bytes'])}"


def front_lines(section: dict[str, Any]) -> Iterator[str]:
    if not section["front"]:
        return
    yield "  front of speed against memory, against the winner"
    yield from point_lines(section["front"])


def point_lines(points: list[dict[str, Any]]) -> Iterator[str]:
    for each in points:
        other = changes_text(each["against_winner"]) if each["against_winner"] else "the winner"
        other = f"~ {other}" if each.get("told_apart") is False else other
        yield f"    {each['tokens_per_s_per_gpu']:>9,.0f} tokens/s/GPU {gib(each['peak_bytes']):>10}  {other}"


def unsafe_lines(unsafe: dict[str, Any]) -> Iterator[str]:
    yield "  unsafe (--unsafe-fixes), not written"
    for each in unsafe["alone"]:
        yield f"    {changes_text(each['changes'])}: {outcome(each)}"
    together = unsafe["together"]
    if together is not None:
        yield f"    all that is worth it together: {together['gain_over_safe']:+.1%} with {changes_text(together['changes'])}"


def size_lines(sizes: list[dict[str, Any]]) -> Iterator[str]:
    yield "  by world size"
    for row in sizes:
        if row.get("runs") is False:
            yield f"    {row['world_size']:>7,} GPUs: nothing fits"
            continue
        cost = row["cost_per_million_tokens"]
        paid = "" if cost is None else f", {cost:,.4f} per million tokens"
        yield (
            f"    {row['world_size']:>7,} GPUs: {row['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU, "
            f"{row['iteration_s']:.2f} s a step, {gib(row['peak_bytes'])}{paid}"
        )


def changes_text(changes: dict[str, Any]) -> str:
    """Changed keys in words; nulls of one group are not spelled out one by one."""
    if not changes:
        return "the recipe as it stands"
    said = [f"{key} {_word(value)}" for key, value in changes.items() if value is not None]
    nulls = [key for key, value in changes.items() if value is None]
    if nulls:
        said.append(f"without {', '.join(nulls)}")
    return ", ".join(said)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
