"""Host time of a decoder layer: Megatron-Core's own modules on tensors too small to compute anything.

    PYTHON_WITH_TORCH_AND_MEGATRON_CORE tools/measure_host.py

Prints microseconds a layer, forward and backward, and the operations that the dispatcher saw. What a GPU adds is a kernel
launch for each of these operations (2.8 to 3.5 us: hardware_db, launch of GEMMs). One thread, gloo, no CUDA.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from typing import Any

LAYERS, REPEATS, WARM_UP = 8, 60, 10


def block() -> Any:
    """Eight layers of the `local` specification: grouped queries, gated MLP, no dropout."""
    sys.modules["transformer_engine"] = None  # type: ignore[assignment]  # the meta package refuses to load
    import torch

    torch.set_num_threads(1)
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.transformer_block import TransformerBlock
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel()
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=64, num_attention_heads=4, num_query_groups=2, ffn_hidden_size=128,
        use_cpu_initialization=True, gated_linear_unit=True, add_bias_linear=False, normalization="LayerNorm",
        hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False, params_dtype=torch.float32,
        persist_layer_norm=False, masked_softmax_fusion=False, apply_rope_fusion=False,
    )  # fmt: skip
    config.activation_func = torch.nn.functional.silu
    return TransformerBlock(config, get_gpt_layer_local_spec())


def _operations(seen: Any) -> int:
    """Operations that modules and autograd asked for: those that no other operation called."""
    events = [event for event in seen.events() if event.name.startswith("aten::")]
    return sum(1 for e in events if e.cpu_parent is None or not e.cpu_parent.name.startswith("aten::"))


def main() -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    layers = block()
    hidden = torch.randn(4, 1, 64, requires_grad=True)
    mask = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    forward_s, backward_s = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        out = layers(hidden, attention_mask=mask)
        middle = time.perf_counter()
        out.sum().backward()
        forward_s.append(middle - start)
        backward_s.append(time.perf_counter() - middle)
        for parameter in layers.parameters():
            parameter.grad = None
    counts = []
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        out = layers(hidden, attention_mask=mask)
    counts.append(_operations(seen))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        out.sum().backward()
    counts.append(_operations(seen))
    for name, seconds, count in (("forward", forward_s, counts[0]), ("backward", backward_s, counts[1])):
        each = statistics.median(seconds[WARM_UP:]) / LAYERS
        print(f"{name}: {each * 1e6:.0f} us a layer, {count / LAYERS:.0f} operations")


if __name__ == "__main__":
    main()
