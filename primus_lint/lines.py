"""A dictionary that is stored as one line of JSON an entry: an entry is parsed when it is asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lines(dict[str, Any]):
    """Key -> value, from key -> JSON. Reading is all that it is made for."""

    def __init__(self, lines: dict[str, str]) -> None:
        super().__init__()
        self.lines = lines

    def __missing__(self, key: str) -> Any:
        self[key] = json.loads(self.lines[key])
        return self[key]

    def __contains__(self, key: object) -> bool:
        return key in self.lines

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self.lines else default
