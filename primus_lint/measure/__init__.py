"""Measuring: layers, kernels and collectives of a recipe on the device at hand, and the store that keeps them.

`store` and `records` import the standard library alone and may be imported from anywhere. Everything that imports torch
(`device`, `timing`, `modules`, `experts`, `kernels`, `collectives`, `session`) is imported inside the function that needs it.
"""

from __future__ import annotations
