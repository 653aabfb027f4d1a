"""One JSON object of `primus-lint batch` (design 4.3) -> Section."""

from __future__ import annotations

from typing import Any

from primus_lint.readers.document import Origin, Section, Value


def section_of(request: dict[str, Any], framework: str) -> Section:
    """The arguments of a request as a section; facts of a named model lie below them."""
    values: dict[str, Value] = {}
    args = request.get("args") or {}
    for key, value in args.items():
        values[key] = Value(value, (Origin("batch", value, key_path=("args", key)),))
    return Section("batch", framework, values, model=request.get("model"))
