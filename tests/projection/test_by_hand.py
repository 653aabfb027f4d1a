"""Whole steps on an accelerator with round rates, against arithmetic done by hand."""

from __future__ import annotations

import pytest

from primus_lint.hardware import accelerator
from primus_lint.ir.record import replace
from primus_lint.projection import Projection, project
from primus_lint.projection.compute import attention_shape
from primus_lint.projection.device import ARRIVAL_S, CONTENTION, Device

from . import plain
from .recipes import run

ARRIVAL_8_S = ARRIVAL_S[0] + 7 * ARRIVAL_S[1]  # of a collective over the 8 ranks of a node


def step(model: str, **args: object) -> Projection:
    recipe = run(model, cuda_graph_impl="full_iteration", **args)  # type: ignore[arg-type]
    projection = project(recipe, plain.accelerator(), plain.node())
    assert projection is not None
    return projection


def test_products_and_attention_of_llama3_8b_on_one_gpu() -> None:
    """6 FLOPs a weight and token; attention 2 products forward, 5 backward, half of the square."""
    step_ = step("llama3-8b", world_size=1, global_batch_size=4)
    tokens = 4 * 4096
    assert step_.breakdown_s["gemm"] == pytest.approx(6 * 7_504_658_432 * tokens / plain.FLOPS)
    attention = 32 * 2 * 4096 * 4096 / 2 * 2 * (1 + 2.5) * tokens  # layers x 2 x width x s/2 x two products
    assert step_.breakdown_s["attention"] == pytest.approx(attention / plain.FLOPS)
    assert step_.breakdown_s["tp"] == step_.breakdown_s["dp"] == step_.breakdown_s["bubble"] == 0


def test_optimizer_moves_46_bytes_a_weight() -> None:
    """Adam in fp32 with fp32 gradients: norm and clipping 12, gradient 4, three states in and out 24, weight out 2,
    gradient buffer zeroed 4."""
    step_ = step("llama3-8b", world_size=1, global_batch_size=1)
    weights = 7_504_658_432 + 4096 * 128256  # products and the input embedding
    host = (20 + 32 * 8) * 60e-6  # a copy per parameter, and a handful of multi-tensor launches
    assert step_.breakdown_s["optimizer"] == pytest.approx(weights * (12 + 4 + 24 + 2 + 4) / plain.MEMORY + host)


