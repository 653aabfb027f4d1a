"""Record: a frozen, slotted class made from its annotations, without the start-up cost of `dataclasses`.

A cold `check` pays for every class that it creates; `dataclasses` compiles several methods for each (about 1 ms for
twenty fields). A Record shares them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import dataclass_transform
    else:
        from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


class RecordType(type):
    """Turns the annotations of a class body into slots; a value in the body is the field's default."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
        fields = tuple(space.get("__annotations__", ()))
        space["_defaults"] = {field: space.pop(field) for field in fields if field in space}
        space["__slots__"] = fields
        space["_fields"] = fields
        space["_names"] = frozenset(fields)
        return super().__new__(mcs, name, bases, space)


@dataclass_transform(frozen_default=True)
class Record(metaclass=RecordType):
    """Base of the records. Raises TypeError for a missing or unknown field, AttributeError when one is assigned."""

    if TYPE_CHECKING:
        _defaults: ClassVar[dict[str, Any]]
        _fields: ClassVar[tuple[str, ...]]
        _names: ClassVar[frozenset[str]]

    def __init__(self, *values: Any, **named: Any) -> None:
        put = object.__setattr__
        fields = self._fields
        if not values and named.keys() == self._names:
            for field, value in named.items():
                put(self, field, value)
            return
        if len(values) > len(fields):
            raise TypeError(f"{type(self).__name__} has {len(fields)} fields, {len(values)} were given")
        for field, value in zip(fields, values, strict=False):
            put(self, field, value)
        for field in fields[len(values) :]:
            if field in named:
                put(self, field, named.pop(field))
            elif field in self._defaults:
                put(self, field, self._defaults[field])
            else:
                raise TypeError(f"{type(self).__name__} needs {field}")
        if named:
            raise TypeError(f"{type(self).__name__} has no {', '.join(named)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in self._fields)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field) for field in self._fields))

    def __repr__(self) -> str:
        shown = ", ".join(f"{field}={getattr(self, field)!r}" for field in self._fields)
        return f"{type(self).__name__}({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field) for field in self._fields)


R = TypeVar("R", bound=Record)


def replace(record: R, **changes: Any) -> R:
    """A copy with some fields changed. Raises TypeError for an unknown field."""
    values = {field: getattr(record, field) for field in record._fields}
    unknown = set(changes) - set(values)
    if unknown:
        raise TypeError(f"{type(record).__name__} has no {', '.join(sorted(unknown))}")
    return type(record)(**{**values, **changes})
