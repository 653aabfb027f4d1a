"""What stops a measurement."""

from __future__ import annotations


class MeasureError(Exception):
    """Nothing can be measured or read; the message says why, and what helps."""
