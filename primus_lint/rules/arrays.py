"""Helpers of the array form of rule conditions: each takes Python values and broadcast NumPy arrays alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def all_of(*terms: Callable[[], Any]) -> Any:
    """`and`: stops at the first plain falsy value; arrays are combined element by element.

    Without arrays the value is that of Python's `and`: the first falsy term, or else the last.
    """
    result: Any = True
    combined = False
    for term in terms:
        value = term()
        if _is_array(value):
            value = value.astype(bool)
            result = result & value if combined else value
            combined = True
        elif not value:
            return False if combined else value
        elif not combined:
            result = value
    return result


def any_of(*terms: Callable[[], Any]) -> Any:
    """`or`: stops at the first plain truthy value; arrays are combined element by element.

    Without arrays the value is that of Python's `or`: the first truthy term, or else the last.
    """
    result: Any = False
    combined = False
    for term in terms:
        value = term()
        if _is_array(value):
            value = value.astype(bool)
            result = result | value if combined else value
            combined = True
        elif value:
            return True if combined else value
        elif not combined:
            result = value
    return result


def not_(value: Any) -> Any:
    return ~value.astype(bool) if _is_array(value) else not value


def if_(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    if _is_array(condition):
        return np.where(condition, then(), otherwise())
    return then() if condition else otherwise()


def mod(a: Any, b: Any) -> Any:
    """Remainder; an element with divisor 0 counts as a non-zero remainder."""
    if _is_array(a) or _is_array(b):
        safe = np.where(np.equal(b, 0), 1, b)
        return np.where(np.equal(b, 0), 1, np.mod(a, safe))
    return a % b


def floor_div(a: Any, b: Any) -> Any:
    if _is_array(a) or _is_array(b):
        return np.floor_divide(a, np.where(np.equal(b, 0), 1, b))
    return a // b


def div(a: Any, b: Any) -> Any:
    if _is_array(a) or _is_array(b):
        return np.divide(a, np.where(np.equal(b, 0), 1, b))
    return a / b


def in_(value: Any, choices: Any) -> Any:
    return np.isin(value, choices) if _is_array(value) else value in choices


def min_(*values: Any) -> Any:
    if any(_is_array(value) for value in values):
        return np.minimum.reduce(np.broadcast_arrays(*values))
    return min(*values)


def max_(*values: Any) -> Any:
    if any(_is_array(value) for value in values):
        return np.maximum.reduce(np.broadcast_arrays(*values))
    return max(*values)


def bool_(value: Any) -> Any:
    return value.astype(bool) if _is_array(value) else bool(value)
