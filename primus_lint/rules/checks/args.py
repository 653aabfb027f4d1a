"""Checks in code that need nothing but the arguments: one name each, so that the catalogue can say `args:NAME`."""

from __future__ import annotations

from typing import Any

from primus_lint.rules.checks.argument_table import choices, types, unknown
from primus_lint.rules.checks.heterogeneous import layers_file

__all__ = ["choices", "layers_file", "types", "unknown"]


def __getattr__(name: str) -> Any:
    """The checks of TorchTitan's fields, imported when one of them runs."""
    from primus_lint.rules.checks import titan_fields

    return getattr(titan_fields, name)