def test_tensor_parallel_collectives_of_a_layer() -> None:
    """TP 8 with sequence parallelism: 2 gathers and 2 scatters forward, 2 gathers backward exposed, [4096, 4096] bf16;
    backward, gathers and scatters of columns run beside their products, which saves 21 % of the shorter of the two."""
    step_ = step("llama3-8b", world_size=8, tensor_model_parallel_size=8, sequence_parallel=True, global_batch_size=1)
    one = 7 / 8 * 4096 * 4096 * 2 / plain.INSIDE + ARRIVAL_8_S
    dgrad = {
        "qkv": 2 * 4096 * (4096 + 2048) * 4096 / 8 / plain.FLOPS,
        "fc1": 2 * 4096 * 2 * 14336 * 4096 / 8 / plain.FLOPS,
    }
    left = [one - 0.21 * min(one, seconds) for seconds in (*dgrad.values(), *dgrad.values())]  # gather, scatter
    layer = 2 * one + 2 * one + 2 * one + sum(left)
    head = 2 * 4096 * 4096 * (129024 // 8) / plain.FLOPS
    ends = (
        one + one + one + 2 * (one - 0.21 * min(one, head))
    )  # embedding: scatter and gather; head: gather, then two beside
    loss = 3 * (2 * 7 / 8 * 4096 * 4 / plain.INSIDE + ARRIVAL_8_S)
    assert step_.breakdown_s["tp"] == pytest.approx(32 * layer + ends + loss, rel=1e-6)
    assert step_.breakdown_s["contention"] == 0  # in the 21 %


def test_user_buffers_hide_what_runs_beside_products() -> None:
    """`tp_comm_overlap`: an eighth of each forward collective and of the gathers of rows stays exposed, those of columns backward
    hide behind their products; all that hides slows its product."""
    step_ = step("llama3-8b", world_size=8, tensor_model_parallel_size=8, sequence_parallel=True, global_batch_size=1,
                 tp_comm_overlap=True)  # fmt: skip
    alone = step("llama3-8b", world_size=8, tensor_model_parallel_size=8, sequence_parallel=True, global_batch_size=1)
    saved = alone.breakdown_s["tp"] - step_.breakdown_s["tp"]
    assert 0 < step_.breakdown_s["contention"] == pytest.approx(CONTENTION * _hidden_s(), rel=1e-6)
    assert saved > 0 and step_.iteration_s < alone.iteration_s


def _hidden_s() -> float:
    one = 7 / 8 * 4096 * 4096 * 2 / plain.INSIDE + ARRIVAL_8_S
    product = {name: 2 * 4096 * weights / 8 / plain.FLOPS for name, weights in {
        "qkv": 4096 * (4096 + 2048), "proj": 4096 * 4096, "fc1": 4096 * 2 * 14336, "fc2": 4096 * 14336, "logits": 4096 * 129024,
    }.items()}  # fmt: skip
    hidden = 0.0
    for name, seconds in product.items():
        times = 1 if name == "logits" else 32
        passes = (7 / 8, 1, 1) if name in ("qkv", "fc1", "logits") else (7 / 8, 7 / 8)
        hidden += times * sum(min(one * share, seconds) for share in passes)
    return hidden


def test_without_sequence_parallelism_all_reduces() -> None:
    step_ = step("llama3-8b", world_size=8, tensor_model_parallel_size=8, global_batch_size=1)
    one = 2 * 7 / 8 * 4096 * 4096 * 2 / plain.INSIDE + ARRIVAL_8_S
    wgrad = [2 * 4096 * (4096 + 2048) * 4096 / 8 / plain.FLOPS, 2 * 4096 * 2 * 14336 * 4096 / 8 / plain.FLOPS]
    head = 2 * 4096 * 4096 * (129024 // 8) / plain.FLOPS
    layer = 2 * one + sum(one - 0.21 * min(one, seconds) for seconds in wgrad)
    loss = 3 * (2 * 7 / 8 * 4096 * 4 / plain.INSIDE + ARRIVAL_8_S)
    assert step_.breakdown_s["tp"] == pytest.approx(32 * layer + one + one - 0.21 * min(one, head) + loss, rel=1e-6)


def test_gradients_without_overlap() -> None:
    """DP 8: fp32 gradients scattered and bf16 weights gathered once a step, 7/8 of them over the links."""
    step_ = step("llama3-8b", overlap_grad_reduce=False, overlap_param_gather=False, global_batch_size=8)
    weights = 7_504_658_432 + 4096 * 128256
    assert step_.breakdown_s["dp"] == pytest.approx(7 / 8 * weights * (4 + 2) / plain.INSIDE + 2 * ARRIVAL_8_S)


def test_gradients_hide_behind_the_last_backward() -> None:
    """201 buckets of 40 M: all but the last hide when the backward is long enough, and slow it. Parameters lie in the same
    buckets and are gathered one by one. Ranks that meet in the first message begin the next together."""
    free = step("llama3-8b", overlap_param_gather=False, global_batch_size=8, seq_length=65536)
    weights = 7_504_658_432 + 4096 * 128256
    scatter = 7 / 8 * weights * 4 / plain.INSIDE + ARRIVAL_8_S
    gather = 7 / 8 * weights * 2 / plain.INSIDE + ARRIVAL_8_S
    buckets = -(-weights // 40_000_000)
    assert buckets == 201
    assert free.breakdown_s["dp"] == pytest.approx(gather + scatter / buckets, rel=1e-6)
    assert free.breakdown_s["contention"] == pytest.approx(scatter * (1 - 1 / buckets) * CONTENTION, rel=1e-6)


def test_dense_weights_and_experts_have_buckets_of_their_own() -> None:
    """Mixtral EP 4 on 8 GPUs: dense weights over 8 ranks, a quarter of the experts over 2; each buffer in buckets of 40 M."""
    step_ = step("mixtral-8x7b", expert_model_parallel_size=4, moe_grouped_gemm=True, global_batch_size=8,
                 moe_token_dispatcher_type="alltoall", overlap_param_gather=False, seq_length=65536)  # fmt: skip
    dense = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 8) + 2 * 4096 * 32000
    experts = 32 * 2 * 3 * 4096 * 14336
    arrivals = ARRIVAL_8_S + ARRIVAL_S[0] + ARRIVAL_S[1]
    sent = (7 / 8 * dense + 1 / 2 * experts) / plain.INSIDE
    last = (4 * sent + arrivals) / -(-experts // 40_000_000)
    assert step_.breakdown_s["dp"] == pytest.approx(2 * sent + arrivals + last, rel=1e-4)


def test_rounding_makes_no_negative_bubble() -> None:
    """One pipeline rank waits for nothing, whatever order its seconds are added up in."""
    for batch in range(8, 33):
        step_ = step("llama3-8b", world_size=8, tensor_model_parallel_size=8, global_batch_size=batch)
        assert step_.breakdown_s["bubble"] >= 0


@pytest.mark.parametrize("model", ("llama3-8b", "mixtral-8x7b"))
def test_overlapped_gathers_are_never_slower(model: str) -> None:
    """The buckets are those of the gradients either way: what hides costs its contention, less than its time."""
    for tokens in (16, 256, 4096):
        apart = step(model, seq_length=tokens, global_batch_size=8, overlap_param_gather=False)
        assert step(model, seq_length=tokens, global_batch_size=8).iteration_s <= apart.iteration_s


def test_experts_exchange_top_k_copies_twice_each_way() -> None:
    """Mixtral EP 8: 4096 tokens, 2 copies of 4096 bf16: 7/8 leave; dispatch and combine, forward and backward; each
    dispatch also gathers the counts of 8 experts (8 bytes) from 8 ranks, and exchanges the bf16 probability of every copy, for
    which the ranks need not wait again."""
    step_ = step("mixtral-8x7b", expert_model_parallel_size=8, moe_grouped_gemm=True,
                 moe_token_dispatcher_type="alltoall", global_batch_size=8)  # fmt: skip
    copies = 4096 * 2 * 4096 * 2
    one = 7 / 8 * copies / plain.INSIDE + ARRIVAL_8_S
    counts = 7 / 8 * 512 / plain.INSIDE + ARRIVAL_8_S
    chances = 7 / 8 * 4096 * 2 * 2 / plain.INSIDE
    assert step_.breakdown_s["ep"] == pytest.approx(32 * (4 * one + 2 * counts + 2 * chances), rel=1e-4)


@pytest.mark.parametrize("microbatches", (1, 2, 16))
def test_exchanges_hide_behind_the_layers_of_another_micro_batch(microbatches: int) -> None:
    """Without pipeline the first forward and the last backward have no other micro-batch beside them: of m exchanges of both
    passes one stays exposed. The others fit behind the compute, and cost their contention only."""
    args = {"expert_model_parallel_size": 8, "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall",
            "global_batch_size": 8 * microbatches}  # fmt: skip
    plain_step = step("mixtral-8x7b", **args)
    overlapped = step("mixtral-8x7b", overlap_moe_expert_parallel_comm=True, **args)
    assert overlapped.breakdown_s["ep"] == pytest.approx(plain_step.breakdown_s["ep"] / microbatches)
    more = overlapped.breakdown_s["contention"] - plain_step.breakdown_s["contention"]
    hidden = plain_step.breakdown_s["ep"] * (1 - 1 / microbatches)
    assert more == pytest.approx(hidden * CONTENTION, rel=1e-6, abs=1e-12)


def test_ring_of_keys_and_values() -> None:
    """CP 8 over a ring: 7 steps of K and V of 8 groups; too fast compute leaves the rest of it exposed."""
    step_ = step("llama3-8b", context_parallel_size=8, global_batch_size=1, seq_length=8192)
    held = 1024
    transfer = 7 * held * 2 * 8 * 128 * 2 / plain.INSIDE
    core = 2 * 4096 * 8192 / 2 * 2 * 8192 / 8 / plain.FLOPS * 7 / 8
    exposed = max(transfer - core, 0.0) + max(2 * transfer - 2.5 * core, 0.0)
    assert exposed > 0
    assert step_.breakdown_s["cp"] == pytest.approx(32 * exposed, rel=1e-6)


def test_recompute_repeats_the_forward() -> None:
    plain_step = step("llama3-8b", world_size=1, global_batch_size=1)
    full = step("llama3-8b", world_size=1, global_batch_size=1, recompute_granularity="full",
                recompute_method="uniform", recompute_num_layers=1)  # fmt: skip
    assert full.breakdown_s["gemm"] == plain_step.breakdown_s["gemm"]
    layers = 2 * (7_504_658_432 - 4096 * 128256) * 4096 / plain.FLOPS
    attention = plain_step.breakdown_s["attention"] / 3.5
    assert full.breakdown_s["recompute"] > layers + attention
    half = step("llama3-8b", world_size=1, global_batch_size=1, recompute_granularity="full",
                recompute_method="block", recompute_num_layers=16)  # fmt: skip
    assert half.breakdown_s["recompute"] == pytest.approx(full.breakdown_s["recompute"] / 2)
    core = step("llama3-8b", world_size=1, global_batch_size=1, recompute_granularity="selective")
    assert core.breakdown_s["recompute"] == pytest.approx(attention)


def test_breakdown_adds_up_and_bubble_is_the_known_one() -> None:
    step_ = step("llama2-7b", world_size=8, pipeline_model_parallel_size=8, global_batch_size=32, vocab_size=1024)
    assert sum(step_.breakdown_s.values()) == pytest.approx(step_.iteration_s)
    # nearly equal stages: (p - 1)/(m + p - 1) = 7/39, less what the small head makes uneven
    assert step_.bubble_fraction == pytest.approx(7 / 39, abs=0.01)


def test_a_tensor_group_across_nodes_pays_the_network() -> None:
    inside = step("llama3-8b", world_size=16, tensor_model_parallel_size=8, sequence_parallel=True)
    across = step("llama3-8b", world_size=16, gpus_per_node=4, tensor_model_parallel_size=8, sequence_parallel=True)
    assert across.place.tp.nodes == 2
    # a ring over two nodes runs at min(links, 4 ranks x 10 GB/s) = 40 GB/s instead of 100
    assert across.breakdown_s["tp"] > 2 * inside.breakdown_s["tp"]


def test_optimizer_instances_reduce_inside_and_across() -> None:
    """16 ranks as two instances of 8 (a node each): fp32 gradients are scattered over 8 inside, their eighth all-reduced
    over the two nodes; weights are gathered inside only."""
    step_ = step("llama3-8b", world_size=16, num_distributed_optimizer_instances=2, overlap_grad_reduce=False,
                 overlap_param_gather=False, global_batch_size=16)  # fmt: skip
    weights = 7_504_658_432 + 4096 * 128256
    inside = 7 / 8 * weights * (4 + 2) / plain.INSIDE + 2 * ARRIVAL_8_S
    over = weights * 4 / 8 / plain.ACROSS + ARRIVAL_S[0]  # two ranks, each with its own network card: 2(n-1)/n = 1
    assert step_.breakdown_s["dp"] == pytest.approx(inside + over, rel=1e-6)
    assert step_.breakdown_s["optimizer"] > 0


def test_gradients_added_in_a_step_of_their_own() -> None:
    """Without gradient_accumulation_fusion: bf16 gradient in, fp32 buffer in and out, 10 bytes a weight and micro-batch."""
    fused = step("llama3-8b", world_size=1, global_batch_size=4)
    apart = step("llama3-8b", world_size=1, global_batch_size=4, gradient_accumulation_fusion=False)
    weights = 7_504_658_432 + 4096 * 128256
    more = apart.breakdown_s["memory_bound"] - fused.breakdown_s["memory_bound"]
    assert more == pytest.approx(4 * weights * 10 / plain.MEMORY, rel=1e-6)


def test_collectives_beside_products_need_one_queue() -> None:
    """Without CUDA_DEVICE_MAX_CONNECTIONS=1 the two gathers and two scatters of a layer's backward are exposed too."""
    args = {"world_size": 8, "tensor_model_parallel_size": 8, "sequence_parallel": True, "global_batch_size": 1}
    recipe = run("llama3-8b", cuda_graph_impl="full_iteration", **args)
    several = replace(recipe, args={**recipe.args, "env_CUDA_DEVICE_MAX_CONNECTIONS": None})
    projection = project(several, plain.accelerator(), plain.node())
    assert projection is not None
    one = 7 / 8 * 4096 * 4096 * 2 / plain.INSIDE + ARRIVAL_8_S
    loss = 3 * (2 * 7 / 8 * 4096 * 4 / plain.INSIDE + ARRIVAL_8_S)
    assert projection.breakdown_s["tp"] == pytest.approx((32 * 10 + 2 + 3) * one + loss, rel=1e-6)
    assert projection.breakdown_s["contention"] == 0


def test_the_host_launches_what_no_graph_holds() -> None:
    """One sequence of 128 tokens: the host is the slower one; a graph of half of the layer leaves it the other half."""
    args = {"seq_length": 128, "global_batch_size": 8}
    step_s = {
        modules: project(
            run("llama3-8b", cuda_graph_impl=impl, cuda_graph_scope=list(modules), **args),
            plain.accelerator(),
            plain.node(),
        ).breakdown_s["host"]  # type: ignore[union-attr]
        for impl, modules in (("none", ()), ("transformer_engine", ("attn",)), ("transformer_engine", ("attn", "mlp")))
    }
    assert 0 == step_s["attn", "mlp"] < step_s["attn",] < step_s[()]


def test_attention_backward_without_the_assembly_kernel() -> None:
    """NVTE_CK_USES_BWD_V3=0 leaves TransformerEngine the composable-kernel backward: 3.8 times as long on gfx950."""
    recipe = run("llama3-8b", gpu="mi355x", global_batch_size=8)
    found = accelerator("mi355x")
    shape = attention_shape(recipe)
    assert found is not None
    forward, backward = Device(found, None, recipe).attention(shape, recipe)
    for text, times in (("0", 3.8), ("1", 1.0)):
        other = replace(recipe, args={**recipe.args, "env_NVTE_CK_USES_BWD_V3": text})
        slower = pytest.approx([value * times for value in backward])
        assert Device(found, None, other).attention(shape, other) == (forward, slower)


def test_grouped_experts_add_bias_and_padding() -> None:
    """4096 tokens x 2 copies of 4096: 64 bytes a value for the bias of the down projection; 2 copies in and out, forward
    and backward, 2 bytes read and written each, for FP8's padding."""
    args = {"world_size": 1, "moe_grouped_gemm": True, "global_batch_size": 1}
    values = 32 * 4096 * 2 * 4096
    plain_step = step("mixtral-8x7b", **args)
    bias = step("mixtral-8x7b", add_bias_linear=True, **args)
    more = bias.breakdown_s["memory_bound"] - plain_step.breakdown_s["memory_bound"]
    assert more == pytest.approx(values * 64 / plain.MEMORY, rel=0.02)  # and the biases of the attention block
    capacity = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True, "fp8": "hybrid"}
    fixed, free = step("mixtral-8x7b", **args, **capacity), step("mixtral-8x7b", **args, fp8="hybrid")
    more = free.breakdown_s["memory_bound"] - fixed.breakdown_s["memory_bound"]
    assert more == pytest.approx(values * 16 / plain.MEMORY, rel=1e-6)


def test_an_activation_that_is_not_fused_costs_its_steps() -> None:
    """SwiGLU of 14336 outputs a token, two bytes each: 5 and 13 passes instead of 3 and 5, in 32 dense layers. Experts of one
    CUTLASS product have it compiled anyway."""
    apart = step("llama3-8b", world_size=1, global_batch_size=1, bias_swiglu_fusion=False)
    more = (
        apart.breakdown_s["memory_bound"]
        - step("llama3-8b", world_size=1, global_batch_size=1).breakdown_s["memory_bound"]
    )
    assert more == pytest.approx(32 * 4096 * 14336 * 2 * (2 + 8) / plain.MEMORY)
    for legacy in (False, True):
        args = {
            "world_size": 1,
            "global_batch_size": 1,
            "moe_grouped_gemm": True,
            "moe_use_legacy_grouped_gemm": legacy,
        }
        same = (
            step("mixtral-8x7b", **args).iteration_s
            == step("mixtral-8x7b", bias_swiglu_fusion=False, **args).iteration_s
        )
        assert same == legacy


def test_the_host_goes_through_the_parameters_of_every_optimizer() -> None:
    plain_step = step("llama3-8b", world_size=1, global_batch_size=1)
    whole = step(
        "llama3-8b", world_size=1, global_batch_size=1, use_distributed_optimizer=False, overlap_param_gather=False
    )
    assert whole.breakdown_s["optimizer"] == plain_step.breakdown_s["optimizer"]
