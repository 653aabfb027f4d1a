"""What the real Megatron-Bridge makes of recipes: the configuration as a run starts with it.

    BRIDGE_PYTHON tests/lower/bridge/witness.py > tests/lower/bridge/witness.jsonl

The interpreter has megatron-bridge 0.3.0 with its transformers and megatron-core (`pip install --no-deps megatron-bridge`
beside torch, transformers<5, megatron-core, datasets, accelerate, omegaconf, tensorboard, einops, matplotlib, IPython; the
GPU libraries are stood in for as in tools/bridge_recipes.py). Every recipe function is called and
`runtime_config_update` runs on what it returns, for a number of ranks.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import warnings
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, ROOT)

from tools import bridge_recipes  # noqa: E402

PRETRAIN: tuple[dict[str, Any], ...] = (
    {},
    {"tensor_model_parallel_size": 2, "sequence_parallel": True, "pipeline_model_parallel_size": 1,
     "virtual_pipeline_model_parallel_size": None, "context_parallel_size": 1, "micro_batch_size": 3, "global_batch_size": 96,
     "seq_length": 1024},
    {"tensor_model_parallel_size": 2, "sequence_parallel": False, "pipeline_model_parallel_size": 2,
     "virtual_pipeline_model_parallel_size": None},
    {"comm_overlap_config": None, "precision_config": "bf16_with_fp8_delayed_scaling_mixed"},
    {"precision_config": "bf16_with_fp8_subchannel_scaling_mixed"},
    {"enable_recompute": True}, {"enable_recompute": False}, {"use_megatron_fsdp": True},
)  # fmt: skip
FINETUNE: tuple[dict[str, Any], ...] = (
    {}, {"peft": "none"}, {"peft": "lora", "packed_sequence": True}, {"peft": "none", "packed_sequence": True},
    {"peft": "none", "seq_length": 8192, "micro_batch_size": 2, "global_batch_size": 64},
    {"precision_config": "bf16_with_fp8_current_scaling_mixed"},
)  # fmt: skip
MODEL = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "sequence_parallel", "seq_length", "recompute_granularity",
    "recompute_method", "recompute_num_layers", "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "tp_comm_overlap",
    "overlap_p2p_comm", "overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "defer_embedding_wgrad_compute", "fp8",
    "fp8_recipe", "bf16", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
    "moe_token_dispatcher_type", "hidden_dropout", "attention_dropout",
)  # fmt: skip
DDP = ("overlap_grad_reduce", "overlap_param_gather", "bucket_size", "use_distributed_optimizer", "grad_reduce_in_fp32",
       "average_in_collective", "fp8_param_gather", "use_megatron_fsdp")  # fmt: skip


def final(function: Any, arguments: dict[str, Any], world: int) -> dict[str, Any]:
    """The fields of the configuration that a run of `world` ranks starts with; raises what the real code raises."""
    from megatron.bridge.training import config as module

    cfg = function(**arguments)
    cfg.checkpoint.pretrained_checkpoint = "somewhere"
    if cfg.ddp.use_megatron_fsdp:
        cfg.checkpoint.ckpt_format = "fsdp_dtensor"
    module.get_world_size_safe = lambda: world
    cfg.dataset = None  # its paths are not there
    module.runtime_config_update(cfg)
    plain = bridge_recipes._plain
    out = {f"model.{name}": plain(getattr(cfg.model, name)) for name in MODEL}
    out.update({f"ddp.{name}": plain(getattr(cfg.ddp, name)) for name in DDP})
    out.update({f"train.{name}": getattr(cfg.train, name) for name in ("micro_batch_size", "global_batch_size")})
    out["optimizer.use_distributed_optimizer"] = cfg.optimizer.use_distributed_optimizer
    out["peft"] = (
        None if cfg.peft is None else {name: plain(getattr(cfg.peft, name)) for name in ("dim", "target_modules")}
    )
    return out


def main() -> None:
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, bridge_recipes._Finder())
    bridge_recipes._install_models()
    import types

    import torch

    torch.cuda.get_device_properties = lambda device=0: types.SimpleNamespace(major=9, minor=0, name="stand-in")
    with open(os.path.join(ROOT, "schemas/megatron_bridge/made-0.3.0.json"), encoding="utf-8") as file:
        made = json.load(file)["recipes"]
    for name in made:
        module, function_name = name.split(":")
        function = getattr(importlib.import_module(f"megatron.bridge.recipes.{module}"), function_name)
        for arguments in FINETUNE if "finetune" in function_name else PRETRAIN:
            row = {"recipe": name, "arguments": arguments, "world": 1024}
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    row["makes"] = final(function, arguments, 1024)
                except Exception:  # the sizes of the class do not divide, or a library is stood in for
                    continue
            print(json.dumps(row))


if __name__ == "__main__":
    main()
