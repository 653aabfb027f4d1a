"""What Paxml's GPT configurations set beyond the columns of JAX-Toolbox's tables.

Read from paxml/contrib/gpu/scripts_gpu/configs.py (google/paxml, commits ffd1792 and 04516ac) and the class that they extend
(TransformerLmSpmdAdafactor, paxml/tasks/lm/model_params.py): bfloat16; a checkpoint policy for repeated layers, which the 126M
model has not; by default nothing is saved. The 5B model changed its policy at some release: rows that are sharded over data alone may
save products without a batch dimension, so that attention and what lies between the products is made again; their recomputation
stays unsettled. Attention is two products and a softmax: XLA's in steps (`xla_gpu_enable_triton_softmax_fusion=false` in
benchmark_gpt_multinode.sh), TransformerEngine's in one kernel (its fused attention was off by default in JAX, NVTE_FUSED_ATTN
"0" in transformer_engine/jax/flax/transformer.py). No speed was read.
"""

from __future__ import annotations

from typing import Any

SOURCE = "NVIDIA JAX-Toolbox Paxml/MaxText"
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
BETWEEN_PRODUCTS = {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "layernorm"]}
UNFUSED_ATTENTION = {"transformer_impl": "local", "attention_backend": "local"}


def settle(raw: dict[str, str], args: dict[str, Any]) -> bool:
    """Add what the configuration of a row sets; True: recomputation is settled."""
    if raw["source"] != SOURCE or not raw["framework"].startswith("Paxml") or not raw["model"].startswith("GPT"):
        return False
    args.update(UNFUSED_ATTENTION, masked_softmax_fusion=raw["precision"].startswith("TE"))
    if raw["model"] == "GPT 5B" and raw["tp"] == "1":
        args.update(BETWEEN_PRODUCTS)
        return False
    if raw["model"] != "GPT 126M":
        args.update(FULL)
    return True
