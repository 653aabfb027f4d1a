"""What the Primus pilot agent's runs set beyond the columns of their rows.

Read from plan.effective.yaml and handle.yaml beside each log (AMD-AGI/Primus, commit ec4cd77) and from the launcher they
name, examples/run_pretrain.sh, which exports NVTE_CK_USES_BWD_V3=0. Candidates of one model differ only in DeepEP settings.
No speed was read.
"""

from __future__ import annotations

from typing import Any

SOURCE = "Primus pilot agent run logs"
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NVTE_CK_USES_BWD_V3": "0"}
COMMON = {"gradient_accumulation_fusion": False, "use_distributed_optimizer": True}
MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": {"fp8_recipe": "delayed", "cross_entropy_loss_fusion": False},
    "DeepSeek-V2-Lite 16B": {
        "fp8_recipe": "tensorwise", "moe_token_dispatcher_type": "flex", "moe_enable_deepep": True,
        "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te",
    },
}  # fmt: skip


def settle(raw: dict[str, str], args: dict[str, Any]) -> bool:
    """Add what the plan of a row sets; True: recomputation is settled (none)."""
    if raw["source"] != SOURCE or raw["model"] not in MODELS:
        return False
    args.update(COMMON, **MODELS[raw["model"]])
    return True
