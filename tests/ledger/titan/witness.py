"""Run two steps of the real torchtitan v0.2.2 on a CPU with fake ranks, and say what is allocated when.

`python witness.py ../shared/oracle`: a line of standard input is a recipe (tests/ledger/titan/recipes.py), a line of the
answer holds the bytes of one of its ranks. Every storage is followed from its creation to its end (live.py of the
oracle). Stand-ins, where a CPU has no kernel: attention keeps what flash attention keeps (queries, keys, values, output,
fp32 log-sum-exp), the permutation of tokens is torchtitan's own reference implementation, and ranks exchange the token
counts of balanced routing. Two checks that PyTorch 2.13 added are taken out: tied embeddings in two FSDP groups, and
operations in the backward pass of selective recomputation that the forward pass did not have (gathers of FSDP).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

os.environ.update(LOCAL_RANK="0", RANK="0")
warnings.filterwarnings("ignore")
sys.path += [sys.argv[1], str(Path(__file__).resolve().parents[2] / "lower" / "torchtitan")]


def prepare() -> None:
    from without_triton import import_torchtitan

    import_torchtitan()
    import torch

    torch.set_num_threads(1)
    histc = torch.histc
    torch.histc = lambda values, **more: histc(values.float(), **more).to(values.dtype)
    import torchtitan.distributed.expert_parallel as expert_parallel
    import torchtitan.models.attention as attention
    import torchtitan.models.moe.kernels as kernels
    import torchtitan.tools.utils as utils
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
    from torch.testing._internal.distributed import fake_pg
    from torchtitan.components.quantization import float8
    from torchtitan.models.deepseek_v3.model import args as deepseek
    from torchtitan.models.llama4.model import args as llama4
    from torchtitan.models.qwen3.model import args as qwen3

    assert fake_pg
    # Tied embeddings in two groups: PyTorch from 2.13 on refuses them, older ones run them as if they were not tied.
    FSDPState._validate_no_duplicate_params = lambda _: None
    logging.disable(logging.CRITICAL)
    # Gathers of FSDP inside a block are other operations in the backward pass: PyTorch before 2.13 lets them.
    import torch.utils.checkpoint as checkpoint

    mode = checkpoint._CachedTorchDispatchMode
    strict = mode.__torch_dispatch__

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        key = checkpoint._sac_storage_key(func, args)
        if func not in checkpoint.SAC_IGNORED_OPS and self.func_counter[key] not in (self.storage.get(key) or ()):
            self.func_counter[key] += 1
            return func(*args, **(kwargs or {}))
        return strict(self, func, types, args, kwargs)

    mode.__torch_dispatch__ = dispatch
    for module in (utils, float8, deepseek, llama4, qwen3):
        module.has_cuda_capability = lambda *_: True
    exchange = expert_parallel.all_to_all_single

    def balanced(counts: Any, *more: Any, **named: Any) -> Any:
        exchange(counts, *more, **named)
        return counts.clone()

    expert_parallel.all_to_all_single = balanced
    kernels.fill_indices_wrapper = lambda *args: kernels.fill_indices_cpu(*args)
    attention.ScaledDotProductAttentionWrapper.forward = (
        lambda _, q, k, v, *, scale=None, enable_gqa=False, is_causal=True: flash(q, k, v)[0]
    )

    schema = "(Tensor q, Tensor k, Tensor v) -> (Tensor, Tensor)"

    @torch.library.custom_op("witness::flash", mutates_args=(), schema=schema)
    def flash(q: Any, k: Any, v: Any) -> Any:
        batch, heads, tokens, _ = q.shape
        out = v.new_zeros(batch, tokens, heads, v.shape[-1]).transpose(1, 2)
        return out, q.new_zeros(batch, heads, tokens, dtype=torch.float32)

    flash.register_fake(
        lambda q, k, v: (
            v.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2),
            q.new_empty(q.shape[:3], dtype=torch.float32),
        )
    )
    schema = "(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse) -> (Tensor, Tensor, Tensor)"

    @torch.library.custom_op("witness::flash_backward", mutates_args=(), schema=schema)
    def flash_backward(grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any) -> Any:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

    flash_backward.register_fake(
        lambda grad, q, k, v, out, lse: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v))
    )

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, *output)

    flash.register_autograd(lambda ctx, grad, _: flash_backward(grad, *ctx.saved_tensors), setup_context=keep)


def configure(case: dict[str, Any]) -> Any:
    from torchtitan.config import JobConfig

    c = JobConfig()
    c.model.name, c.model.flavor = case["model"], "debugmodel"
    c.training.seq_len, c.training.local_batch_size = case["seq"], case["mbs"]
    c.parallelism.fsdp_reshard_after_forward = case.get("reshard", "default")
    parallel = case["parallel"]
    c.parallelism.tensor_parallel_degree = parallel.get("tp", 1)
    c.parallelism.expert_parallel_degree = parallel.get("ep", 1)
    c.parallelism.expert_tensor_parallel_degree = parallel.get("etp", 1)
    mode = str(case["ac"])
    c.activation_checkpoint.mode = mode if mode in ("none", "full") else "selective"
    if mode not in ("none", "full"):
        c.activation_checkpoint.selective_ac_option = mode
    c.activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns = case.get("force", ["moe.router.gate"])
    c.debug.moe_force_load_balance = case.get("balanced", True)
    if case.get("float8"):
        c.model.converters = ["quantize.linear.float8"]
        for key, value in case["float8"].items():
            setattr(c.quantize.linear.float8, key, value)
    return c


def build(case: dict[str, Any]) -> dict[str, Any]:
    import torch
    from live import LiveBytes
    from torch import distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed import utils as du
    from torchtitan.protocols.model_converter import build_model_converters
    from torchtitan.protocols.train_spec import get_train_spec

    p = case["parallel"]
    degrees = {
        "dp_replicate": p.get("replicate", 1), "dp_shard": p.get("shard", 1), "cp": 1, "tp": p.get("tp", 1), "pp": 1,
        "ep": p.get("ep", 1), "etp": p.get("etp", 1),
    }  # fmt: skip
    world = degrees["dp_replicate"] * degrees["dp_shard"] * degrees["tp"]
    dist.init_process_group("fake", rank=case.get("rank", 0), world_size=world, store=FakeStore())
    c = configure(case)
    dims = ParallelDims(**degrees, world_size=world)
    dims.build_mesh()
    spec = get_train_spec(case["model"])
    arguments = spec.model_args[case.get("flavor", "debugmodel")]
    for key, value in case["args"].items():
        *path, name = key.split(".")
        target = arguments
        for part in path:
            target = getattr(target, part)
        setattr(target, name, value)
    arguments.update_from_config(c)
    LiveBytes.ignore_dtensor_shape_propagation()
    with torch.device("meta"):
        model = spec.model_cls(arguments)
    if case.get("float8"):
        build_model_converters(c, dims).convert(model)
    spec.parallelize_fn(model, dims, c)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights(buffer_device=torch.device("cpu"))
    model.train()
    optimizers = spec.build_optimizers_fn([model], c.optimizer, dims)

    def local(tensor: Any) -> Any:
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        return getattr(tensor, "_tensor", tensor)

    tokens, labels = (torch.zeros(case["mbs"], case["seq"], dtype=torch.int64) for _ in range(2))
    loss_fn = spec.build_loss_fn(c)
    context = du.get_train_context(dims.tp_enabled)
    live = LiveBytes(device="cpu")
    track = live._track

    def real(tensor: Any, operation: Any) -> None:
        """A wrapper of float8 has no memory of its own."""
        if type(tensor) in (torch.Tensor, torch.nn.Parameter):
            track(tensor, operation)

    live._track = real
    for tensor in [*model.parameters(), *model.buffers(), tokens, labels]:
        live._track(local(tensor), "init")
    marks: dict[str, Any] = {}
    gc.collect()
    with live:
        for _ in range(2):
            live.peak = live.cur
            with context():
                logits = model(tokens)
                marks["after forward"] = live.cur
                loss = loss_fn(logits, labels)
                del logits
                loss.backward()
                del loss
            marks["peak"] = live.peak
            du.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True, ep_enabled=dims.ep_enabled)
            optimizers.step()
            optimizers.zero_grad()
            marks["steady"] = live.cur
    state = {
        id(v): local(v)
        for o in optimizers.optimizers
        for s in o.state.values()
        for v in s.values()
        if torch.is_tensor(v)
    }
    unique = {id(q): q for q in model.parameters()}
    return {
        **marks,
        "weights": sum(local(q).untyped_storage().nbytes() for q in unique.values()),
        "moments": sum(t.untyped_storage().nbytes() for t in state.values()),
    }


def stopped(error: BaseException) -> dict[str, Any]:
    trace = "".join(traceback.format_exception(error))
    return {"error": f"{type(error).__name__}: {error}"[:600], "trace": trace[-2500:]}


if __name__ == "__main__":
    from children import answer_each

    prepare()
    answer_each(build, stopped, {"error": "died"})
