"""Device memory outside PyTorch's allocator: context of the runtime, buffers of the communicators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator


def runtime_bytes(acc: Accelerator, communicators: Any) -> tuple[Any, Any]:
    """(low, high) bytes of a process with that many communicators (groups of more than one rank).

    Low: idle context and two channels of one connection each. High: context with all kernels loaded, and every channel
    that the library allows with all its connections. Sources in hardware_db/runtime.yaml.
    """
    low, high = acc.context_band_bytes
    each_low, each_high = acc.communicator_band_bytes
    return low + communicators * each_low, high + communicators * each_high
