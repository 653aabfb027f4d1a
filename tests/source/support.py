"""Helpers of these tests."""

from __future__ import annotations

from typing import Any


def same(one: Any, two: Any) -> bool:
    """Equal with types: 1, 1.0 and True differ, nan equals nan."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(item, two[key]) for key, item in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two) or (one != one and two != two)
