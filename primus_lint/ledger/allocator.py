"""The caching allocator: rounding of single tensors, and what is reserved beyond what is allocated.

PyTorch's CUDACachingAllocator rounds each request up to 512 bytes; blocks up to 1 MiB come from 2 MiB segments, larger
ones from 20 MiB segments, and those above 10 MiB from segments rounded to 2 MiB.
"""

from __future__ import annotations

from typing import Any

from primus_lint.formula import minimum, round_up

ROUNDING_BYTES = 512
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_SEGMENT_BYTES = 20 << 20


def rounded(size_bytes: Any) -> Any:
    """Bytes that `memory_allocated` counts for one tensor."""
    return round_up(size_bytes, ROUNDING_BYTES)


def reserved(steady_bytes: Any, peak_bytes: Any) -> Any:
    """Reserved bytes at the peak.

    Long-lived tensors fill their segments; the changing part (activations and transients) leaves free blocks of which
    some cannot be reused. Rounded to segments of 2 MiB.
    """
    changing = peak_bytes - steady_bytes
    waste = minimum(changing // 32 + LARGE_SEGMENT_BYTES, peak_bytes)
    return round_up(peak_bytes + waste, SMALL_SEGMENT_BYTES)
