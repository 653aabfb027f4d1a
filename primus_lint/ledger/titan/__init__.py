"""Bytes of TorchTitan recipes: the Llama 3 family under FSDP2, HSDP and tensor parallelism."""

from __future__ import annotations

from primus_lint.ledger.titan.build import ledger, open_points

__all__ = ["ledger", "open_points"]
