"""Bytes, seconds and rates as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def gpus(sizes: Sequence[int]) -> str:
    """Numbers of GPUs as text: "1 GPU", "1, 2 or 8 GPUs", the middle left out of many."""
    shown = [f"{size:,}" for size in sizes]
    if len(shown) > 12:
        shown = [*shown[:6], f"... {shown[-1]} ({len(sizes):,} sizes)"]
        return f"{', '.join(shown)} GPUs"
    text = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
    return f"{text} GPU{'' if list(sizes) == [1] else 's'}"


def gib(size_bytes: float) -> str:
    """Bytes in GiB with one decimal (MiB below 0.1 GiB, KiB below 0.1 MiB)."""
    if 0 < abs(size_bytes) < 0.1 * 2**20:
        return f"{size_bytes / 2**10:.1f} KiB"
    if abs(size_bytes) < 0.1 * 2**30:
        return f"{size_bytes / 2**20:.1f} MiB"
    return f"{size_bytes / 2**30:,.1f} GiB"


def seconds(time_s: float) -> str:
    if time_s < 1e-3:
        return f"{time_s * 1e6:.0f} µs"
    return f"{time_s * 1e3:.1f} ms" if time_s < 1 else f"{time_s:.2f} s"


def count(number: float) -> str:
    """A parameter count: 8.0B, 405.9B, 1.2T."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
