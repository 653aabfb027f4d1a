"""Times of single kernels: products, attention, memory traffic, optimizer. Imports torch.

Operands are taken in turn from several copies, together larger than the last cache, because in training they come from
memory (hipblaslt-bench calls that a rotating buffer).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from primus_lint.measure import timing
from primus_lint.measure.modules import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.measure.device import Here
    from primus_lint.measure.timing import Timed
    from primus_lint.projection.compute import AttentionShape
    from primus_lint.projection.shapes import Gemm

MOST_COPIES = 64


def copies(here: Here, bytes_: int) -> int:
    """How many operands of that size pass the cache twice over."""
    return int(min(max(2 * here.cache_bytes // max(bytes_, 1) + 1, 2), MOST_COPIES))


def turns(here: Here, make: Callable[[], Any], bytes_: int) -> Callable[[], Any]:
    """A function that returns one of several equal operands, the next at every call."""
    made = itertools.cycle([make() for _ in range(copies(here, bytes_))])
    return lambda: next(made)


def product(here: Here, dtype: str, layout: str, m: int, n: int, k: int, budget_s: float, groups: int = 0) -> Timed:
    """Seconds of [m,k] x [k,n]; with `groups` that many of them (one call each; their operands lie together).

    Layouts as a linear layer uses them: "TN" x W^T with W [n,k]; "NN" dy W with W [k,n]; "NT" dy^T x, dy [k,m], x [k,n].
    """
    kind, size = DTYPES[dtype], DTYPES[dtype].itemsize
    many = (groups,) if groups else ()

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        left = torch.randn(*many, *((k, m) if layout == "NT" else (m, k)), device=here.device, dtype=kind)
        right = torch.randn(*many, *((n, k) if layout == "TN" else (k, n)), device=here.device, dtype=kind)
        left = left.transpose(-1, -2) if layout == "NT" else left
        return left, right.transpose(-1, -2) if layout == "TN" else right

    operands = turns(here, make, size * max(groups, 1) * (m * k + k * n))
    out = torch.empty(*many, m, n, device=here.device, dtype=kind)
    if not groups:
        return timing.once(here, lambda: torch.mm(*operands(), out=out), budget_s)

    def each() -> None:
        left, right = operands()
        for index in range(groups):
            torch.mm(left[index], right[index], out=out[index])

    return timing.once(here, each, budget_s)


def batched(here: Here, dtype: str, layout: str, groups: int, m: int, n: int, k: int, budget_s: float) -> Timed:
    """The same `groups` products in one call."""
    kind = DTYPES[dtype]
    left = torch.randn(groups, *((k, m) if layout == "NT" else (m, k)), device=here.device, dtype=kind)
    right = torch.randn(groups, *((n, k) if layout == "TN" else (k, n)), device=here.device, dtype=kind)
    left = left.transpose(1, 2) if layout == "NT" else left
    right = right.transpose(1, 2) if layout == "TN" else right
    return timing.once(here, lambda: torch.bmm(left, right), budget_s)


def passes(gemm: Gemm) -> dict[str, tuple[int, int, int]]:
    """Layout -> (m, n, k) as multiplied, of the forward, input gradient and weight gradient of a product."""
    m, n, k = round(gemm.m), round(gemm.n), round(gemm.k)
    return {"TN": (m, n, k), "NN": (m, k, n), "NT": (n, k, m)}


def attention(here: Here, dtype: str, shape: AttentionShape, budget_s: float) -> tuple[Timed, Timed]:
    """Seconds forward and backward of the fused causal core on `shape` (the whole problem)."""
    kind = DTYPES[dtype]

    def operand(heads: int, width: int) -> torch.Tensor:
        return torch.randn(
            shape.batch, heads, shape.seq_length, width, device=here.device, dtype=kind, requires_grad=True
        )

    query, key = operand(shape.heads, shape.key_dim), operand(shape.kv_heads, shape.key_dim)
    value = operand(shape.kv_heads, shape.value_dim)
    grad = torch.randn(shape.batch, shape.heads, shape.seq_length, shape.value_dim, device=here.device, dtype=kind)
    kept: list[torch.Tensor] = []
    grouped = shape.heads != shape.kv_heads

    def forward() -> None:
        kept[:] = [F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)]

    def backward() -> None:
        torch.autograd.grad(kept[0], (query, key, value), grad)

    there, back = timing.phases(here, [forward, backward], budget_s)
    return there, back


def memory(here: Here, bytes_: int, budget_s: float) -> Timed:
    """Seconds of a sum of two tensors into a third, `bytes_` read and written in all."""
    elements = max(bytes_ // 12, 1)
    operands = turns(here, lambda: [torch.randn(elements, device=here.device) for _ in range(3)], bytes_)

    def add() -> None:
        left, right, out = operands()
        torch.add(left, right, out=out)

    return timing.once(here, add, budget_s)


def optimizer(here: Here, name: str, dtype: str, sizes: list[int], budget_s: float) -> Timed:
    """Seconds of an optimizer step on weights of those sizes, kept in fp32 (with a copy in `dtype` for the model)."""
    main = [torch.nn.Parameter(torch.randn(size, device=here.device)) for size in sizes]
    for parameter in main:
        parameter.grad = torch.ones_like(parameter)
    model = [] if dtype == "fp32" else [parameter.detach().to(DTYPES[dtype]) for parameter in main]
    return timing.once(here, stepper(name, main, model), budget_s)


def stepper(
    name: str, main: list[torch.nn.Parameter], model: list[torch.Tensor], most_norm: float = 1.0
) -> Callable[[], None]:
    """The optimizer step as a function: gradient norm, clipping, update, copy to the `model`, gradients zeroed in place."""
    made: torch.optim.Optimizer
    if name == "sgd":
        made = torch.optim.SGD(main, lr=1e-4, momentum=0.9, foreach=True)
    else:
        made = torch.optim.AdamW(main, lr=1e-4, weight_decay=0.1, fused=True)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(main, most_norm, foreach=True)
        made.step()
        if model:
            torch._foreach_copy_(model, [parameter.detach() for parameter in main])
        made.zero_grad(set_to_none=False)

    return step
