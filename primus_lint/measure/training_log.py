"""Logs of training runs -> seconds of an iteration and memory, whatever else is in them.

    Megatron-LM  ... iteration 20/ 500 | ... | elapsed time per iteration (ms): 812.4 | ...
                 [Rank 0] (after 10 iterations) memory (MB) | allocated: .. | max allocated: .. | reserved: .. | max reserved: ..
    Primus       the same with "current/average" values, and "hip mem usage/free/total/usage_ratio: 150.23GB/..."
    TorchTitan   step: 10  loss: 7.1  memory: 40.14GiB(42.27%)  tps: 6,345  tflops: 367.4  mfu: 37.1%
    MaxText      completed step: 10, seconds: 5.123, TFLOP/s/device: 312.1, Tokens/s/device: 6394.1, ...

Colour codes are dropped. An iteration is the median of those that count: the first ones (a fifth, three at least where
there are more) load kernels, tune and allocate.
"""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.measure.errors import MeasureError

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = r"([0-9][0-9,]*\.?[0-9]*(?:[eE][-+]?\d+)?)"
_MEGATRON = re.compile(r"iteration\s+(\d+)\s*/.*?elapsed time per iteration \(ms\):\s*" + _NUMBER)
_TITAN = re.compile(r"\bstep:\s*(\d+)\b.*?\btps:\s*" + _NUMBER)
_MAXTEXT = re.compile(r"completed step:\s*(\d+),\s*seconds:\s*" + _NUMBER)
_MEGATRON_MEMORY = re.compile(r"memory \(MB\).*?max allocated:\s*" + _NUMBER + r".*?max reserved:\s*" + _NUMBER)
_PRIMUS_MEMORY = re.compile(r"(?:hip|rocm) mem usage/free/total/usage_ratio:\s*" + _NUMBER + r"\s*(GB|GiB)")
_TITAN_MEMORY = re.compile(r"\bmemory:\s*" + _NUMBER + r"\s*GiB")
LEAST_WARM_UP = 3


class TrainingLog(NamedTuple):
    """What a log says. `iteration_s` is None when it counts tokens/s and GPU only (`tokens_per_s_per_gpu`).

    Memory in bytes, each the largest that was logged: PyTorch's peaks, and what the driver saw.
    """

    framework: str  # "megatron", "torchtitan", "maxtext"
    iterations: int  # that count
    iteration_s: float | None
    spread: float  # half of the middle half, over the median
    tokens_per_s_per_gpu: float | None
    max_allocated_bytes: int | None
    max_reserved_bytes: int | None
    device_bytes: int | None

    def seconds(self, tokens: float, world_size: int) -> float:
        """Seconds of an iteration of that many tokens on all GPUs together."""
        if self.iteration_s is not None:
            return self.iteration_s
        assert self.tokens_per_s_per_gpu is not None
        return tokens / (self.tokens_per_s_per_gpu * world_size)


def read(lines: Iterable[str]) -> TrainingLog:
    """Read a log. Raises MeasureError when no line has the time of an iteration."""
    times: dict[str, dict[int, float]] = {"megatron": {}, "torchtitan": {}, "maxtext": {}}
    patterns = (("megatron", _MEGATRON, 1e-3), ("torchtitan", _TITAN, 1.0), ("maxtext", _MAXTEXT, 1.0))
    allocated: list[float] = []
    reserved: list[float] = []
    used: list[float] = []
    for line in lines:
        line = _COLOUR.sub("", line)
        for name, pattern, unit in patterns:
            found = pattern.search(line)
            if found:
                times[name].setdefault(int(found.group(1)), _value(found.group(2)) * unit)  # ranks repeat a step
                break
        for pattern, into, unit in ((_PRIMUS_MEMORY, used, 2.0**30), (_TITAN_MEMORY, reserved, 2.0**30)):
            found = pattern.search(line)
            if found:
                into.append(_value(found.group(1)) * unit)
        found = _MEGATRON_MEMORY.search(line)
        if found:
            allocated.append(_value(found.group(1)) * 2.0**20)
            reserved.append(_value(found.group(2)) * 2.0**20)
    framework = max(times, key=lambda name: len(times[name]))
    values = [value for _, value in sorted(times[framework].items()) if value > 0]
    if not values:
        raise MeasureError(
            "no line of the log has the time of an iteration: known are `elapsed time per iteration (ms)` (Megatron-LM, "
            "Primus), `tps:` (TorchTitan) and `completed step: ..., seconds:` (MaxText)"
        )
    counted = values[warm_up(len(values)) :]
    middle = median(counted)
    low, high = _quartiles(counted)
    is_rate = framework == "torchtitan"
    return TrainingLog(
        framework, len(counted), None if is_rate else middle, (high - low) / 2 / middle, middle if is_rate else None,
        _most(allocated), _most(reserved), _most(used),
    )  # fmt: skip


def warm_up(iterations: int) -> int:
    """How many of the first logged iterations do not count."""
    return 0 if iterations <= LEAST_WARM_UP else max(LEAST_WARM_UP, iterations // 5)


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _quartiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _most(values: list[float]) -> int | None:
    return round(max(values)) if values else None
