"""Names and bytes of what autograd keeps: small lists that the modules of a layer fill.

A tensor is (name, bytes); names are unique within a layer, so that recomputation can drop or add single ones.
"""

from __future__ import annotations

from typing import Any

Tensors = dict[str, Any]  # name -> bytes (int or array)


def total(tensors: Tensors) -> Any:
    result: Any = 0
    for value in tensors.values():
        result = result + value
    return result
