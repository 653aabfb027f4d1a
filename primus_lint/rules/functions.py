"""The functions that a rule expression may call, on Python values and (where it makes sense) on arrays."""

from __future__ import annotations

from typing import Any

from primus_lint import formula
from primus_lint.ir import layout as _layout


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending. Raises ValueError (undecided) beyond what anything here can be."""
    if not 0 < number < 1 << 36:
        raise ValueError(f"{number} is out of range")
    small, large = [], []
    candidate = 1
    while candidate * candidate <= number:
        if number % candidate == 0:
            small.append(candidate)
            if candidate * candidate != number:
                large.append(number // candidate)
        candidate += 1
    return small + large[::-1]


def largest_divisor(number: int, at_most: int) -> int:
    """The largest divisor of `number` that is not above `at_most` (at least 1)."""
    return max(d for d in divisors(number) if d <= max(at_most, 1))


def product(values: Any) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def as_list(value: Any) -> list[Any]:
    """A list as it is, None as an empty list, anything else as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_str(value: Any) -> bool:
    return isinstance(value, str)


def has_any(value: Any, wanted: Any) -> bool:
    """Whether a list (or one value) holds any of the wanted items."""
    return any(item in as_list(wanted) for item in as_list(value))


def outside(value: Any, allowed: Any) -> list[Any]:
    """The items of a list (or one value) that are not allowed."""
    return [item for item in as_list(value) if item not in as_list(allowed)]


def layout_stages(text: Any) -> list[str]:
    """The units of each virtual stage of a layout string; raises TypeError (undecided) when it does not parse."""
    try:
        return _layout.parse_layout(text)
    except (_layout.LayoutError, AttributeError) as error:
        raise TypeError(str(error)) from None


def layout_error(text: Any) -> str:
    """Why a layout string does not parse ("" when it does)."""
    try:
        _layout.parse_layout(text)
    except _layout.LayoutError as error:
        return str(error)
    return ""


def count(text: Any, unit: Any) -> int:
    """How often a unit occurs in a text or a list (of texts)."""
    if isinstance(text, str):
        return text.count(unit)
    return sum(item.count(unit) if isinstance(item, str) else item == unit for item in text)


def pieces(text: Any, separator: str) -> list[str]:
    """The parts of a text between separators; [] for None."""
    return [] if text is None else [part.strip() for part in text.split(separator)]


def matches(text: Any, pattern: str) -> bool:
    """Whether a regular expression matches the whole text."""
    import re

    return isinstance(text, str) and re.fullmatch(pattern, text) is not None


FUNCTIONS: dict[str, Any] = {
    "abs": abs,
    "all": all,
    "any": any,
    "as_list": as_list,
    "bool": bool,
    "ceil_div": formula.ceil_div,
    "count": count,
    "divisors": divisors,
    "float": float,
    "gcd": formula.gcd,
    "has_any": has_any,
    "int": int,
    "is_int": is_int,
    "is_list": is_list,
    "is_number": is_number,
    "is_str": is_str,
    "largest_divisor": largest_divisor,
    "layout_error": layout_error,
    "layout_stages": layout_stages,
    "lcm": formula.lcm,
    "len": len,
    "list": list,
    "matches": matches,
    "max": max,
    "min": min,
    "outside": outside,
    "pieces": pieces,
    "product": product,
    "round_up": formula.round_up,
    "set": set,
    "sorted": sorted,
    "str": str,
    "sum": sum,
}
