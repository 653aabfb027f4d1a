"""The two ends of a model in plain torch, as one rank holds them: embedding, and final norm, logits and loss. Imports
torch. The loss is Megatron-LM's vocabulary-parallel cross entropy, with its three all-reduces when there is a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from primus_lint.measure.modules import linear, norm
from primus_lint.projection.flops import padded_vocab

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.measure.links import Links


def rows(run: Run) -> int:
    """Rows of the vocabulary on one rank."""
    padded = padded_vocab(run.model, run.parallel.tp)
    assert padded is not None
    return int(padded // run.parallel.tp)


class Embedding(nn.Module):
    """[batch, seq] token numbers -> [batch, seq, hidden]. `rank` is the tensor-parallel rank."""

    def __init__(self, run: Run, links: Links, dtype: torch.dtype, rank: int = 0) -> None:
        super().__init__()
        self.rows, self.split, self.links = rows(run), run.parallel.tp > 1, links
        self.first = rank * self.rows
        self.table = nn.Embedding(self.rows, run.model.hidden_size, dtype=dtype)
        self.dropout = run.model.hidden_dropout

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.split:
            outside = (tokens < self.first) | (tokens >= self.first + self.rows)
            found = self.table((tokens - self.first).masked_fill(outside, 0))
            found = self.links.leave(found.masked_fill(outside.unsqueeze(-1), 0.0))
        else:
            found = self.table(tokens)
        return F.dropout(found, self.dropout) if self.dropout > 0 else found


class _CrossEntropy(torch.autograd.Function):
    """Loss of every token over a vocabulary split over the group: [tokens, rows] -> [tokens]."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, group: Any) -> torch.Tensor:
        values = logits.float()
        most = values.max(dim=-1).values
        if group is not None:
            torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX, group=group)
        values = values.sub_(most.unsqueeze(-1)) if values is not logits else values - most.unsqueeze(-1)
        outside = (target < 0) | (target >= values.shape[-1])
        index = target.masked_fill(outside, 0)
        predicted = values.gather(-1, index.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        if group is not None:
            torch.distributed.all_reduce(predicted, group=group)
        values.exp_()
        total = values.sum(dim=-1)
        if group is not None:
            torch.distributed.all_reduce(total, group=group)
        values.div_(total.unsqueeze(-1))
        ctx.save_for_backward(values, index, outside)
        ctx.dtype = logits.dtype
        return total.log() - predicted

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        values, index, outside = ctx.saved_tensors
        gradient = values  # the softmax is not needed afterwards
        gradient.scatter_add_(-1, index.unsqueeze(-1), (outside.float() - 1).unsqueeze(-1))
        gradient.mul_(grad.unsqueeze(-1))
        return gradient.to(ctx.dtype), None, None


class Head(nn.Module):
    """[batch, seq, hidden] and [batch, seq] targets -> mean loss."""

    def __init__(self, run: Run, links: Links, dtype: torch.dtype, rank: int = 0) -> None:
        super().__init__()
        self.links, self.first = links, rank * rows(run)
        self.norm = norm(run.model, run.model.hidden_size, dtype)
        self.logits = linear(run.model.hidden_size, rows(run), False, dtype)
        self.fused = run.kernels.cross_entropy_fusion is not None and links.group is None

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.logits(self.links.enter(self.norm(x))).flatten(0, 1)
        local = target.flatten() - self.first
        if self.fused:
            return F.cross_entropy(logits, local)
        return _CrossEntropy.apply(logits, local, self.links.group).mean()
