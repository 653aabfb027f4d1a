"""What the optimizer step's neighbours allocate, asked of the real TransformerEngine and Megatron-Core."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.oracle.ask import ORACLE, why_not

pytestmark = pytest.mark.oracle
REASON = why_not()
PRELUDE = (
    "import sys; sys.path.insert(0, '.'); import torch; from common import _install_fake_cuda; _install_fake_cuda(90)\n"
    "import te_stub; te_stub.install()\n"
)


def run(code: str) -> list[int]:
    """The integers that a program prints on its last line, run beside ../shared/oracle's shims."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], cwd=ORACLE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_low_moments_are_copied_to_fp32_to_be_saved() -> None:
    """`get_unscaled_state`: a new fp32 tensor for a moment in bf16 or fp16, the stored one for fp32 and remainders."""
    found = run(
        """
from transformer_engine.pytorch.optimizers.fused_adam import FusedAdam
adam = FusedAdam.__new__(FusedAdam)
param = torch.nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16))
adam.store_param_remainders = True
adam.state, adam._scales = {param: {}}, {param: {name: torch.ones(1) for name in ("a", "b", "c")}}
adam.name_to_dtype_map = {"a": torch.bfloat16, "b": torch.float16, "c": torch.float32, "master_param": torch.float32}
kept = {"a": torch.bfloat16, "b": torch.float16, "c": torch.float32, "master_param": torch.int16}
new = []
for name, dtype in kept.items():
    adam.state[param][name] = torch.zeros(1000, dtype=dtype)
    out = adam.get_unscaled_state(param, name)
    shared = out.untyped_storage().data_ptr() == adam.state[param][name].untyped_storage().data_ptr()
    new.append(0 if shared else out.untyped_storage().nbytes())
print(*new)
"""
    )
    assert found == [4000, 4000, 0, 0]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_a_waiting_output_layer_input_holds_what_its_stage_received() -> None:
    """`ColumnParallelLinear` appends its input, graph and all, to `embedding_activation_buffer`: after the backward that graph
    still ends in the received input (1,000 fp32) and its gradient."""
    found = run(
        """
import inspect
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
assert "embedding_activation_buffer.append(input_parallel)" in inspect.getsource(ColumnParallelLinear.forward)
received = torch.zeros(1000, requires_grad=True)
received.retain_grad()
waiting = torch.tanh(received * 2)
(waiting * 3).sum().backward()
del received
node = waiting.grad_fn
while node.next_functions:
    node = node.next_functions[0][0]
print(node.variable.untyped_storage().nbytes(), node.variable.grad.untyped_storage().nbytes())
"""
    )
    assert found == [4000, 4000]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_layer_wise_gather_makes_flat_copies_of_every_parameter() -> None:
    """`allgather_params` on a group of 2 whose ranks own 300 and 200 elements of bf16: 2 B x 500, and the flat copy of
    the own 300."""
    found = run(
        """
from megatron.core.optimizer import layer_wise_optimizer as module
from live import LiveBytes
optimizer = module.LayerWiseDistributedOptimizer.__new__(module.LayerWiseDistributedOptimizer)
make = lambda n: torch.nn.Parameter(torch.zeros(n, dtype=torch.bfloat16))
optimizer.dp_cp_params_list = [[make(100), make(200)], [make(150), make(50)]]
optimizer.expt_dp_params_list = None
class Groups: dp_cp = object()
optimizer.pg_collection = Groups()
module.get_pg_rank = lambda group: 0
torch.distributed.all_gather = lambda out, mine, group: out[0].copy_(mine)
live = LiveBytes(device="cpu", round_to=1)
for params in optimizer.dp_cp_params_list:
    for param in params:
        live._track(param.data, "init")
with live:
    before = live.cur
    live.peak = live.cur
    optimizer.allgather_params()
print(live.peak - before)
"""
    )
    assert found == [2 * 500 + 2 * 300]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_loaded_moments_are_copied_beside_those_of_the_checkpoint() -> None:
    """`FusedAdam.load_state_dict`: new tensors, while the caller's are alive; 1 for each moment that is not the loaded one."""
    found = run(
        """
from transformer_engine.pytorch.optimizers.fused_adam import FusedAdam
adam = FusedAdam.__new__(FusedAdam)
params = [torch.nn.Parameter(torch.zeros(1000)) for _ in range(2)]
torch.optim.Optimizer.__init__(adam, params, {"lr": 1.0})
adam.store_param_remainders, adam.master_weights, adam._scales = False, False, {}
adam.name_to_dtype_map = {"exp_avg": torch.float32, "exp_avg_sq": torch.float32, "master_param": torch.float32}
loaded = {index: {name: torch.zeros(1000) for name in ("exp_avg", "exp_avg_sq")} for index in range(2)}
groups = [{"lr": 1.0, "params": [0, 1]}]
adam.load_state_dict({"state": loaded, "param_groups": groups})
old = {tensor.untyped_storage().data_ptr() for state in loaded.values() for tensor in state.values()}
print(*(int(adam.state[p][name].untyped_storage().data_ptr() not in old) for p in params for name in ("exp_avg", "exp_avg_sq")))
"""
    )
    assert found == [1, 1, 1, 1]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_low_weight_copies_stay_whole_when_the_weight_is_split_again() -> None:
    """A linear layer in FP8 whose weight of 64 x 128 is gathered for the call and a shard of 16 rows before and after, as
    torch FSDP2 has it. Elements of its cached copy after a forward: with `is_first_microbatch`, which
    Megatron-Core passes unless `disable_parameter_transpose_cache` is set, and without it."""
    found = run(
        """
from common import FakeTensorMode
import transformer_engine.pytorch as te
from transformer_engine.common import recipe
def cached(layer):
    return sum(copy._data.numel() for copy in layer._fp8_workspaces.values())
counts = []
with FakeTensorMode(allow_non_fake_inputs=True):
    whole = torch.zeros(64, 128, dtype=torch.bfloat16, device="cuda")
    for first in (True, None):
        layer = te.Linear(128, 64, bias=False, params_dtype=torch.bfloat16, device="cuda")
        layer.weight.data = whole
        x = torch.zeros(32, 128, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        with te.fp8_autocast(enabled=True, fp8_recipe=recipe.DelayedScaling()):
            out = layer(x, is_first_microbatch=first)
        layer.weight = torch.nn.Parameter(whole[:16].clone())
        counts.append(cached(layer))
print(*counts)
"""
    )
    assert found == [64 * 128, 0]


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_output_layer_makes_both_gradients_beside_that_of_the_logits() -> None:
    """Megatron-Core's linear layer without fused accumulation, 64 tokens, 32 hidden, vocabulary of 4,096, bf16: bytes above the
    logits, in which the loss leaves its gradient: those of the input and of the weight."""
    found = run(
        """
from megatron.core.tensor_parallel.layers import linear_with_grad_accumulation_and_async_allreduce as linear
from torch.testing._internal.distributed.fake_pg import FakeStore
from live import LiveBytes
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits):
        ctx.save_for_backward(logits)
        return logits.sum()
    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0]
x = torch.zeros(64, 1, 32, dtype=torch.bfloat16, requires_grad=True)
weight = torch.nn.Parameter(torch.zeros(4096, 32, dtype=torch.bfloat16))
weight.main_grad = None
live = LiveBytes(device="cpu", round_to=1)
with live:
    loss = InPlace.apply(linear(x, weight, None, False, False, False, tp_group=torch.distributed.group.WORLD))
    before = live.peak = live.cur
    loss.backward()
print(live.peak - before)
"""
    )
    assert abs(found[0] - (64 * 32 * 2 + 4096 * 32 * 2)) <= 16  # and the loss's own gradient
