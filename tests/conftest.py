"""Tests never read the store of measured times of whoever runs them."""

from __future__ import annotations

import os

os.environ["PRIMUS_LINT_STORE"] = "none"
