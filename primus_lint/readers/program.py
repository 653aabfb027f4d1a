"""Flags that a program itself defines: those in the argument files of the checkout that a script lies in."""

from __future__ import annotations

import os
import re
from functools import lru_cache

_FILES = ("training/arguments.py", "arguments.py")
_FLAG = re.compile(r"""["'](--[A-Za-z0-9][\w-]*)["']""")
_MAX_BYTES = 1 << 21
_LEVELS = 6


@lru_cache(maxsize=64)
def own_flags(path: str, script: str) -> frozenset[str]:
    """Flags named in `megatron*/training/arguments.py`, `megatron*/arguments.py` and the training program `script` of
    the nearest folder above `path` that holds such a file. Empty when there is none."""
    folder = os.path.dirname(os.path.abspath(path))
    for _ in range(_LEVELS):
        try:
            names = sorted(name for name in os.listdir(folder) if name.lower().startswith("megatron"))
        except OSError:
            names = []
        files = [os.path.join(folder, name, part) for name in names for part in _FILES]
        found = [file for file in files if os.path.isfile(file)]
        if found:
            found += [os.path.join(folder, os.path.basename(script))]
            return frozenset(flag for file in found for flag in _flags(file))
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    return frozenset()


def _flags(file: str) -> list[str]:
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > _MAX_BYTES:
            return []
        with open(file, encoding="utf-8", errors="replace") as source:
            return _FLAG.findall(source.read())
    except OSError:
        return []
