"""Training for real on CPU: one process, or two with data, tensor or pipeline parallelism over gloo.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python -m tests.measure.training dp 6

prints one JSON object from rank 0: seconds and loss of every step. Gradients lie in one buffer that is all-reduced after
the last micro-batch, as Megatron-Core does without overlap; the pipeline is 1F1B. All ways start from the same weights and
see the same tokens, so that their losses must agree: that is how we know that the training is the one asked for.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from primus_lint.ir.run import Run
from primus_lint.measure.ends import Embedding, Head
from primus_lint.measure.kernels import stepper
from primus_lint.measure.links import Links
from primus_lint.measure.modules import Layer

from .recipe import live_run

DTYPE, DEVICE = torch.float32, torch.device("cpu")


def whole(run: Run) -> torch.nn.ModuleList:
    """Embedding, layers and head on one rank, from a fixed seed."""
    torch.manual_seed(1234)
    links = Links(run, DTYPE, DEVICE)
    layers = [Layer(run, False, links, DTYPE, DEVICE) for _ in range(run.model.num_layers)]
    return torch.nn.ModuleList([Embedding(run, links, DTYPE), *layers, Head(run, links, DTYPE)])


def share(run: Run, full: torch.nn.ModuleList, rank: int) -> torch.nn.ModuleList:
    """The tensor-parallel share of a rank, cut out of the whole model."""
    tp, model = run.parallel.tp, run.model
    links = Links(run, DTYPE, DEVICE, dist.group.WORLD)
    layers = [Layer(run, False, links, DTYPE, DEVICE) for _ in range(model.num_layers)]
    own = torch.nn.ModuleList([Embedding(run, links, DTYPE, rank), *layers, Head(run, links, DTYPE, rank)])
    values = dict(full.named_parameters())
    width = model.kv_channels
    heads, groups = model.num_attention_heads * width, model.num_query_groups * width
    for name, parameter in own.named_parameters():
        value = values[name].detach()
        if name.endswith("qkv.weight"):
            parts = value.split([heads, groups, groups])
            value = torch.cat([part.chunk(tp)[rank] for part in parts])
        elif name.endswith("fc1.weight"):
            value = torch.cat([part.chunk(tp)[rank] for part in value.chunk(2)])
        elif name.endswith(("proj.weight", "fc2.weight")):
            value = value.chunk(tp, dim=1)[rank]
        elif name.endswith(("table.weight", "logits.weight")):
            value = value.chunk(tp)[rank]
        parameter.data.copy_(value)
    return own


def buffered(modules: list[torch.nn.Module]) -> tuple[list[torch.nn.Parameter], torch.Tensor]:
    """Parameters whose gradients are views of one buffer, and the buffer."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    buffer = torch.zeros(sum(parameter.numel() for parameter in parameters))
    start = 0
    for parameter in parameters:
        parameter.grad = buffer[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return parameters, buffer


class Trainer:
    """One rank. `step(batches)` trains on this rank's micro-batches and returns the mean loss (of the last stage)."""

    def __init__(self, way: str) -> None:
        self.way, self.run = way, live_run(way, None)
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        full = whole(live_run("one", None))
        if way == "tp":
            self.modules = list(share(self.run, full, self.rank))
        elif way == "pp":
            half = 1 + self.run.model.num_layers // 2
            self.modules = list(full)[:half] if self.rank == 0 else list(full)[half:]
        else:
            self.modules = list(full)
        self.parameters, self.buffer = buffered(self.modules)
        self.update = stepper("adam", self.parameters, [], most_norm=1e9)
        shape = (self.run.batch.micro_batch_size, self.run.batch.seq_length, self.run.model.hidden_size)
        self.shape = shape

    def step(self, batches: list[torch.Tensor]) -> float:
        if self.way == "pp":
            loss = self._pipeline(batches)
        else:
            loss = sum(self._one(batch, len(batches)) for batch in batches)
        if self.way == "dp":
            dist.all_reduce(self.buffer)
            self.buffer.div_(dist.get_world_size())
        self.update()
        return loss

    def _one(self, batch: torch.Tensor, count: int) -> float:
        x: Any = batch[:, :-1]
        for module in self.modules[:-1]:
            x = module(x)
        loss = self.modules[-1](x, batch[:, 1:]) / count
        loss.backward()
        return float(loss.detach())

    def _pipeline(self, batches: list[torch.Tensor]) -> float:
        """1F1B on two stages. What goes out and what comes in are posted together, as Megatron-Core does."""
        if self.rank == 0:
            self._first_stage(batches)
            return 0.0
        return self._last_stage(batches)

    def _first_stage(self, batches: list[torch.Tensor]) -> None:
        waiting: list[torch.Tensor] = []
        for number, batch in enumerate(batches):
            x: Any = batch[:, :-1]
            for module in self.modules:
                x = module(x)
            waiting.append(x)
            sent = dist.isend(x.detach(), 1)
            if number > 0:
                grad = torch.empty(self.shape)
                dist.recv(grad, 1)
                waiting.pop(0).backward(grad)
            sent.wait()
        grad = torch.empty(self.shape)
        dist.recv(grad, 1)
        waiting.pop(0).backward(grad)

    def _last_stage(self, batches: list[torch.Tensor]) -> float:
        total = 0.0
        x = torch.empty(self.shape)
        dist.recv(x, 0)
        for number, batch in enumerate(batches):
            first = x.requires_grad_()
            for module in self.modules[:-1]:
                x = module(x)
            loss = self.modules[-1](x, batch[:, 1:]) / len(batches)
            loss.backward()
            assert first.grad is not None
            sent = dist.isend(first.grad, 0)
            total += float(loss.detach())
            if number + 1 < len(batches):
                x = torch.empty(self.shape)
                dist.recv(x, 0)
            sent.wait()
        return total


def batches_of(run: Run, way: str, rank: int, step: int) -> list[torch.Tensor]:
    """The micro-batches of a rank: the same global batch in every way."""
    generator = torch.Generator().manual_seed(step)
    count = run.batch.global_batch_size // run.batch.micro_batch_size
    size = (run.batch.micro_batch_size, run.batch.seq_length + 1)
    every = [torch.randint(run.model.vocab_size, size, generator=generator) for _ in range(count)]
    return every[rank::2] if way == "dp" else every


def main(way: str, steps: int) -> None:
    torch.set_num_threads(1)
    if way != "one":
        dist.init_process_group("gloo")
    trainer = Trainer(way)
    seconds, losses = [], []
    for step in range(steps):
        batches = batches_of(trainer.run, way, trainer.rank, step)
        if way != "one":
            dist.barrier()
        start = time.perf_counter()
        loss = torch.tensor([trainer.step(batches)])
        if way != "one":
            dist.barrier()
        seconds.append(time.perf_counter() - start)
        if way in ("dp", "pp"):
            dist.all_reduce(loss)
        losses.append(float(loss) / (2 if way == "dp" else 1))
    if trainer.rank == 0:
        print(json.dumps({"way": way, "seconds": seconds, "losses": losses}))
    if way != "one":
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
