"""The model table: its arguments give the published parameter counts by a formula of this test's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from primus_lint.readers.models import model_facts, model_names, nearest_models
from primus_lint.readers.tables import table
from primus_lint.resources import data_root


def parameters(a: dict[str, Any]) -> int:
    """Parameters of a decoder by the textbook: embeddings, attention, norms, feed-forward or experts."""
    hidden, layers, heads = a["hidden_size"], a["num_layers"], a["num_attention_heads"]
    norm = hidden * (2 if a["normalization"] == "LayerNorm" else 1)
    linear_bias = bool(a.get("add_bias_linear"))
    if a.get("multi_latent_attention"):
        rank, nope, rope, value = a["kv_lora_rank"], a["qk_head_dim"], a["qk_pos_emb_head_dim"], a["v_head_dim"]
        query = a.get("q_lora_rank")
        width = heads * (nope + rope)
        attention = hidden * width if query is None else hidden * query + query + query * width
        attention += hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden
    else:
        size = a["kv_channels"]
        groups = a.get("num_query_groups", heads)
        attention = hidden * size * (heads + 2 * groups) + heads * size * hidden
        attention += size * (heads + 2 * groups) * bool(a.get("add_qkv_bias") or linear_bias) + hidden * linear_bias
        attention += 2 * size * bool(a.get("qk_layernorm"))
    matrices = 3 if a.get("swiglu") or a.get("quick_geglu") else 2

    def feed_forward(width: int) -> int:
        bias = (matrices - 1) * width + hidden if linear_bias else 0
        return matrices * hidden * width + bias

    kinds = [0] * layers
    if a.get("num_experts"):
        freq = a["moe_layer_freq"]
        kinds = freq if isinstance(freq, list) else [1] * layers
    total = (1 + bool(a.get("untie_embeddings_and_output_weights"))) * a["vocab_size"] * hidden + norm
    for is_moe in kinds:
        total += attention + 2 * norm
        if is_moe:
            total += a["num_experts"] * (hidden + feed_forward(a["moe_ffn_hidden_size"]))
            shared = a.get("moe_shared_expert_intermediate_size")
            total += feed_forward(shared) if shared else 0
        else:
            total += feed_forward(a["ffn_hidden_size"])
    return total


PLAIN = [name for name in model_names() if "unlike" not in (model_facts(name) or {})]
COUNTED = [name for name in PLAIN if "counted" in (model_facts(name) or {})]
PUBLISHED = [name for name in PLAIN if "published" in (model_facts(name) or {}) and name in COUNTED]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mixtral-8x22b", 140_620_634_112),  # exact, mistral-community/Mixtral-8x22B-v0.1
        ("llama3.1-70b", 70_553_706_496),  # safetensors index of the released weights
        ("qwen3-8b", 8_190_735_360),  # safetensors index of the released weights
        ("deepseek-v3", 671_026_419_200 - 58 * 256),  # without the MTP module; the router's bias is a buffer
    ],
)
def test_exact_counts(name: str, published: int) -> None:
    facts = model_facts(name)
    assert facts is not None
    assert parameters(facts["args"]) == published


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name: str) -> None:
    facts = model_facts(name)
    assert facts is not None
    # rounded sizes in names ("8x7B", "70B") are the coarsest sources: Kimi-K2's 1T is 2.6 % off, Nemotron's 15B 4.2 %
    assert parameters(facts["args"]) == pytest.approx(facts["published"]["total"], rel=0.05), facts["published"]


@pytest.mark.parametrize("name", COUNTED)
def test_counts_of_the_catalogue(name: str) -> None:
    facts = model_facts(name)
    assert facts is not None
    assert parameters(facts["args"]) == pytest.approx(facts["counted"], rel=1e-4)


def test_every_argument_is_one_of_megatron() -> None:
    keys = table("megatron", "d3528a21")["keys"]
    for name in model_names():
        facts = model_facts(name)
        assert facts is not None
        assert set(facts["args"]) - set(keys) == set(), name


def test_layer_kinds() -> None:
    v3, maverick, scout = (
        model_facts("deepseek-v3"),
        model_facts("llama4-maverick-17b-128e"),
        model_facts("mixtral-8x7b"),
    )
    assert v3 is not None and maverick is not None and scout is not None
    assert v3["args"]["moe_layer_freq"] == [0] * 3 + [1] * 58
    assert maverick["args"]["moe_layer_freq"] == [0, 1] * 24
    assert scout["args"]["moe_layer_freq"] == 1  # every layer: holds for any number of layers


def test_names_and_aliases() -> None:
    def name(text: str) -> str | None:
        facts = model_facts(text)
        return None if facts is None else facts["name"]

    assert len(model_names()) == 68
    assert {name(text) for text in ("llama3.1-70b", "llama3.1_70B", "llama3.1_70B.yaml", "Llama-3.1-70B")} == {
        "llama3.1-70b"
    }
    assert name("meta-llama/Llama-3.1-70B") == "llama3.1-70b"
    assert name("llama3/70B") == "llama3-70b"  # a torchtitan flavor
    assert name("mixtral_8x7B_v0.1") == "mixtral-8x7b"
    assert name("no-such-model") is None
    assert "llama3-70b" in nearest_models("lama3-70b")


def test_every_primus_preset_of_a_public_model_is_an_alias() -> None:
    with open(f"{data_root('schemas')}/models.json", encoding="utf-8") as file:
        aliases = json.load(file)["aliases"]
    for alias, name in aliases.items():
        facts = model_facts(alias)
        assert facts is not None and facts["name"] == name
