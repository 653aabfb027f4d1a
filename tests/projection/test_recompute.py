"""What torch's checkpoints repeat, on an accelerator with round rates. The same sums are counted in the real torchtitan in
tests/lower/torchtitan (`test_what_is_made_again_is_what_the_real_program_makes_again`)."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ir.record import replace
from primus_lint.projection import compute, cost, project, shapes
from primus_lint.projection.compute import Context
from primus_lint.projection.device import Device
from primus_lint.projection.placement import place

from . import plain
from .recipes import run

HIDDEN, KEY, WIDTH, LAYERS, TOKENS = 4096, 1024, 14336, 32, 4096  # llama3-8b
WHOLE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def repeated(low: bool, **args: Any) -> cost.Cost:
    found = run("llama3-8b", **args)
    device = Device(plain.accelerator(), plain.node(), found)
    where = place(found.parallel, device.domain_gpus)
    return compute.by_operation(Context(found, device, where, shapes.tokens(found), None, low))


def test_every_other_product_is_made_again() -> None:
    """wk, wo and w3 of wq, wk, wv, wo, w1, w3, w2; all of them where they are float8; attention never."""
    again = repeated(False)
    assert again.parts[cost.GEMM][0] == pytest.approx(
        2 * TOKENS * (HIDDEN * KEY + HIDDEN**2 + HIDDEN * WIDTH) / plain.FLOPS
    )
    assert cost.ATTENTION not in again.parts
    eighth = repeated(True, fp8="hybrid", fp8_recipe="tensorwise")
    products = 2 * HIDDEN**2 + 2 * HIDDEN * KEY + 3 * HIDDEN * WIDTH
    assert eighth.parts[cost.GEMM][0] == pytest.approx(2 * TOKENS * products / (2 * plain.FLOPS))


def test_reduce_scatters_are_kept_and_gathers_made_again() -> None:
    args = {"tensor_model_parallel_size": 8, "sequence_parallel": True}
    gather = repeated(False, **args).parts[cost.TP][0]
    found = run("llama3-8b", **args)
    device = Device(plain.accelerator(), plain.node(), found)
    where = place(found.parallel, device.domain_gpus)
    one = device.collective("all_gather", TOKENS * HIDDEN * 2, where.tp)[0]
    assert gather == pytest.approx(2 * one)  # before wk (with wq and wv), before w3 (with w1)


def test_an_early_stop_spares_the_down_projection_and_the_last_sum() -> None:
    found = run("llama3-8b", cuda_graph_impl="full_iteration", global_batch_size=8, hidden_dropout=0.0, **WHOLE)
    early = replace(found, recompute=replace(found.recompute, early_stop=True))
    seconds = [project(each, plain.accelerator(), plain.node()) for each in (found, early)]
    assert seconds[0] is not None and seconds[1] is not None
    spared = seconds[0].breakdown_s["recompute"] - seconds[1].breakdown_s["recompute"]
    product = 2 * TOKENS * HIDDEN * WIDTH / plain.FLOPS
    summed = 3 * 2 * TOKENS * HIDDEN / plain.MEMORY
    slowest = Device(plain.accelerator(), plain.node(), found).straggling  # compute waits for the slowest device
    assert spared == pytest.approx(LAYERS * (product + summed) * (1 + slowest), rel=1e-6)


@pytest.mark.parametrize("model", ["deepseek-v2-lite", "deepseek-v3"])
def test_every_other_product_of_latent_attention_is_made_again(model: str) -> None:
    """In the order of the real model's forward: wq (or wq_a, wq_b), wkv_a, wkv_b, wo, then w1, w3, w2."""
    found = run(model)
    device = Device(plain.accelerator(), plain.node(), found)
    where = place(found.parallel, device.domain_gpus)
    again = compute.by_operation(Context(found, device, where, shapes.tokens(found), None, False))
    own, latent = found.model, found.model.mla
    assert latent is not None
    heads, held = own.num_attention_heads, shapes.tokens(found).gathered
    query = heads * (latent.qk_head_dim + latent.qk_pos_emb_head_dim)
    down = own.hidden_size * (latent.kv_lora_rank + latent.qk_pos_emb_head_dim)
    up = latent.kv_lora_rank * heads * (latent.qk_head_dim + latent.v_head_dim)
    out, ffn = heads * latent.v_head_dim * own.hidden_size, own.hidden_size * own.ffn_hidden_size
    if latent.q_lora_rank is None:
        products = [own.hidden_size * query, down, up, out, ffn, ffn, ffn]
    else:
        products = [own.hidden_size * latent.q_lora_rank, latent.q_lora_rank * query, down, up, out, ffn, ffn, ffn]
    assert again.parts[cost.GEMM][0] == pytest.approx(2 * held * sum(products[1::2]) / plain.FLOPS)
