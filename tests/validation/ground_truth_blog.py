"""The Llama rows of the Primus projection blog (GT1376 to GT1380): global batch and recomputation are not stated there.

Assumption: as Primus's shipped recipes of the same models and micro-batches (8B: 8 micro-batches a rank, no
recomputation, distributed optimizer; 70B: FSDP2, every layer recomputed, one micro-batch a rank). The interval spans 1
to 16 micro-batches a rank and no or full recomputation. Nothing is tuned to these rows.
"""

from __future__ import annotations

from typing import Any

from primus_lint.projection import project

from .ground_truth_facts import RECOMPUTE
from .ground_truth_rows import Row

SOURCE = "Primus Projection blog"
MICROBATCHES = (1, 2, 4, 8, 16)


def assumed(rows: list[Row], recipe: Any) -> list[dict[str, Any]]:
    """One entry per row of the blog: measured and projected tokens/s/GPU, error at the assumption, interval."""
    found = []
    for row in rows:
        if row.source != SOURCE or row.request is None:
            continue
        raw = row.raw
        large = "70B" in raw["model"]
        speeds: dict[tuple[int, str], float] = {}
        for count in MICROBATCHES:
            for recompute in ("none", "full"):
                args = {**row.request["args"], **RECOMPUTE[recompute], "cross_entropy_loss_fusion": True,
                        "cross_entropy_fusion_impl": "te", "use_turbo_attention": large, "enable_primus_turbo": True,
                        "global_batch_size": count * int(raw["mbs"]) * int(raw["num_gpus"])}  # fmt: skip
                run, accelerator = recipe({**row.request, "args": args})
                projection = project(run, accelerator)
                assert projection is not None
                speeds[count, recompute] = projection.tokens_per_s_per_gpu
        measured = float(raw["measured_tokens_per_s_per_gpu"])
        at = speeds[(1, "full") if large else (8, "none")]
        found.append(
            {
                "id": row.id, "model": raw["model"], "precision": raw["precision"], "gpus": raw["num_gpus"],
                "measured": measured, "projected": at, "error": at / measured - 1,
                "interval": [min(speeds.values()), max(speeds.values())],
            }
        )  # fmt: skip
    return found
