"""Paths of the hardware tests."""

from __future__ import annotations

import os

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEASUREMENTS = os.path.join(os.path.dirname(ROOT), "shared", "measurements")


@pytest.fixture(scope="session")
def measurements() -> str:
    if not os.path.isdir(MEASUREMENTS):
        pytest.skip("../shared/measurements is not here: the public measurements cannot be read again")
    return MEASUREMENTS
