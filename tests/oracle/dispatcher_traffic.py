"""Which collectives the token dispatchers issue over the expert-parallel ranks in a forward pass.

A question for ask.py: megatron_activations.py of ../shared/oracle runs the model, while the functions of torch.distributed
note what they are asked for. Prints a JSON object: {"calls": [[operation, bytes], ...]}, bytes of the whole tensor (of an
all-to-all what the rank sends), over all groups with as many ranks as experts are spread over.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

NAMES = {
    "all_to_all_single": ("all_to_all", 1), "all_gather_into_tensor": ("all_gather", 0), "_all_gather_base": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 1), "_reduce_scatter_base": ("reduce_scatter", 1),
}  # fmt: skip


def main() -> None:
    import megatron_activations
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import mappings

    calls: list[tuple[str, int]] = []

    def noting(name: str, function: Any) -> Any:
        operation, place = NAMES[name]

        def call(*args: Any, **named: Any) -> Any:
            tensor = args[place] if len(args) > place else named[("output", "input")[place]]
            ranks = torch.distributed.get_world_size(named.get("group"))
            if ranks == parallel_state.get_expert_model_parallel_world_size():
                calls.append((operation, tensor.numel() * tensor.element_size()))
            return function(*args, **named)

        return call

    for name in NAMES:
        if hasattr(torch.distributed, name):
            new = noting(name, getattr(torch.distributed, name))
            for other, value in list(vars(mappings).items()):  # bound when the module was imported
                if value is getattr(torch.distributed, name):
                    setattr(mappings, other, new)
            setattr(torch.distributed, name, new)
    forward = megatron_activations.run_forward

    def run(*args: Any) -> Any:
        forward(*args)
        print(json.dumps({"calls": calls[len(calls) // 2 :]}), flush=True)  # the model ran twice
        os._exit(0)

    megatron_activations.run_forward = run
    megatron_activations.main()
