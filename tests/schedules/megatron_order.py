"""Run the real Megatron-Core schedule functions on tiny CPU tensors and record what every rank runs, in order.

As a program: a JSON list of questions on stdin, one JSON answer a line on stdout, in the same order. A question is
{"pp", "rank", "microbatches", "vpp" (null: not interleaved), "group" (null: pp), "overlap_p2p", "forward_only"}; the
answer is {"order": [[kind, microbatch, chunk], ...], "warmup": N, "warmup_overlap": N} or {"refused": type}.
`warmup` is what Megatron's own `get_pp_rank_microbatches` counts, without and with `overlap_moe_expert_parallel_comm`.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any


def prepare() -> None:
    """Let the CUDA calls of the schedules fall on the CPU, and Megatron believe that there is no TransformerEngine."""
    warnings.filterwarnings("ignore")
    import torch

    class Nothing:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    sys.modules["transformer_engine"] = None  # type: ignore[assignment]
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda *args, **kwargs: None
    torch.cuda.Stream = torch.cuda.Event = lambda *args, **kwargs: Nothing()  # type: ignore[misc,assignment]
    torch.cuda.current_stream = lambda *args: Nothing()  # type: ignore[assignment,return-value]
    for name in ("zeros", "empty", "tensor", "ones"):
        real = getattr(torch, name)

        def on_cpu(*args: Any, _real: Any = real, device: Any = None, **kwargs: Any) -> Any:
            return _real(*args, **kwargs)

        setattr(torch, name, on_cpu)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The events of one rank as the real schedule function runs them."""
    import torch
    from megatron.core import parallel_state
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=question["rank"], world_size=question["pp"], store=FakeStore())
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=question["pp"],
        virtual_pipeline_model_parallel_size=question["vpp"],
        create_gloo_process_groups=False,
    )
    try:
        with torch.enable_grad():
            return _run(question)
    except (ValueError, RuntimeError, AssertionError) as error:
        return {"refused": type(error).__name__}
    finally:
        parallel_state.destroy_model_parallel()
        distributed.destroy_process_group()


def _run(question: dict[str, Any]) -> dict[str, Any]:
    import torch
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.transformer.transformer_config import TransformerConfig

    pp, vpp, microbatches = question["pp"], question["vpp"], question["microbatches"]
    config = TransformerConfig(
        num_layers=pp * (vpp or 1),
        hidden_size=8,
        num_attention_heads=1,
        pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=vpp,
        pipeline_dtype=torch.float32,
        microbatch_group_size_per_vp_stage=question["group"],
        overlap_p2p_comm=question["overlap_p2p"],
        batch_p2p_comm=not question["overlap_p2p"],
        deallocate_pipeline_outputs=True,
    )
    order: list[tuple[str, int, int]] = []
    seen = [0] * (vpp or 1)  # forwards of every chunk so far: its micro-batches come in order

    class Record(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, chunk: int) -> Any:
            ctx.place = (seen[chunk], chunk)
            seen[chunk] += 1
            order.append(("F", *ctx.place))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            order.append(("B", *ctx.place))
            return grad, None

    class Chunk(torch.nn.Module):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.config = config
            self.index = index
            self.vp_stage = None if vpp is None else index
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.share_embeddings_and_output_weights = False
            self.model_type = ModelType.encoder_or_decoder
            self.input: Any = None

        def set_input_tensor(self, tensor: Any) -> None:
            self.input = tensor[0] if isinstance(tensor, list) else tensor

        def forward(self) -> Any:
            x = torch.zeros(4, 1, 8, requires_grad=True) if self.input is None else self.input
            return Record.apply(x * self.weight, self.index)

    chunks: Any = [Chunk(index) for index in range(vpp or 1)]
    data: Any = [iter([])] * (vpp or 1)
    if vpp is None:
        chunks, data = chunks[0], data[0]

    def step(iterator: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        return model(), lambda output: (output.sum(), {"loss": 0})

    schedules.get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=data,
        model=chunks,
        num_microbatches=microbatches,
        seq_length=4,
        micro_batch_size=1,
        forward_only=question["forward_only"],
    )
    count = [
        schedules.get_pp_rank_microbatches(
            microbatches, vpp or 1, question["group"] or pp, question["forward_only"], overlap_moe
        )[2]
        for overlap_moe in (False, True)
    ]
    return {"order": order, "warmup": count[0], "warmup_overlap": count[1]}


def main() -> None:
    prepare()
    for question in json.load(sys.stdin):
        print(json.dumps(answer(question)), flush=True)


if __name__ == "__main__":
    main()
