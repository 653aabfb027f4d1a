"""A mixture of experts as one rank holds it, with balanced routing. Imports torch.

The router really scores all experts; which rows go where is fixed, so that every local expert gets the same number, as the
projection assumes. Rows that other ranks would send are stood in for by the rank's own, so that nothing is exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from primus_lint.measure.modules import Mlp, activation, linear
from primus_lint.projection import shapes

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.measure.links import Links


class Experts(nn.Module):
    """Router, local experts and shared experts: [.., hidden] -> [.., hidden]."""

    def __init__(self, run: Run, links: Links, dtype: torch.dtype) -> None:
        super().__init__()
        model, parallel = run.model, run.parallel
        experts = model.moe
        assert experts is not None
        self.model, self.experts, self.batched = model, experts, shapes.single_kernel(run)
        routed = shapes.routing(experts, parallel, shapes.tokens(run))
        self.local = int(routed.experts)
        self.rows = max(int(routed.rows_per_expert), 1)
        self.topk = experts.router_topk
        self.router_dtype = {"fp32": torch.float32, "fp64": torch.float64}.get(experts.router_dtype or "", dtype)
        self.router = linear(model.hidden_size, experts.num_experts, False, self.router_dtype)
        width = experts.ffn_hidden_size // parallel.etp
        fc1 = width * (2 if model.gated else 1)
        self.fc1 = nn.Parameter(torch.randn(self.local, fc1, model.hidden_size, dtype=dtype) * 0.02)
        self.fc2 = nn.Parameter(torch.randn(self.local, model.hidden_size, width, dtype=dtype) * 0.02)
        self.shared: Mlp | None = None
        if experts.shared_expert_intermediate_size:
            self.shared = Mlp(run, experts.shared_expert_intermediate_size, links, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.flatten(0, -2)
        logits = self.router(hidden.to(self.router_dtype))
        scores = logits.softmax(-1) if self.experts.score_function == "softmax" else logits.sigmoid()
        probs = scores.topk(self.topk, dim=-1).values.to(x.dtype)
        tokens = hidden.shape[0]
        # row i of the experts' input is copy i % topk of token i // topk (again from the first once all are used)
        copies = torch.arange(self.local * self.rows, device=x.device) % (tokens * self.topk)
        order = copies.view(self.rows, self.local).t().reshape(-1)  # expert by expert
        token = order // self.topk
        out = self._products(hidden[token]) * probs.reshape(-1)[order].unsqueeze(-1)
        summed = torch.zeros_like(hidden).index_add_(0, token, out)
        if self.shared is not None:
            return summed.view_as(x) + self.shared(x)
        return summed.view_as(x)

    def _products(self, rows: torch.Tensor) -> torch.Tensor:
        grouped = rows.view(self.local, self.rows, -1)
        if self.batched:
            middle = activation(self.model, torch.bmm(grouped, self.fc1.transpose(1, 2)))
            return torch.bmm(middle, self.fc2.transpose(1, 2)).flatten(0, 1)
        parts = [grouped[i] @ self.fc1[i].t() for i in range(self.local)]
        middle = activation(self.model, torch.cat(parts))
        return torch.cat([part @ self.fc2[i].t() for i, part in enumerate(middle.view(self.local, self.rows, -1))])
