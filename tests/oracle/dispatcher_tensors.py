"""What the token dispatchers hold as attributes after a forward pass, and what of it autograd keeps as well.

A question for ask.py: megatron_activations.py of ../shared/oracle runs the model, then the dispatchers are looked into.
Prints a JSON object: per MoE layer the distinct device storages held, and those of them among the saved tensors, in bytes.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch


def held(model: Any, seen: dict[Any, Any]) -> list[dict[str, Any]]:
    """One entry a MoE layer, storages of 4 KiB and more (counters of experts are smaller)."""
    out = []
    for module in model.modules():
        dispatcher = getattr(module, "token_dispatcher", None)
        if dispatcher is None:
            continue
        found: dict[Any, tuple[str, int]] = {}
        for owner in (dispatcher, getattr(dispatcher, "_comm_manager", None)):
            for name, value in vars(owner).items() if owner is not None else ():
                if torch.is_tensor(value) and value.device.type == "cuda":
                    storage = value.untyped_storage()
                    found[storage._cdata] = (name, storage.nbytes())
        found = {key: value for key, value in found.items() if value[1] >= 4096}
        out.append(
            {
                "held": dict(found.values()),
                "saved": sum(size for key, (_, size) in found.items() if key in seen),
            }
        )
    return out


def main() -> None:
    import megatron_activations

    forward = megatron_activations.run_forward

    def run(args: Any, config: Any, model: Any, pre: bool, post: bool) -> Any:
        answer = forward(args, config, model, pre, post)
        print(json.dumps({"layers": held(model, answer[1].seen)}), flush=True)
        os._exit(0)

    megatron_activations.run_forward = run
    megatron_activations.main()
