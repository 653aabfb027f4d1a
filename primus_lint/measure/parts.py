"""Times of whole layers and ends: forward, backward, and backward with frozen weights. Imports torch.

Several copies of a part run one after the other, forward through all and then backward through all, as a pipeline stage
does; the time of one is an equal share. Weights, gradients and kept activations then pass through the caches as they do in
training. Gradients are made and dropped: adding them to those of earlier micro-batches is a cost of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from primus_lint.measure import timing
from primus_lint.measure.ends import Embedding, Head, rows
from primus_lint.measure.links import Links
from primus_lint.measure.modules import DTYPES, Layer
from primus_lint.measure.plan import layer_bytes

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.measure.device import Here
    from primus_lint.measure.timing import Timed

MOST_LAYERS = 4


def part(here: Here, run: Run, kind: str, budget_s: float) -> dict[str, Timed]:
    """Seconds of one part by pass: "forward", "backward", "dgrad" (the backward with frozen weights; not of an
    embedding, which has no input gradient)."""
    dtype = DTYPES[run.precision.params_dtype]
    links = Links(run, dtype, here.device)
    if kind == "embedding":
        return _embedding(here, run, links, dtype, budget_s)
    if kind == "head":
        modules: list[torch.nn.Module] = [Head(run, links, dtype).to(here.device)]
    else:
        count = _count(here, run)
        modules = [Layer(run, kind == "moe_layer", links, dtype, here.device).to(here.device) for _ in range(count)]
    found = {}
    for frozen in (False, True):
        for module in modules:
            module.requires_grad_(not frozen)
        forward, backward = _there_and_back(here, run, kind, links, dtype, modules, budget_s)
        if frozen:
            found["dgrad"] = backward.over(len(modules))
        else:
            found["forward"], found["backward"] = forward.over(len(modules)), backward.over(len(modules))
    return found


def _count(here: Here, run: Run) -> int:
    """Copies of a layer: as many as a stage may hold and the device has room for."""
    room = int(0.5 * here.memory_bytes // max(layer_bytes(run), 1))
    return max(min(run.model.num_layers, MOST_LAYERS, room), 1)


def hidden(here: Here, run: Run, links: Links, dtype: torch.dtype) -> torch.Tensor:
    """A hidden state of one rank and micro-batch."""
    shape = (run.batch.micro_batch_size, links.length, run.model.hidden_size)
    return torch.randn(shape, device=here.device, dtype=dtype)


def _there_and_back(
    here: Here, run: Run, kind: str, links: Links, dtype: torch.dtype, modules: list[torch.nn.Module], budget_s: float
) -> tuple[Timed, Timed]:
    first = hidden(here, run, links, dtype).requires_grad_()
    grad = torch.randn_like(first)
    tokens = run.batch.seq_length // run.parallel.cp
    target = (
        torch.randint(rows(run), (run.batch.micro_batch_size, tokens), device=here.device) if kind == "head" else None
    )
    kept: list[Any] = []

    def forward() -> None:
        out = first
        for module in modules:
            out = module(out) if target is None else module(out, target)
        kept[:] = [out]

    def backward() -> None:
        first.grad = None  # in a pipeline it is sent away
        kept.pop().backward(grad if target is None else None)
        for module in modules:
            module.zero_grad(set_to_none=True)

    there, back = timing.phases(here, [forward, backward], budget_s)
    return there, back


def _embedding(here: Here, run: Run, links: Links, dtype: torch.dtype, budget_s: float) -> dict[str, Timed]:
    module = Embedding(run, links, dtype).to(here.device)
    tokens = run.batch.seq_length // run.parallel.cp
    numbers = torch.randint(module.rows, (run.batch.micro_batch_size, tokens), device=here.device)
    kept: list[torch.Tensor] = []
    grad = torch.randn_like(module(numbers))

    def forward() -> None:
        kept[:] = [module(numbers)]

    def backward() -> None:
        kept.pop().backward(grad)
        module.zero_grad(set_to_none=True)

    there, back = timing.phases(here, [forward, backward], budget_s)
    return {"forward": there, "backward": back}
