"""What torch's own sharding moves and sends, asked of the real thing on a CPU with fake ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from primus_lint.ir.record import replace
from primus_lint.projection import traffic

from .recipes import run

pytest.importorskip("torch")

QUESTION = """
import json, sys, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
mesh = init_device_mesh("cpu", (4,))


class Copies(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = str(func)
        if name.startswith(("fsdp.split_with_sizes_copy", "fsdp.chunk_cat")):
            given = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
            out = kwargs["out"] if isinstance(kwargs["out"], (list, tuple)) else [kwargs["out"]]
            size = lambda tensors: sum(t.numel() * t.element_size() for t in tensors)
            self.seen.append((name.split(".")[1], size(given), size(out)))
        return func(*args, **kwargs)


def sharded(reduce):
    block = nn.Sequential(nn.Linear(64, 128, bias=False), nn.Linear(128, 64, bias=False))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce)
    fully_shard(block, mesh=mesh, mp_policy=policy)
    model = nn.Sequential(block)  # the root is never resharded after its forward
    fully_shard(model, mesh=mesh, mp_policy=policy)
    with Copies() as copies:
        model(torch.randn(2, 64)).sum().backward()
    return copies.seen


def tensor_parallel():
    block = nn.Sequential()
    block.up, block.down = nn.Linear(64, 128, bias=False), nn.Linear(128, 64, bias=False)
    block.forward = lambda x: block.down(torch.relu(block.up(x)))
    parallelize_module(block, mesh, {
        "": PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)),
        "up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=Shard(0)),
    })
    counts = []
    with CommDebugMode() as forward:
        out = block(torch.randn(2, 64, requires_grad=True))
    with CommDebugMode() as backward:
        out.sum().backward()
    return [{str(op).split(".")[-1]: n for op, n in mode.get_comm_counts().items()} for mode in (forward, backward)]


print(json.dumps({"fp32": sharded(torch.float32), "bf16": sharded(torch.bfloat16), "tp": tensor_parallel()}))
"""


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", QUESTION], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("reduced", ("bf16", "fp32"))
def test_fsdp2_copies_what_it_gathers_and_what_it_reduces(answer: dict[str, Any], reduced: str) -> None:
    """A block of 16,384 weights in bf16: gathered for the forward and for the backward, reduced once."""
    recipe = run("llama3-8b", use_torch_fsdp2=True, use_distributed_optimizer=False, ckpt_format="torch_dist")
    recipe = replace(recipe, precision=replace(recipe.precision, grads_dtype=reduced))
    moved = traffic.unpacking(recipe, 2 * 64 * 128)
    real = answer[reduced]
    assert moved.forward_kernels + moved.backward_kernels == len(real)
    forward, *backward = (read + written for _, read, written in real)
    assert (moved.forward_bytes, moved.backward_bytes) == (forward, sum(backward))


def test_others_do_not() -> None:
    for args in ({}, {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}):
        moved = traffic.unpacking(run("llama3-8b", **args), 1000)
        assert (moved.forward_bytes, moved.backward_bytes) == (0, 0)


def test_tensor_parallelism_of_torch_gathers_inputs_once(answer: dict[str, Any]) -> None:
    """One gather in front of a column-parallel product and one scatter behind a row-parallel one, and their gradients; nothing
    is gathered again for the weight gradient, which Megatron does."""
    from primus_lint.projection import comm, shapes

    forward, backward = ({name: count for name, count in part.items() if count} for part in answer["tp"])
    assert forward == backward == {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}
    recipe = run("llama3-8b", tensor_model_parallel_size=4, sequence_parallel=True)
    held = shapes.tokens(recipe)
    for again, more in ((False, 0), (True, 1)):
        other = replace(recipe, kernels=replace(recipe.kernels, gathers_again=again))
        context: Any = SimpleNamespace(run=other)
        pair = shapes.mlp_gemms(recipe.model, recipe.parallel, held, 14336)
        counts = [comm.launches(context, gemm) for gemm in pair]
        assert sum(before for before, _ in counts) == sum(forward.values())
        assert sum(after for _, after in counts) == sum(backward.values()) + more
