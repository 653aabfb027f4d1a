"""Checks in code that need nothing but the arguments: one name each, so that the catalogue can say `args:NAME`."""

from __future__ import annotations

from primus_lint.rules.checks.argument_table import choices, types, unknown
from primus_lint.rules.checks.heterogeneous import layers_file

__all__ = ["choices", "layers_file", "types", "unknown"]
