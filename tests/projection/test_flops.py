"""FLOPs and product shapes against arithmetic done by hand from the published layer sizes."""

from __future__ import annotations

import pytest

from primus_lint.projection import flops, shapes

from .recipes import run


def test_llama3_8b_is_6n_plus_attention() -> None:
    recipe = run("llama3-8b", seq_length=8192)
    hidden, layers, ffn, vocab, key_value = 4096, 32, 14336, 128256, 8 * 128
    matrices = layers * (hidden * (4096 + 2 * key_value) + 4096 * hidden + 3 * hidden * ffn) + hidden * vocab
    assert matrices == 7_504_658_432  # 8.03 B less the 0.525 B of the input embedding and the norms
    attention = layers * 2 * 2 * 4096 * (8192 / 2)  # QK^T and PV, half of the square, multiply-add = 2
    assert flops.model_flops_per_token(recipe) == 6 * matrices + 3 * attention
    # 5.147e10 FLOPs a token: 800 TFLOP/s/GPU is 15,543 tokens/s/GPU
    assert flops.model_flops_per_token(recipe) == pytest.approx(5.147e10, rel=1e-3)


def test_gpt3_175b_has_the_formula_of_the_megatron_paper() -> None:
    """96*B*s*l*h^2*(1 + s/6h + V/16lh) counts recomputation (arXiv 2104.04473, appendix): 72 without it.

    The paper counts the whole attention square, Megatron-LM today half of it: the term in s halves.
    """
    seq, layers, hidden, vocab = 2048, 96, 12288, 51200
    recipe = run(
        None, num_layers=layers, hidden_size=hidden, num_attention_heads=96, seq_length=seq,
        max_position_embeddings=seq, vocab_size=vocab, world_size=8, tensor_model_parallel_size=8,
    )  # fmt: skip
    expected = 72 * layers * hidden**2 * (1 + seq / 2 / (6 * hidden) + vocab / (12 * layers * hidden))
    assert flops.model_flops_per_token(recipe) == pytest.approx(expected, rel=1e-9)


def test_mixtral_counts_the_two_visited_experts() -> None:
    recipe = run("mixtral-8x7b", seq_length=4096)
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 2 * 3 * 4096 * 14336
    attention = 32 * 2 * 2 * 4096 * 2048
    assert flops.model_flops_per_token(recipe) == 6 * (32 * layer + 4096 * 32000) + 3 * attention


def test_deepseek_v3_latent_attention_and_mtp() -> None:
    recipe = run("deepseek-v3", world_size=2048, seq_length=4096, mtp_num_layers=1)
    hidden, heads = 7168, 128
    query = 1536 * (hidden + heads * 192)
    key_value = 512 * (hidden + heads * 256)
    attention = query + key_value + hidden * 64 + heads * 128 * hidden
    dense, moe = 3 * hidden * 18432, 3 * hidden * 2048 * (8 + 1)
    core = heads * (192 + 128) * 2048
    matrices = 62 * (attention + core) + 3 * dense + 59 * moe + 2 * hidden * 129280 + 3 * hidden + 2 * hidden**2
    assert flops.model_flops_per_token(recipe) == 6 * matrices
    assert flops.layer_flops(recipe.model, 4096, True).router == 2 * hidden * 256


def test_products_of_llama3_70b_at_tp8() -> None:
    recipe = run("llama3-70b", world_size=64, tensor_model_parallel_size=8, sequence_parallel=True, seq_length=8192)
    held = shapes.tokens(recipe)
    assert (held.gathered, held.local) == (8192, 1024)
    qkv, proj = shapes.attention_gemms(recipe.model, recipe.parallel, held)
    assert (qkv.m, qkv.n, qkv.k) == (8192, 8192 // 8 + 2 * 128, 8192)  # 8 heads and 1 key/value group a rank
    assert (proj.m, proj.n, proj.k) == (8192, 8192, 1024)
    fc1, fc2 = shapes.mlp_gemms(recipe.model, recipe.parallel, held, recipe.model.ffn_hidden_size)
    assert (fc1.m, fc1.n, fc1.k) == (8192, 2 * 3584, 8192)
    assert (fc2.m, fc2.n, fc2.k) == (8192, 8192, 3584)
    head = shapes.head_gemm(recipe.model, recipe.parallel, held)
    assert head is not None and (head.m, head.n, head.k) == (8192, 128256 // 8 + 96, 8192)  # padded to 129024


def test_products_cover_the_model_flops() -> None:
    """One third of the model's FLOPs, less the attention core, is the sum of all products over all ranks."""
    for model, degrees in (
        ("llama3-8b", {"tensor_model_parallel_size": 4}),
        ("deepseek-v2-lite", {}),
        ("mixtral-8x7b", {"expert_model_parallel_size": 8}),
    ):
        recipe = run(model, **degrees)
        parallel, held = recipe.parallel, shapes.tokens(recipe)
        layers = recipe.model.num_layers
        total = 0.0
        for layer in range(layers):
            gemms = shapes.attention_gemms(recipe.model, parallel, held)
            if recipe.model.is_moe_layer(layer):
                moe = recipe.model.moe
                assert moe is not None
                gemms += shapes.expert_gemms(recipe.model, parallel, shapes.routing(moe, parallel, held))
                gemms += shapes.mlp_gemms(recipe.model, parallel, held, moe.shared_expert_intermediate_size)
            else:
                gemms += shapes.mlp_gemms(recipe.model, parallel, held, recipe.model.ffn_hidden_size)
            total += sum(gemm.flops for gemm in gemms)
        head = shapes.head_gemm(recipe.model, parallel, held)
        assert head is not None
        total += head.flops
        forward = flops.forward_flops(recipe.model, 4096, parallel.tp, router=False)
        core = layers * flops.layer_flops(recipe.model, 4096, False).attention
        assert total * parallel.tp == pytest.approx((forward - core) * held.gathered, rel=1e-9)


def test_rows_of_an_expert() -> None:
    """DeepSeek-V3, 4096 tokens, top 8 of 256 experts, EP 64: 4 local experts share 32,768 rows."""
    recipe = run(
        "deepseek-v3", world_size=1024, expert_model_parallel_size=64, expert_tensor_parallel_size=1, seq_length=4096,
    )  # fmt: skip
    moe = recipe.model.moe
    assert moe is not None
    routed = shapes.routing(moe, recipe.parallel, shapes.tokens(recipe))
    assert (routed.sent, routed.rows, routed.experts, routed.rows_per_expert) == (32768, 32768, 4, 8192)
    fc1, _ = shapes.expert_gemms(recipe.model, recipe.parallel, routed)
    assert (fc1.m, fc1.n, fc1.k, fc1.groups) == (8192, 4096, 7168, 4)
    assert fc1.flops == 2 * 32768 * 4096 * 7168


def test_no_vocabulary_no_flops() -> None:
    recipe = run(None, num_layers=2, hidden_size=64, num_attention_heads=4, max_position_embeddings=4096)
    assert recipe.model.vocab_size is None
    assert flops.model_flops_per_token(recipe) is None
