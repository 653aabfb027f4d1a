"""Tensor parallelism around the products of a rank: real collectives, or stand-ins of the right size. Imports torch.

With a process group the collectives of tensor parallelism run (Megatron's f and g, arXiv 1909.08053): all-reduce the
outputs of row-parallel products forward, and the input gradients of column-parallel ones backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from primus_lint.ir.run import Run


class _Enter(torch.autograd.Function):
    """Identity forward, all-reduce of the gradient backward: before a column-parallel product."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad = grad.contiguous()
        torch.distributed.all_reduce(grad, group=ctx.group)
        return grad, None


class _Leave(torch.autograd.Function):
    """All-reduce forward, identity backward: after a row-parallel product."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        torch.distributed.all_reduce(x, group=group)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


class _Gathered(torch.autograd.Function):
    """Stands in for a gather along the sequence: the result is some tensor of that size; nothing is moved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        ctx.length = x.shape[1]
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad[:, : ctx.length], None


class _Scattered(torch.autograd.Function):
    """Stands in for a scattering reduction along the sequence: the first part of it; nothing is moved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, length: int, whole: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(whole)
        return x[:, :length]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return ctx.saved_tensors[0], None, None


class Links:
    """What stands around the tensor-parallel products of a rank: nothing, the collectives of a group, or (sequence
    parallel, no group) stand-ins that only have the right sizes."""

    def __init__(self, run: Run, dtype: torch.dtype, device: torch.device, group: Any = None) -> None:
        self.group = group
        self.whole: torch.Tensor | None = None
        tokens = run.batch.seq_length // run.parallel.cp
        self.length = tokens
        if group is None and run.parallel.sequence_parallel and run.parallel.tp > 1:
            self.length = tokens // run.parallel.tp
            shape = (run.batch.micro_batch_size, tokens, run.model.hidden_size)
            self.whole = torch.randn(shape, dtype=dtype, device=device)

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """In front of a column-parallel product."""
        if self.group is not None:
            return _Enter.apply(x, self.group)
        if self.whole is not None:
            return _Gathered.apply(x, self.whole)
        return x

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """Behind a row-parallel product."""
        if self.group is not None:
            return _Leave.apply(x, self.group)
        if self.whole is not None:
            return _Scattered.apply(x, self.length, self.whole)
        return x
