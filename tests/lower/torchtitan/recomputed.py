"""Ask the real torchtitan v0.2.2 what its activation checkpointing makes again: multiply-adds of products, by token and block.

python recomputed.py < [mode, selective option, early stop, hidden, key width, ffn width] a line
"""

import importlib
import json
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode
from without_triton import import_torchtitan

import_torchtitan()
ActivationCheckpoint = importlib.import_module("torchtitan.config.job_config").ActivationCheckpoint
apply_ac = importlib.import_module("torchtitan.distributed.activation_checkpoint").apply_ac

TOKENS, HEAD = 32, 16
SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


class Block(nn.Module):
    """The products of torchtitan's llama3 block in its order."""

    def __init__(self, hidden: int, key: int, width: int) -> None:
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(hidden, out, bias=False) for out in (hidden, key, key))
        self.wo = nn.Linear(hidden, hidden, bias=False)
        self.w1, self.w3 = nn.Linear(hidden, width, bias=False), nn.Linear(hidden, width, bias=False)
        self.w2 = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).view(1, len(x), -1, HEAD).transpose(1, 2) for part in (self.wq, self.wk, self.wv))
        core = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        h = x + self.wo(core.transpose(1, 2).reshape(x.shape))
        return h + self.w2(F.silu(self.w1(h)) * self.w3(h))


def backward_flops(sizes: list[int], checkpoint: Any) -> int:
    model = nn.Module()
    model.layers = nn.ModuleDict({"0": Block(*sizes)})
    if checkpoint is not None:
        apply_ac(model, checkpoint, model_compile_enabled=False, op_sac_save_list=SAVED)
    x = torch.randn(TOKENS, sizes[0], requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        y = model.layers["0"](x)
        forward = counter.get_total_flops()
        y.sum().backward()
    return int(counter.get_total_flops() - forward)


for line in sys.stdin:
    mode, option, early_stop, *sizes = json.loads(line)
    checkpoint = ActivationCheckpoint(mode=mode, selective_ac_option=option, early_stop=early_stop)
    print(json.dumps((backward_flops(sizes, checkpoint) - backward_flops(sizes, None)) / 2 / TOKENS))
