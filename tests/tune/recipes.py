"""Random recipes for the tuner's tests, and all recipes of a space one by one."""

from __future__ import annotations

import itertools
import random
from typing import Any

from primus_lint.evaluate import subject_of
from primus_lint.subject import Subject
from primus_lint.tune.keys import ETP, NUMBER, SP, TP
from primus_lint.tune.space import Space

DENSE = ("llama3.2-1b", "llama3.1-8b", "qwen2.5-7b", "qwen3-14b", "llama2-13b")
EXPERTS = ("mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "olmoe-1b-7b")
GPUS = ("mi300x", "mi355x", "h100", "b200")


def subject(model: str, gpu: str = "h100", world_size: int = 8, framework: str = "megatron", **args: Any) -> Subject:
    """A recipe of a public model on a target."""
    given: dict[str, Any] = {
        "bf16": True, "seq_length": 4096, "max_position_embeddings": 4096, "micro_batch_size": 1, "train_iters": 10,
        "global_batch_size": 64, "use_distributed_optimizer": True, "lr": 1e-4, "position_embedding_type": "rope", **args,
    }  # fmt: skip
    request = {
        "framework": framework, "model": model, "args": given,
        "env": None if framework == "primus-megatron" else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        "target": {"gpu": gpu, "world_size": world_size, "gpus_per_node": 8},
    }  # fmt: skip
    return subject_of(request)


def drawn(rng: random.Random) -> Subject:
    """A random recipe of few layers, so that scores are quick, often near the limit of memory."""
    experts = rng.random() < 0.5
    model = rng.choice(EXPERTS if experts else DENSE)
    gpu = rng.choice(GPUS)
    args: dict[str, Any] = {
        "num_layers": rng.choice((4, 6, 7, 8, 12)),
        "tensor_model_parallel_size": rng.choice((1, 1, 2, 4)),
        "pipeline_model_parallel_size": rng.choice((1, 1, 2, 4)),
        "context_parallel_size": rng.choice((1, 1, 1, 2)),
        "micro_batch_size": rng.choice((1, 2, 4)),
        "global_batch_size": rng.choice((32, 48, 64, 128)),
        "seq_length": rng.choice((4096, 8192, 16384)),
        "sequence_parallel": rng.random() < 0.5,
        "use_distributed_optimizer": rng.random() < 0.7,
        "overlap_grad_reduce": rng.random() < 0.5,
        "untie_embeddings_and_output_weights": rng.random() < 0.5,
        "cross_entropy_loss_fusion": rng.random() < 0.5,
        "recompute_granularity": rng.choice((None, None, "full", "selective")),
    }
    args["max_position_embeddings"] = args["seq_length"]
    if args["use_distributed_optimizer"] and args["overlap_grad_reduce"]:
        args["overlap_param_gather"] = rng.random() < 0.5
    if args["recompute_granularity"] == "full":
        args |= {"recompute_method": rng.choice(("uniform", "block")), "recompute_num_layers": 1}
    if args["recompute_granularity"] == "selective":
        args["recompute_modules"] = [rng.choice(("mlp", "layernorm"))]
    if experts:
        args |= {
            "expert_model_parallel_size": rng.choice((1, 2, 4)),
            "moe_token_dispatcher_type": rng.choice(("alltoall", "allgather")),
            "moe_grouped_gemm": rng.random() < 0.7,
            "moe_aux_loss_coeff": rng.choice((0.0, 0.01)),
            "moe_router_load_balancing_type": "aux_loss",
            "moe_layer_freq": 1,
        }
    framework = "primus-megatron" if gpu.startswith("mi") and rng.random() < 0.5 else "megatron"
    if rng.random() < 0.15 and model != "deepseek-v2-lite":  # adapters beside latent attention have no account
        args |= {"lora.enabled": True, "lora.dim": 16, "lora.target_modules": ["linear_qkv", "linear_fc1"]}
    return subject(model, gpu, rng.choice((8, 16)), framework, **args)


def every_recipe(space: Space, at_most: int | None = None) -> list[dict[str, Any]]:
    """The changed keys of every recipe of a space, each once, by plain enumeration; one more than `at_most` when there
    are more."""
    seen: dict[str, dict[str, Any]] = {}
    for base in space.bases():
        for form, axis in space.forms(base):
            axes = (*base.axes, axis) if axis is not None else base.axes
            for rows in itertools.product(*(axis.rows for axis in axes)):
                wanted = {**base.keys, **form}
                for axis_, row in zip(axes, rows, strict=True):
                    wanted.update(zip(axis_.keys, row, strict=True))
                if wanted[TP] == 1:
                    wanted.pop(SP, None)
                if ETP in wanted and wanted[ETP] == wanted[TP] and (None,) in _rows(axes, ETP):
                    wanted[ETP] = None  # the same as unset
                changes = {key: value for key, value in wanted.items() if space.given.get(key) != value}
                seen.setdefault(repr(sorted(changes.items())), changes)
                if at_most is not None and len(seen) > at_most:
                    return list(seen.values())
    return list(seen.values())


def _rows(axes: Any, key: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = next(axis.rows for axis in axes if key in axis.keys)
    return found


def small_limits(rng: random.Random, subject: Subject) -> dict[str, tuple[Any, ...]]:
    """Limits that leave a space of some dozens to hundreds of recipes: a few values on each axis."""
    given = subject.lowered.namespace.given

    def some(key: str, values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
        chosen = [given.get(key)]
        chosen += [value for value in rng.sample(values, count) if value not in chosen]
        return tuple(chosen)

    limits = {
        TP: some(TP, (1, 2, 4, 8), 1),
        "pipeline_model_parallel_size": some("pipeline_model_parallel_size", (1, 2, 4, 8), 1),
        "context_parallel_size": some("context_parallel_size", (1, 2, 4), rng.choice((0, 1))),
        "micro_batch_size": some("micro_batch_size", (1, 2, 4), rng.choice((0, 1))),
        "num_virtual_stages_per_pipeline_rank": (given.get("num_virtual_stages_per_pipeline_rank"), None, 2),
        "expert_model_parallel_size": some("expert_model_parallel_size", (1, 2, 4, 8), rng.choice((0, 1))),
        "recompute_method": some("recompute_method", (None, "uniform", "block"), 1),
        "tp_comm_overlap": (False,),
        "overlap_grad_reduce": some("overlap_grad_reduce", (True, False), rng.choice((0, 1))),
        "overlap_moe_expert_parallel_comm": (False,),
        "cp_comm_type": some("cp_comm_type", ("p2p", "a2a"), 0),
        NUMBER: (None, given.get(NUMBER), 1, 2),
    }
    if rng.random() < 0.7:
        limits["recompute_granularity"] = some("recompute_granularity", (None, "full"), 1)
    return limits
