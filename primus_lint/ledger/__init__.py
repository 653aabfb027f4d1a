"""Bytes: weights, gradient buffers, optimizer state, activations, in-flight counts, transients, allocator, device.

`ledger(run)` returns the account of every class of ranks of a typed recipe. See `result` for what it holds and
docs/accuracy.md for how exact each part is.
"""

from __future__ import annotations

from primus_lint.ledger.build import ledger
from primus_lint.ledger.result import Abstention, Item, Ledger, RankMemory

__all__ = ["Abstention", "Item", "Ledger", "RankMemory", "ledger"]
