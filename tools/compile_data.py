"""Compile the data roots into `primus_lint/_data` (the build hook and `python -m tools.compile_data` call this)."""

from __future__ import annotations

import os

from primus_lint import resources


def compile_all(folder: str) -> None:
    """Write every compiled file into `folder`."""
    from primus_lint.hardware.compiled import write_compiled as write_hardware
    from primus_lint.readers.tables import write_compiled as write_tables
    from primus_lint.rules.compile import write_compiled as write_rules

    os.makedirs(folder, exist_ok=True)
    write_rules(resources.data_root("rules"), folder)
    write_tables(folder)
    write_hardware(folder)


if __name__ == "__main__":
    compile_all(resources.DATA)
