"""What forward and backward of the real local modules of Megatron-Core take from the allocator and give back, in order.

`python first_step_trace.py < QUESTION` (a question of `ask` about megatron_activations, with `micro_batches` and
`workspace`) runs the micro-batches of a stage with the loss on a CPU, real tensors of the real sizes, and prints one JSON
object: `events`, a list of [number, bytes] as tensors come and [-number, 0] as they go, those of more than 1 MiB.

Stand-ins, each allocating what the fused kernel on a GPU does: dropout, causal softmax (backward in place), bias with GELU,
bias with dropout and residual; a workspace behind the first matrix product of each thread. Left out is the scratch of CPU
kernels: copies inside batched products, and sizes that are no multiple of 128 KiB.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "shared" / "oracle"))
question = json.load(sys.stdin)
import common  # type: ignore[import-not-found]  # noqa: E402
import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

LARGE, GRAIN = 1 << 20, 1 << 17
backward = False  # which thread it would be on a GPU


class OnHost(TorchFunctionMode):
    """Every device is the host."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def host(value: Any) -> Any:
            cuda = value == "cuda" if isinstance(value, str) else getattr(value, "type", "") == "cuda"
            return torch.device("cpu") if cuda else value

        kwargs = {name: host(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        return function(*[host(value) if isinstance(value, (str, torch.device)) else value for value in args], **kwargs)


def on_host() -> None:
    """Undo the pretended CUDA device of `common`."""
    cuda = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    cuda.is_available = lambda: False
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment]
    torch.Tensor.record_stream = lambda *args: None  # type: ignore[assignment]


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        mask, out = torch.empty(x.shape, dtype=torch.bool), torch.empty_like(x)  # `dropout_cuda`: the mask first
        ctx.save_for_backward(mask)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return torch.empty_like(gradient)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Any) -> Any:
        out = torch.empty_like(scores)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, bias: Any, residual: Any, share: float) -> Any:
        out = torch.empty_like(x)
        if share > 0:
            ctx.save_for_backward(torch.empty(x.shape, dtype=torch.bool))
        ctx.share = share
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        own = torch.empty_like(gradient) if ctx.share > 0 else gradient
        return own, own.sum((0, 1)), gradient, None


def fused_kernels() -> None:
    from megatron.core.fusions import fused_bias_gelu, fused_softmax
    from megatron.core.models.gpt import gpt_layer_specs

    torch.nn.functional.dropout = lambda x, p=0.5, training=True, inplace=False: Dropout.apply(x) if p > 0 else x  # type: ignore[assignment]
    fused_softmax.FusedScaleMaskSoftmax.forward = lambda self, scores, mask, offset=None: Softmax.apply(scores)
    fused_bias_gelu.bias_gelu = lambda bias, x: torch.empty_like(x)
    fused_bias_gelu.bias_gelu_back = lambda gradient, bias, x: torch.empty_like(x)
    gpt_layer_specs.get_bias_dropout_add = lambda training, fused: lambda x, residual, p: Added.apply(*x, residual, p)


def workspaces(size: int) -> dict[bool, Any]:
    """Make the first plain product of forward and of backward take a workspace after its result; they stay in the dict."""
    held: dict[bool, Any] = {}

    def noted(call: Any) -> Any:
        def product(*args: Any, **kwargs: Any) -> Any:
            out = call(*args, **kwargs)
            if backward not in held:
                held[backward] = torch.empty(size, dtype=torch.uint8)
            return out

        return product

    torch.matmul, torch.Tensor.matmul = noted(torch.matmul), noted(torch.Tensor.matmul)  # type: ignore[assignment]
    return held


def run(model: Any, a: Any, hidden: int, micro_batches: int) -> None:
    """The micro-batches one after the other, as Megatron's schedules run them on a stage with the loss."""
    global backward
    inner = model.module
    received = None if inner.pre_process else fresh(a, hidden)
    for number in range(micro_batches):
        tokens = torch.zeros(a.mbs, a.seq, dtype=torch.int64)
        mask = torch.empty(a.mbs, 1, a.seq, a.seq, dtype=torch.bool)
        if received is not None:
            inner.set_input_tensor(received)
        loss = model(tokens, tokens, mask, labels=tokens).float().sum()
        del mask
        if received is not None:
            received.retain_grad()
        backward = True
        torch.autograd.backward(loss)
        backward = False
        del loss
        if received is not None:
            gradient = received.grad  # noqa: F841  the one before goes here
            if number < micro_batches - 1:
                received = fresh(a, hidden)


def fresh(a: Any, hidden: int) -> Any:
    return torch.empty(a.seq, a.mbs, hidden, dtype=torch.bfloat16, requires_grad=True)


def events(tree: Any) -> list[tuple[int, int]]:
    """Tensors of the large pool as they come and go."""
    found: list[tuple[int, int, int, str]] = []

    def walk(nodes: Any, path: str) -> None:
        for node in nodes:
            if str(node.tag).endswith("Allocation"):
                fields = node.extra_fields
                found.append((node.start_time_ns, fields.alloc_size, fields.ptr, path))
            walk(node.children, f"{path}/{node.name}")

    walk(tree, "")
    out: list[tuple[int, int]] = []
    numbers: dict[int, int] = {}
    for _, size, address, path in sorted(found, key=lambda event: event[0]):
        if size > LARGE and size % GRAIN == 0 and not ("bmm" in path and "clone" in path):
            numbers[address] = 1 + max([abs(number) for number, _ in out], default=0)
            out.append((numbers[address], size))
        elif size < 0 and address in numbers:
            out.append((-numbers.pop(address), 0))
    return out


def main() -> None:
    common.MODELS[question["name"]] = question["model"]
    sys.argv = ["trace", *question["argv"].split()]
    a = common.base_parser(None).parse_args()
    common.init_world(a)
    on_host()
    fused_kernels()
    from megatron.core.models.gpt import GPTModel

    build = GPTModel.__init__

    def with_positions(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.update(position_embedding_type="learned_absolute", max_sequence_length=question["max_positions"])
        build(self, *args, **kwargs)

    GPTModel.__init__ = with_positions
    held = workspaces(question["workspace"])
    with OnHost():
        config, row = common.build_config(a, masked_softmax_fusion=True)
        model = common.build_chunks(a, config, row)[0].train()
        for param in model.parameters():
            param.data.zero_()
            param.register_post_accumulate_grad_hook(lambda one: setattr(one, "grad", None))
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            run(model, a, row["h"], question["micro_batches"])
    del held
    print(json.dumps({"events": events(seen.profiler.kineto_results.experimental_event_tree())}))
    sys.stdout.flush()


with contextlib.suppress(BrokenPipeError):
    main()
os._exit(0)
