"""The layers of a recipe in plain torch, as one rank holds them. Imports torch.

Every module is one rank's share: heads, feed-forward width and vocabulary over the tensor-parallel size, tokens over the
context-parallel size. `Links` says what stands around the products: collectives, stand-ins, or nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from primus_lint.ir.run import Model, Run
    from primus_lint.measure.links import Links

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def linear(inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> nn.Linear:
    """A linear layer with Megatron's initial spread."""
    made = nn.Linear(inputs, outputs, bias=bias, dtype=dtype)
    nn.init.normal_(made.weight, std=0.02)
    return made


def norm(model: Model, width: int, dtype: torch.dtype) -> nn.Module:
    return nn.RMSNorm(width, dtype=dtype) if model.normalization == "RMSNorm" else nn.LayerNorm(width, dtype=dtype)


class Rotary:
    """Rotary embedding of [.., seq, width] (rotate-half form)."""

    def __init__(self, seq: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        angles = torch.outer(torch.arange(seq), 1e4 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        self.cos = angles.cos().to(device, dtype)
        self.sin = angles.sin().to(device, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos + turned * self.sin


def core(run: Run, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of [batch, heads, seq, channels]; fused, or as two products and a softmax.

    Under context parallelism a rank's tokens meet, on average, half of all keys: as many stand in for the keys that other
    ranks would send (all-to-all: fewer heads, all tokens).
    """
    from primus_lint.projection.compute import unfused

    cp, causal = run.parallel.cp, True
    heads, tokens = query.shape[1], query.shape[2]
    if cp > 1 and run.parallel.cp_comm_type.startswith("a2a"):
        parts = [x.reshape(x.shape[0], max(x.shape[1] // cp, 1), -1, x.shape[3]) for x in (query, key, value)]
        query, key, value = (x[:, :, : tokens * cp] for x in parts)
    elif cp > 1:
        causal = False
        key, value = (torch.cat([x] * (cp // 2), dim=2) for x in (key, value))
    if unfused(run):
        out = _unfused(run, query, key, value, causal)
    else:
        grouped = query.shape[1] != key.shape[1]
        out = F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)
    return out.reshape(out.shape[0], heads, tokens, out.shape[-1])


def _unfused(run: Run, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    weights = scores.softmax(-1)
    if run.model.attention_dropout > 0:
        weights = F.dropout(weights, run.model.attention_dropout)
    return weights @ value


class Attention(nn.Module):
    """Norm, projections, core and output projection of one rank (no residual)."""

    def __init__(self, run: Run, links: Links, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        model, tp = run.model, run.parallel.tp
        self.run, self.links = run, links
        self.heads = model.num_attention_heads // tp
        self.groups = max(model.num_query_groups // tp, 1)
        self.norm = norm(model, model.hidden_size, dtype)
        mla = model.mla
        if mla is None:
            width = turned = model.kv_channels
            gate = self.heads if model.attention_output_gate else 0
            bias = model.qkv_bias or model.linear_bias
            self.qkv = linear(model.hidden_size, (self.heads + gate + 2 * self.groups) * width, bias, dtype)
            self.proj = linear(self.heads * width, model.hidden_size, model.linear_bias, dtype)
            if model.qk_layernorm:
                self.query_norm, self.key_norm = norm(model, width, dtype), norm(model, width, dtype)
        else:
            inputs, turned = model.hidden_size, mla.qk_pos_emb_head_dim
            if mla.q_lora_rank is not None:
                self.q_down = linear(model.hidden_size, mla.q_lora_rank, False, dtype)
                self.q_norm = norm(model, mla.q_lora_rank, dtype)
                inputs = mla.q_lora_rank
            self.q_up = linear(inputs, self.heads * (mla.qk_head_dim + turned), False, dtype)
            self.kv_down = linear(model.hidden_size, mla.kv_lora_rank + turned, False, dtype)
            self.kv_norm = norm(model, mla.kv_lora_rank, dtype)
            self.kv_up = linear(mla.kv_lora_rank, self.heads * (mla.qk_head_dim + mla.v_head_dim), False, dtype)
            self.proj = linear(self.heads * mla.v_head_dim, model.hidden_size, False, dtype)
        self.rotary = None
        if model.position_embedding in ("rope", "mrope", "yarn"):
            self.rotary = Rotary(run.batch.seq_length // run.parallel.cp, turned, dtype, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, hidden] -> the same."""
        hidden = self.links.enter(self.norm(x))
        gate: torch.Tensor | None = None
        if self.run.model.mla is None:
            query, key, value, gate = self._split(hidden)
        else:
            query, key, value = self._latent(hidden)
        out = core(self.run, query, key, value).transpose(1, 2).flatten(2)
        if gate is not None:
            out = out * torch.sigmoid(gate)
        return self.links.leave(self.proj(out))

    def _split(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        width, heads, groups = self.run.model.kv_channels, self.heads, self.groups
        mixed = self.qkv(hidden)
        sizes = [heads * width, groups * width, groups * width]
        sizes.append(mixed.shape[-1] - sum(sizes))
        query, key, value, gate = mixed.split(sizes, dim=-1)
        query, key, value = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in (query, key, value))
        if self.run.model.qk_layernorm:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        return query, key, value, (gate if sizes[3] else None)

    def _latent(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mla = self.run.model.mla
        assert mla is not None
        down = hidden if mla.q_lora_rank is None else self.q_norm(self.q_down(hidden))
        query = self.q_up(down).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        compressed, shared = self.kv_down(hidden).split([mla.kv_lora_rank, mla.qk_pos_emb_head_dim], dim=-1)
        both = self.kv_up(self.kv_norm(compressed)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = both.split([mla.qk_head_dim, mla.v_head_dim], dim=-1)
        plain, position = query.split([mla.qk_head_dim, mla.qk_pos_emb_head_dim], dim=-1)
        shared = shared.unsqueeze(1)
        if self.rotary is not None:
            position, shared = self.rotary(position), self.rotary(shared)
        key = torch.cat((key, shared.expand(-1, self.heads, -1, -1)), dim=-1)
        return torch.cat((plain, position), dim=-1), key, value


def activation(model: Model, x: torch.Tensor) -> torch.Tensor:
    """Between the two products of an MLP; a gated one halves the width."""
    if model.gated:
        gate, up = x.chunk(2, dim=-1)
        return _function(model, gate) * up
    return _function(model, x)


def _function(model: Model, x: torch.Tensor) -> torch.Tensor:
    if model.activation in ("silu", "swiglu"):
        return F.silu(x)
    if model.activation in ("relu", "squared_relu"):
        positive = F.relu(x)
        return positive * positive if model.activation == "squared_relu" else positive
    return F.gelu(x)


class Mlp(nn.Module):
    """The two products of one rank, without norm: [.., hidden] -> [.., hidden]."""

    def __init__(self, run: Run, ffn_hidden_size: int, links: Links, dtype: torch.dtype) -> None:
        super().__init__()
        model, width = run.model, ffn_hidden_size // run.parallel.tp
        self.model, self.links = model, links
        self.fc1 = linear(model.hidden_size, width * (2 if model.gated else 1), model.linear_bias, dtype)
        self.fc2 = linear(width, model.hidden_size, model.linear_bias, dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.links.leave(self.fc2(activation(self.model, self.fc1(self.links.enter(hidden)))))


class Layer(nn.Module):
    """One decoder layer, dense or mixture of experts, with residuals and dropout."""

    def __init__(self, run: Run, moe: bool, links: Links, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        model = run.model
        self.dropout = model.hidden_dropout
        self.attention = Attention(run, links, dtype, device)
        self.norm = norm(model, model.hidden_size, dtype)
        self.mlp: nn.Module
        if moe:
            from primus_lint.measure.experts import Experts

            self.mlp = Experts(run, links, dtype)
        else:
            self.mlp = Mlp(run, model.ffn_hidden_size, links, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._dropped(self.attention(x))
        return x + self._dropped(self.mlp(self.norm(x)))

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout) if self.dropout > 0 else x
