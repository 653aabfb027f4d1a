"""Where the user's store of measured times lies. Every start of the program asks, so that this imports next to nothing."""

from __future__ import annotations

import os
import sys

VARIABLE = "PRIMUS_LINT_STORE"
NAME = "measured.sqlite"


def cache_folder() -> str:
    """The user's cache folder: `$XDG_CACHE_HOME`, or what the system uses."""
    if os.environ.get("XDG_CACHE_HOME"):
        return os.environ["XDG_CACHE_HOME"]
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.expanduser(r"~\AppData\Local")
    return os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")


def default_path() -> str | None:
    """`$PRIMUS_LINT_STORE` ("none" switches the store off: None), else `primus-lint/measured.sqlite` in the cache folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == "none" else named
    return os.path.join(cache_folder(), "primus-lint", NAME)


def existing() -> str | None:
    """Path of the user's store when there is one."""
    path = default_path()
    return path if path is not None and os.path.isfile(path) else None


def mentions(path: str, device: str) -> bool:
    """Whether a store may hold something of a device: its name occurs in the file, as SQLite keeps text as it is. Spares
    the import of sqlite3 for devices that nobody measured."""
    try:
        with open(path, "rb") as file:
            return device.encode() in file.read()
    except OSError:
        return False
