"""Bytes of TorchTitan recipes: Llama 3 (FSDP2, HSDP, tensor parallelism), Llama 4, Qwen3 and DeepSeek-V3 (FSDP2, HSDP,
expert parallelism)."""

from __future__ import annotations

from primus_lint.ledger.titan.build import ledger, open_points

__all__ = ["ledger", "open_points"]
