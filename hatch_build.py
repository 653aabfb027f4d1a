"""Build hook: compile what every start would parse again (rules, key tables, presets, hardware) into `_data`."""

from __future__ import annotations

import os
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = os.path.dirname(os.path.abspath(__file__))
        sys.path.insert(0, root)
        try:
            from tools.compile_data import compile_all

            compile_all(os.path.join(root, "primus_lint", "_data"))
        finally:
            sys.path.remove(root)
