"""The device at hand: its name, the software on it, and how to wait for it. Imports torch."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.measure.errors import MeasureError

if TYPE_CHECKING:
    import torch


class Here(NamedTuple):
    """The device that this process measures on.

    `name` is hardware_db's where it knows the device, else made from the device's own name (`known` is False).
    `cache_bytes` is the last cache before memory, `units` its compute units (of a CPU: threads of this process).
    """

    name: str
    label: str
    kind: str  # "cuda" (also ROCm) or "cpu"
    stack: str
    known: bool
    memory_bytes: int
    cache_bytes: int
    units: int
    device: torch.device

    def synchronize(self) -> None:
        if self.kind == "cuda":
            import torch

            torch.cuda.synchronize()


def import_torch() -> Any:
    """The torch module. Raises MeasureError with what to install."""
    try:
        import torch
    except ImportError as error:
        raise MeasureError(
            f"measuring needs PyTorch ({error}): install the extra, `pip install 'primus-lint[measure]'`, or PyTorch's own "
            "build for your device (ROCm, CUDA or CPU)"
        ) from None
    return torch


def find(kind: str | None = None) -> Here:
    """The device of this process: the local rank's GPU, else the CPU. `kind` "cpu" or "cuda" asks for one of them."""
    torch = import_torch()
    if kind is None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return _cpu(torch)
    if not torch.cuda.is_available():
        raise MeasureError("this PyTorch sees no GPU (torch.cuda.is_available() is False)")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    name, known = canonical(properties.name)
    library = f"rocm {torch.version.hip}" if torch.version.hip else f"cuda {torch.version.cuda}"
    return Here(
        name, properties.name, "cuda", f"torch {torch.__version__}, {library}", known, properties.total_memory,
        getattr(properties, "L2_cache_size", 0), properties.multi_processor_count, torch.device("cuda", index),
    )  # fmt: skip


def canonical(label: str) -> tuple[str, bool]:
    """hardware_db's name of a device that calls itself `label`, and whether it knows it."""
    from primus_lint.hardware import accelerator

    words = label.split()
    for start in range(len(words)):  # "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X OAM"
        for stop in range(len(words), start, -1):
            found = accelerator(" ".join(words[start:stop]))
            if found is not None:
                return found.name, True
    return "-".join(label.lower().replace("(r)", "").replace("(tm)", "").replace("@", " ").split()), False


def _cpu(torch: Any) -> Here:
    threads = torch.get_num_threads()
    label = _cpu_label()
    name, _ = canonical(label)
    return Here(
        f"cpu-{name}-{threads}t", f"{label}, {threads} threads", "cpu", f"torch {torch.__version__}, cpu", False,
        _memory_bytes(), _cache_bytes(), threads, torch.device("cpu"),
    )  # fmt: skip


def _cpu_label() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30  # Windows: only the check that a layer fits asks for it


def _cache_bytes() -> int:
    """The largest cache of the first core; 32 MiB where the system does not say."""
    folder, sizes = "/sys/devices/system/cpu/cpu0/cache", []
    try:
        for entry in os.scandir(folder):
            if entry.name.startswith("index"):
                with open(os.path.join(entry.path, "size"), encoding="utf-8") as file:
                    text = file.read().strip()
                sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]])
    except (OSError, ValueError, KeyError):
        pass
    return max(sizes, default=32 * 2**20)
