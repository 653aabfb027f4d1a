"""One formula, any shape: a grid of recipes against each of its recipes alone.

The scalar path is exact. On a grid the padding of buckets and a rank's slice of a buffer are upper bounds, so no figure
that decides about fitting may be below the scalar one, and each stays within a few MiB of it (`reserved` and `device`
figures are multiples of 2 MiB). Only the replay of allocator blocks is left out on grids: it moves the two `allocated`
figures by some MiB either way and no other.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle.recipes import MODELS

pytest.importorskip("numpy")

from tests.ledger.grids import deviations
from tests.ledger.support import run_of

if TYPE_CHECKING:
    from primus_lint.ir.run import Run

MIB = 1 << 20
DECIDING = ("static_bytes", "peak_reserved_bytes", "device_low_bytes", "device_high_bytes")
BLOCK = {"recompute_granularity": "full", "recompute_method": "block"}
UNIFORM = {"recompute_granularity": "full", "recompute_method": "uniform"}
CORE = {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
SPLIT = {"decoder_first_pipeline_num_layers": 16, "decoder_last_pipeline_num_layers": 15}
FSDP2 = {"use_torch_fsdp2": True, "use_distributed_optimizer": False}
UNFUSED = {"attention_backend": "unfused"}
CHUNKS = {"num_virtual_stages_per_pipeline_rank": 2}
UNITS = {"data_parallel_sharding_strategy": "optim_grads_params", "overlap_param_gather": True}
FAMILIES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "dense": ("llama3.1-8b", 1, 64, {}),
    "pipeline": ("llama3.1-70b", 4, 64, {}),
    "virtual stages": ("llama3.1-70b", 4, 64, {"num_virtual_stages_per_pipeline_rank": 5}),
    "full recomputation by block": ("llama3.1-70b", 4, 64, BLOCK),
    "full recomputation by unit": ("llama3.1-70b", 4, 64, UNIFORM),
    "selective recomputation": ("llama3.1-70b", 4, 64, CORE),
    "tied embeddings": ("llama3.1-70b", 4, 64, {"untie_embeddings_and_output_weights": False, "vocab_size": 50257}),
    "experts": ("mixtral-8x22b", 4, 128, {}),
    "many experts": ("qwen3-235b", 1, 64, {}),
    "latent attention": ("deepseek-v3", 1, 512, {}),
    "latent attention, pipeline": ("deepseek-v3", 4, 512, SPLIT),
    "no overlap": ("llama3.1-8b", 2, 64, {"overlap_grad_reduce": False}),
    "no sharding": ("llama3.1-8b", 2, 64, {"use_distributed_optimizer": False}),
    "FSDP2": ("llama3.1-8b", 1, 64, FSDP2),
    "blockwise FP8": ("llama3.1-8b", 2, 64, {"fp8": "hybrid", "fp8_recipe": "blockwise"}),
    "mxfp8 experts": ("mixtral-8x22b", 2, 64, {"fp8": "e4m3", "fp8_recipe": "mxfp8"}),
    "zero bubble": ("llama3.1-8b", 4, 64, {"patch_primus_pipeline": True, "pp_algorithm": "zero-bubble"}),
    "CUDA graphs": (
        "llama3.1-70b",
        4,
        64,
        {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["attn"], **UNFUSED},
    ),
    "overlapped experts": ("mixtral-8x22b", 4, 128, {"overlap_moe_expert_parallel_comm": True, **CHUNKS}),
    "offloading": (
        "llama3.1-70b",
        4,
        64,
        {"fine_grained_activation_offloading": True, "offload_modules": ["core_attn", "mlp_norm"]},
    ),
    "FP8 primary weights": ("llama3.1-8b", 2, 64, {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": True}),
    "Megatron-FSDP": ("llama3.1-8b", 1, 64, {"use_megatron_fsdp": True, **UNITS}),
    "local layers": ("llama3.1-8b", 2, 64, {"transformer_impl": "local", "apply_rope_fusion": False}),
}


def recipes(model: str, pp: int, world: int, extra: dict[str, Any], count: int) -> list[Run]:
    """Legal recipes of one structure, drawn from a fixed seed."""
    rng = random.Random(7)
    moe = "num_experts" in MODELS[model]
    out: list[Run] = []
    while len(out) < count:
        tp, cp, ep, mbs = rng.choice((1, 2, 4)), rng.choice((1, 2, 4)), rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4))
        dp = world // (tp * cp * pp)
        if not dp or 768 % (mbs * dp) or (moe and (tp * cp * dp) % ep):
            continue
        args = {
            **MODELS[model], "tensor_model_parallel_size": tp, "context_parallel_size": cp,
            "pipeline_model_parallel_size": pp, "micro_batch_size": mbs, "global_batch_size": 768,
            "sequence_parallel": tp > 1, "seq_length": rng.choice((4096, 8192)), **extra,
        }  # fmt: skip
        if moe:
            args.update(expert_model_parallel_size=ep, expert_tensor_parallel_size=1)
        if args.get("recompute_granularity") == "full":
            args["recompute_num_layers"] = rng.choice((1, 2, 3, 4))
        out.append(run_of(args, world))
    return out


@pytest.mark.parametrize("family", FAMILIES)
def test_grid_is_a_tight_upper_bound(family: str) -> None:
    found = deviations(recipes(*FAMILIES[family], count=16))
    for figure in DECIDING:
        assert found[figure].least_bytes >= 0, (figure, found[figure])
        assert found[figure].largest_bytes <= 8 * MIB, (figure, found[figure])
    for figure in ("steady_allocated_bytes", "peak_allocated_bytes"):
        assert found[figure].least_bytes >= -16 * MIB and found[figure].largest_bytes <= 16 * MIB, found[figure]


def test_padding_for_the_network_is_bounded_too() -> None:
    """Buckets padded to 65,536 elements, with lengths that are no multiple of anything: each of the at most
    elements/limit + 1 buckets is taken to be short of a whole multiple."""
    extra = {"vocab_size": 50257, "ddp_pad_buckets_for_high_nccl_busbw": True}
    found = deviations(recipes("llama3.1-8b", 2, 96, extra, count=16))
    for figure in DECIDING:
        assert found[figure].least_bytes >= 0, (figure, found[figure])
        assert found[figure].largest_fraction <= 3e-3, (figure, found[figure])


def test_without_padding_a_grid_is_exact() -> None:
    """No bucket limit and lengths that are multiples of the group: nothing to bound."""
    for family in ("no overlap", "FSDP2"):
        found = deviations(recipes(*FAMILIES[family], count=16))
        for figure in DECIDING:
            assert (found[figure].least_bytes, found[figure].largest_bytes) == (0, 0), (family, figure)
