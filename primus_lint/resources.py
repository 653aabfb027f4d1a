"""Where the data roots lie: `rules/`, `schemas/`, `hardware_db/`, `examples/`.

A wheel carries them under `primus_lint/_data/<root>`; a checkout (also an editable install) keeps them beside the
package. `_data` in a checkout holds only compiled copies, which are rebuilt when their sources are newer.
"""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(_PACKAGE, "_data")


def data_root(name: str) -> str:
    """Path of the data root `name` ("rules", "schemas", "hardware_db", "examples").

    Raises FileNotFoundError when neither the wheel nor the checkout holds it.
    """
    for path in (os.path.join(DATA, name), os.path.join(os.path.dirname(_PACKAGE), name)):
        if os.path.isdir(path):
            return path
    raise FileNotFoundError(f"primus-lint is installed without its data folder {name!r}")


def compiled(name: str) -> str:
    """Path of a compiled data file (it may not exist in a checkout)."""
    return os.path.join(DATA, name)


def is_checkout() -> bool:
    """True when the package runs from a source tree, where data files may be newer than their compiled copies."""
    return os.path.isfile(os.path.join(os.path.dirname(_PACKAGE), "pyproject.toml"))
