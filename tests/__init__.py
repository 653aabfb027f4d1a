"""Tests and validation never read the store of measured times of whoever runs them; a store that is named stays."""

from __future__ import annotations

import os

os.environ.setdefault("PRIMUS_LINT_STORE", "none")
