"""Memory of published runs against the account, each in the kind that its source measured.

Kinds: what PyTorch had "allocated" or "reserved" at most, what a tool of the "device" shows (nvidia-smi, rocm-smi, HIP), and
"unknown", which lies somewhere between the first and the last. Like with like: a device is compared with the middle of what
the verdict rests on, and its band reaches to what a fragmented allocator holds. Runs of other engines (their states and
kernels are not Megatron's) are scored apart. Weights, gradients and optimizer states are a floor that no run can be below; of
other engines without the gradients, which some keep in 16 bit.
"""

from __future__ import annotations

import re
from statistics import mean, median
from typing import Any

from primus_lint.ledger.result import STATIC

from .ground_truth_rows import Row, start

GIB = 1 << 30
KINDS = {"allocated": "allocated", "reserved": "reserved", "nvidia-smi": "device", "rocm-smi": "device",
         "hip": "device", "unknown": "unknown"}  # start of mem_kind -> what is compared  # fmt: skip
OTHER_ENGINES = ("DeepSpeed", "nanotron")  # Megatron's account is near, not theirs
NO_ACCOUNT = ("MaxText", "FSDP", "InternEvo", "torchtune", "torchtitan", "XTuner")  # XLA, flat parameters, own states
OTHER_PLACEMENT = {
    "VocabularyParallelism artifact": "method=baseline"
}  # source -> what a row with Megatron's stages says


def figures(rank: Any, kind: str) -> tuple[float, float, float]:
    """(low, projected, high) GiB of a class of ranks."""
    allocated_low, allocated_high = rank.peak_band_bytes
    device_high = max(rank.device_high_bytes, rank.reserved_band_bytes[1] + rank.total("device"))
    low, value, high = {
        "allocated": (allocated_low, rank.peak_allocated_bytes, allocated_high),
        "reserved": (rank.reserved_band_bytes[0], rank.peak_reserved_bytes, rank.reserved_band_bytes[1]),
        "device": (rank.device_low_bytes, (rank.device_low_bytes + rank.device_high_bytes) / 2, device_high),
        "unknown": (allocated_low, rank.peak_allocated_bytes, device_high),
    }[kind]
    return low / GIB, value / GIB, high / GIB


def states(rank: Any, gradients: bool) -> int:
    """Bytes of weights and optimizer states, and of gradients."""
    items = rank.items.items()
    return sum(one.bytes for name, one in items if one.group == STATIC and (gradients or "gradient" not in name))


def memory(row: Row, account: Any) -> list[dict[str, Any]]:
    """The figures of a row against its account: of the fullest rank, and of every rank where the source lists them."""
    raw = row.raw
    kind = start(raw["mem_kind"], KINDS)
    wanted = start(row.source, OTHER_PLACEMENT)
    if (
        kind is None
        or not raw["measured_mem_gib"]
        or not account
        or any(name in raw["framework"] for name in NO_ACCOUNT)
    ):
        return []
    if wanted is not None and wanted not in raw["other"]:
        return []
    other = any(name in raw["framework"] for name in OTHER_ENGINES)
    floor = max(states(rank, gradients=not other) for rank in account.ranks) / GIB
    fullest = [max(values) for values in zip(*(figures(rank, kind) for rank in account.ranks), strict=True)]
    theirs = re.search(r"memory ([+-][\d.]+)%", raw["published_projection_error"])
    found = [{**entry(kind, float(raw["measured_mem_gib"]), fullest, floor), "other_engine": other}]
    if theirs:
        found[0]["published_error"] = float(theirs[1]) / 100
    for name, of_ranks in (("allocated", "alloc"), ("reserved", "reserved")):
        listed = re.search(rf"per-rank {of_ranks} GiB \[([\d., ]+)\]", raw["notes"])
        if listed:
            values = [float(text) for text in listed[1].split(",")]
            stages = len({rank.pp_rank for rank in account.ranks})
            for index, measured in enumerate(values):
                mine = [rank for rank in account.ranks if rank.pp_rank == index * stages // len(values)]
                own = [max(each) for each in zip(*(figures(rank, name) for rank in mine), strict=True)]
                found.append({**entry(f"{name}, every rank", measured, own, 0.0), "other_engine": other})
    return found


def entry(kind: str, measured: float, projected: list[float], floor: float) -> dict[str, Any]:
    low, value, high = projected
    return {
        "kind": kind, "measured": measured, "projected": value, "low": low, "high": high, "floor": floor,
        "error": value / measured - 1, "in_band": low <= measured <= high,
    }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Statistics by (engine, source, kind); `floor_above`: runs that measured less than the states alone should take."""
    groups: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        for one in row.get("memory", ()):
            groups.setdefault((row["source"], one["kind"], one["other_engine"]), []).append(one)
    found = []
    for (source, kind, other), entries in groups.items():
        errors = [one["error"] for one in entries]
        published = [abs(one["published_error"]) for one in entries if "published_error" in one]
        found.append({
            "source": source, "kind": kind, "other_engine": other, "n": len(entries),
            "mape": mean(map(abs, errors)), "median": median(map(abs, errors)), "bias": mean(errors),
            "largest": max(errors, key=abs), "in_band": mean(one["in_band"] for one in entries),
            "published_mape": mean(published) if published else None,
            "floor_above": sum(one["floor"] > one["measured"] for one in entries),
        })  # fmt: skip
    return {"groups": found, "floor_above": sum(group["floor_above"] for group in found)}


def show(figures: dict[str, Any]) -> None:
    for one in figures["groups"]:
        engine = " (another engine)" if one["other_engine"] else ""
        theirs = f", their own projection {one['published_mape']:.1%}" if one["published_mape"] is not None else ""
        print(
            f"memory, {one['kind']:22} n {one['n']:4} MAPE {one['mape']:5.1%} bias {one['bias']:+6.1%} largest "
            f"{one['largest']:+6.1%} in band {one['in_band']:4.0%} states above it {one['floor_above']}  "
            f"{one['source'][:50]}{engine}{theirs}"
        )
