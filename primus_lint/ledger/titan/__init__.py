"""Bytes of TorchTitan recipes: Llama 3 (FSDP2, HSDP, tensor parallelism) and dense Qwen3 (FSDP2, HSDP)."""

from __future__ import annotations

from primus_lint.ledger.titan.build import ledger, open_points

__all__ = ["ledger", "open_points"]
