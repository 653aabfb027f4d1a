"""Helpers that let one formula serve Python numbers and broadcast NumPy arrays alike.

A formula of `ledger/`, `projection/` or the rule catalogue uses plain operators and these functions, and never
branches on a value. Linting evaluates it on one recipe with exact Python integers; tuning evaluates the same code on
a grid of recipes. NumPy is imported only when an argument already is an array.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBERS = (int, float)  # bool is an int


def is_scalar(*values: Any) -> bool:
    """True when every value is a plain Python number (or bool)."""
    for value in values:
        if not isinstance(value, _NUMBERS):
            return False
    return True


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`."""
    if isinstance(condition, _NUMBERS):
        return then if condition else otherwise
    import numpy as np

    return np.where(condition, then, otherwise)


def minimum(a: Any, b: Any) -> Any:
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return a if a <= b else b
    import numpy as np

    return np.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return a if a >= b else b
    import numpy as np

    return np.maximum(a, b)


def ceil_div(a: Any, b: Any) -> Any:
    """Integer division rounded up; `b` > 0."""
    return -(-a // b)


def round_up(a: Any, multiple: Any) -> Any:
    """Smallest multiple of `multiple` that is >= `a`."""
    return -(-a // multiple) * multiple


def gcd(a: Any, b: Any) -> Any:
    if is_scalar(a, b):
        return math.gcd(a, b)
    import numpy as np

    return np.gcd(a, b)


def lcm(a: Any, b: Any) -> Any:
    if is_scalar(a, b):
        return a // math.gcd(a, b) * b
    import numpy as np

    return np.lcm(a, b)


def as_int(value: Any) -> Any:
    """A condition (or a whole number held as float) as an integer of 0/1 (or that number)."""
    if is_scalar(value):
        return int(value)
    return value.astype("int64")


def sqrt(value: Any) -> Any:
    if is_scalar(value):
        return math.sqrt(value)
    import numpy as np

    return np.sqrt(value)


def log2(value: Any) -> Any:
    if is_scalar(value):
        return math.log2(value)
    import numpy as np

    return np.log2(value)


def exp2(value: Any) -> Any:
    if is_scalar(value):
        return 2.0**value
    import numpy as np

    return np.exp2(value)


def beside(values: list[Any]) -> Any:
    """Values of one shape [..., 1] (or numbers) side by side along the last axis; one value alone as it is."""
    if len(values) == 1:
        return values[0]
    import numpy as np

    arrays = np.broadcast_arrays(*values)
    return np.concatenate(arrays, axis=-1) if arrays[0].ndim else np.array(values)


def median(values: Iterable[float]) -> float:
    """The middle of some numbers, as `statistics.median` (whose import brings decimal, fractions and random to every cold
    start). Raises IndexError without any."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
