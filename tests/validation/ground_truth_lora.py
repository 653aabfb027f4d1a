"""LoRA fine-tuning of Llama-2 70B in MLPerf Training: what the rows leave out, assumed, and the interval of what is open.

The benchmark's rules settle the adapters (rank 16 on the attention's products, dropout 0.1) and the length of 8,192. Assumed is
FP8 without recomputation, as NVIDIA's and AMD's submissions run; open is whether tensor-parallel communication is
overlapped (`tp_comm_overlap`). Rows that do not state their degrees are left out. Nothing is tuned to these rows.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from primus_lint.projection import project

from .ground_truth_facts import OVERLAP
from .ground_truth_rows import Row, build

MODEL = "Llama-2-70B LoRA"
ARGUMENTS: dict[str, Any] = {
    **OVERLAP, "fp8": "hybrid", "cross_entropy_loss_fusion": True, "lora.enabled": True, "lora.dim": 16,
    "lora.dropout": 0.1, "lora.target_modules": ["linear_qkv", "linear_proj"],
}  # fmt: skip


def lora(rows: list[Row], recipe: Any) -> list[dict[str, Any]]:
    """One entry per GPU kind and degrees: runs, mean measured tokens/s/GPU, error without and with the overlap."""
    groups: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    for row in rows:
        raw = row.raw
        if raw["model"] != MODEL or not raw["tp"] or not raw["measured_tokens_per_s_per_gpu"]:
            continue
        whole = build({**raw, "model": "Llama-2-70B", "precision": "bf16", "recompute": "none"})
        assert whole.request is not None
        speeds = []
        for overlapped in (False, True):
            args = {**whole.request["args"], **ARGUMENTS, "sequence_parallel": int(raw["tp"]) > 1,
                    "tp_comm_overlap": overlapped and int(raw["tp"]) > 1}  # fmt: skip
            run, accelerator = recipe({**whole.request, "args": args})
            projection = None if run is None else project(run, accelerator)
            if projection is not None:
                speeds.append(projection.tokens_per_s_per_gpu)
        if len(speeds) == 2:
            measured = float(raw["measured_tokens_per_s_per_gpu"])
            groups.setdefault((raw["gpu"], raw["tp"], raw["cp"], raw["num_gpus"]), []).append((measured, *speeds))
    return [
        {
            "gpu": gpu, "tp": tp, "cp": cp, "gpus": gpus, "runs": len(found), "measured": mean(one[0] for one in found),
            "error": mean(plain / measured - 1 for measured, plain, _ in found),
            "error_overlapped": mean(other / measured - 1 for measured, _, other in found),
        }
        for (gpu, tp, cp, gpus), found in sorted(groups.items())
    ]  # fmt: skip
