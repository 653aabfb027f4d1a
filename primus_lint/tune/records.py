"""Elements of grids on their way through the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune.keys import NUMBER
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from primus_lint.tune.grid import Shape


class Elements(NamedTuple):
    """Chosen elements of a base: positions in its flattened grid, columns and changed keys as arrays [element, 1]."""

    shape: Shape
    indices: Any
    columns: dict[str, Any]
    changed: Any

    @classmethod
    def of(cls, shape: Shape, indices: Any) -> Elements:
        return cls(shape, indices, shape.chosen(indices), shape.changed.ravel()[indices][:, None])


class Scored:
    """Elements of a base on which several forms are scored, and what these share: what layers cost (`prices`, of the whole
    grid), and the fixed part of the memory."""

    def __init__(self, shape: Shape, indices: Any, prices: dict[Any, Any]) -> None:
        self.elements = Elements.of(shape, indices)
        pick = shape.picker(indices)
        self.prices = {
            kind: tuple(block.each(pick) for block in part) if isinstance(part, tuple) else part.each(pick)
            for kind, part in prices.items()
        }
        self.fixed: dict[int, Any] = {}


class Found(NamedTuple):
    """Legal elements of one structure that fit, or nearly do: parallel arrays."""

    keys: dict[str, Any]
    shape: Shape
    indices: Any
    numbers: Any  # of recomputed layers; None when the keys say it
    seconds: Any
    changed: Any
    peak_bytes: Any

    def changes(self, position: int, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of one of them that differ from what was asked for, as the file would say them."""
        wanted = {**self.keys, **self.shape.point(int(self.indices[position]))}
        if self.numbers is not None:
            wanted[NUMBER] = int(self.numbers[position])
        return different(given, wanted)
