"""Bytes that the second layer of a frozen model with LoRA adapters keeps, asked of the real Megatron-Core and TE.

A program for the interpreter with the extra `oracle`: the options of ../shared/oracle/megatron_activations.py and
`--rank-dim R --targets linear_qkv,... --dropout P`; prints {"layer": bytes, "adapters": parameters of that layer}.
Adapters are Megatron's own parallel linears, put together as Primus's `ParallelLinearAdapter` does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "shared" / "oracle"))

from common import *  # noqa: F403
from megatron_activations import run_forward  # type: ignore[import-not-found]


def adapter(torch, cfg, base, dim, dropout, row):  # type: ignore[no-untyped-def]
    """The low-rank pair of one linear layer."""
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

    tp = cfg.tensor_model_parallel_size
    inputs = base.in_features * (tp if row else 1)
    outputs = base.out_features * (1 if row else tp)
    sequence, cfg.sequence_parallel = cfg.sequence_parallel, False
    common = {"config": cfg, "bias": False, "init_method": lambda tensor: tensor}
    if row:
        low = RowParallelLinear(inputs, dim, input_is_parallel=True, skip_bias_add=True, **common)
    else:
        low = ColumnParallelLinear(inputs, dim, gather_output=True, disable_grad_reduce=sequence, **common)
    out = ColumnParallelLinear(dim, outputs, gather_output=row, **common)
    cfg.sequence_parallel = sequence
    out.bfloat16()
    low.bfloat16()
    return low, out, torch.nn.Dropout(dropout) if dropout else torch.nn.Identity()


def wrap(torch, cfg, parent, name, dim, dropout):  # type: ignore[no-untyped-def]
    from megatron.core.tensor_parallel.mappings import scatter_to_sequence_parallel_region

    base, row = getattr(parent, name), name in ("linear_proj", "linear_fc2")
    low, out, drop = adapter(torch, cfg, base, dim, dropout, row)
    if not row:
        base.return_layernorm_output = True
        base.return_layernorm_output_gathered = cfg.sequence_parallel

    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.to_wrap, self.low, self.out, self.drop = base, low, out, drop

        def forward(self, x):  # type: ignore[no-untyped-def]
            found, bias = self.to_wrap(x)
            if not row:
                found, x = found
            y, _ = self.out(self.low(self.drop(x.contiguous()))[0])
            if row and cfg.sequence_parallel:
                y = scatter_to_sequence_parallel_region(y)
            return found + (y * 2.0).reshape(found.shape), bias

    setattr(parent, name, Wrapped())


def main() -> None:
    parser = base_parser(__doc__)  # noqa: F405
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rank-dim", type=int, default=16)
    parser.add_argument("--targets", default="")
    parser.add_argument("--dropout", type=float, default=0.0)
    asked = parser.parse_args()
    init_world(asked)  # noqa: F405
    with FakeTensorMode(allow_non_fake_inputs=True):  # noqa: F405
        cfg, sizes = build_config(asked)  # noqa: F405
        model = build_chunks(asked, cfg, sizes)[0]  # noqa: F405
        for param in model.parameters():
            param.requires_grad, param.main_grad = False, None
        layers = model.module.decoder.layers
        for layer in layers:
            for parent in (layer.self_attention, layer.mlp):
                for name in asked.targets.split(","):
                    if name and hasattr(parent, name):
                        wrap(torch, cfg, parent, name, asked.rank_dim, asked.dropout)  # noqa: F405
        for param in model.parameters():
            param.main_grad = None
        model.train()
        _, saved, _, _, _ = run_forward(asked, cfg, model, True, True)
        inside = [
            (where, size)
            for where, _, _, size, device in saved.table()
            if device == "cuda" and ".decoder.1." in where + "."
        ]
        if asked.table:
            for where, shape, dtype, size, device in saved.table():
                if device == "cuda" and ".decoder.1." in where + ".":
                    print(f"{size:>14,} {where} {shape} {dtype}")
        trainable = sum(param.numel() for param in layers[1].parameters() if param.requires_grad)
    print(json.dumps({"layer": sum(size for _, size in inside), "adapters": trainable}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
