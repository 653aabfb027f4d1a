"""The real MegatronFSDP on a toy model: what it holds whole, asked on a CPU with a fake process group.

`python megatron_fsdp.py WORLD LAYERS DTYPE AHEAD`: blocks of 32,768 elements between an embedding and a head of 131,072
each; gathers AHEAD elements ahead (0: its default). Prints one JSON object of element counts: `buffers` (of a rank, by
name), `weights` and `gradients` whole (the most of two steps of two micro-batches, and after a step), `kept` (after
`synchronize_param_gather`), `cast` (gradients of the optimizer outside the buffers).
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

sys.modules["transformer_engine"] = None  # type: ignore[assignment]
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

HIDDEN, INNER, VOCAB = 64, 256, 2048


class Inert:
    """A stream or event that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: Inert()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(HIDDEN, INNER, bias=False)
        self.fc2 = torch.nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.fc2(torch.relu(self.fc1(x)))


class Model(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(Block() for _ in range(layers))
        self.head = torch.nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def shims() -> None:
    """Collectives and streams that do nothing."""
    cuda = torch.cuda
    cuda.Stream = cuda.Event = Inert  # type: ignore[misc, assignment]
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, lambda *args, **kwargs: Inert())
    for name in ("synchronize", "empty_cache", "manual_seed", "set_rng_state"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()  # type: ignore[assignment, misc]
    cuda.current_device = lambda: 0
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign, assignment]


def main() -> None:
    world, layers, dtype, ahead = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]), int(sys.argv[4])
    shims()
    dist.init_process_group("fake", store=FakeStore(), rank=world - 1, world_size=world)
    from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer as buffers
    from megatron.core.distributed.fsdp.src.megatron_fsdp.fully_shard import fully_shard

    @contextlib.contextmanager
    def coalescing(*args: Any, **kwargs: Any) -> Iterator[Any]:
        yield Inert()

    buffers._coalescing_manager = coalescing
    buffers.validate_uneven_dtensor = lambda *args, **kwargs: None  # compares with other ranks
    model = Model(layers).to(dtype)
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("dp", "tp"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    wrapped, optimizer = fully_shard(
        model, optimizer, device_mesh=mesh, dp_shard_dim="dp", tp_dim="tp", fsdp_unit_modules=[Block],
        device=torch.device("cpu"), zero_dp_strategy=3, sync_model_each_microbatch=False,
    )  # fmt: skip
    if ahead:
        wrapped.suggested_AG_prefetch_size, wrapped.suggested_RS_queue_capacity = ahead, 2 * ahead
    groups = wrapped.param_and_grad_buffer.parameter_groups

    def whole(kind: str) -> int:
        total = 0
        for group in groups:
            buffer = getattr(group, kind)
            bucket = buffer.temporary_bucket_allocator.buckets.get(buffer.bucket_index.bucket_id)
            if bucket is not None:
                total += bucket.data.untyped_storage().nbytes() // bucket.data.element_size()
        return total

    most = {"weights": 0, "gradients": 0}

    def look(*args: Any) -> None:
        most["weights"] = max(most["weights"], whole("model_weight_buffer"))
        most["gradients"] = max(most["gradients"], whole("main_grad_buffer"))

    for module in wrapped.module.modules():
        module.register_forward_pre_hook(look)
        module.register_forward_hook(look)
        module.register_full_backward_hook(look)
    names = ("model_weight_buffer", "main_weight_buffer", "main_grad_buffer")
    held = {name: [getattr(group, name).data for group in groups] for name in names}
    answer: dict[str, Any] = {
        "buffers": {name: [sum(d.numel() for d in data), data[0].element_size()] for name, data in held.items()}
    }
    for _ in range(2):
        for micro_batch in range(2):
            wrapped.is_last_microbatch = micro_batch == 1
            wrapped(torch.zeros(2, 8, dtype=torch.long)).float().sum().backward()
        wrapped.finish_grad_sync()
        mine = {data.untyped_storage()._cdata for data in held["main_grad_buffer"]}
        cast = {}
        for parameter in wrapped.module.parameters():
            gradient = parameter.grad
            local = getattr(gradient, "_local_tensor", gradient)
            if local is not None and local.untyped_storage()._cdata not in mine:
                cast[local.untyped_storage()._cdata] = local.untyped_storage().nbytes()
        answer["cast bytes"] = sum(cast.values())
        wrapped.start_param_sync()
        answer["after a step"] = whole("model_weight_buffer")
        wrapped.synchronize_param_gather()
        answer["kept"] = whole("model_weight_buffer")
        wrapped.start_param_sync()
    print(json.dumps({**answer, **most}), flush=True)


if __name__ == "__main__":
    main()
