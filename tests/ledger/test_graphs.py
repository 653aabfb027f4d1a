"""CUDA graphs: what stays allocated, what lies in the pool, and the moments of capture, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.support import account
from tests.oracle.recipes import MODELS

LLAMA = {**MODELS["llama3.1-8b"], "global_batch_size": 64}
HIDDEN = 8192 * 4096 * 2  # bytes of one sample's hidden states
MASK = 8192 * 8192
GRAPHS = {"cuda_graph_impl": "transformer_engine"}


def rank(changes: dict[str, Any], world: int = 8, index: int = 0) -> Any:
    return account({**LLAMA, **changes}, world).ranks[index]


def test_one_micro_batch_of_every_layer_without_a_pipeline() -> None:
    found = rank({**GRAPHS, "cuda_graph_scope": ["attn"]})
    assert found.items["CUDA graph buffers"].bytes == 32 * (2 * HIDDEN + MASK)
    assert rank({**GRAPHS, "cuda_graph_scope": ["mlp"]}).items["CUDA graph buffers"].bytes == 32 * 2 * HIDDEN


def test_graphs_in_flight_share_their_buffers() -> None:
    """4 stages of 8 layers: 4, 3, 2 and 1 micro-batches are in flight at once, however many a step has."""
    for index, alive in enumerate((4, 3, 2, 1)):
        found = rank({**GRAPHS, "cuda_graph_scope": ["attn"], "pipeline_model_parallel_size": 4}, 4, index)
        assert found.items["CUDA graph buffers"].bytes == alive * 8 * (2 * HIDDEN + MASK)


def test_kept_tensors_of_the_parts_lie_in_the_pool() -> None:
    """Attention keeps x, norm output, rsigma, q, k, v, output, lse and the RNG state: 8 tensors of h, q or k width."""
    tokens = 8192
    attention = tokens * (2 * 2 * 4096 + 4 + 2 * 2 * 4096 + 2 * 2 * 1024 + 4 * 32) + 16
    found = rank({**GRAPHS, "cuda_graph_scope": ["attn"]})
    assert found.items["CUDA graph pool"].bytes == -32 * attention
    plain = rank({})
    whole = rank({**GRAPHS, "cuda_graph_scope": []})
    layers = plain.items["activations dense layers"].bytes
    assert whole.items["CUDA graph pool"].bytes == -layers


def test_the_pool_is_reserved() -> None:
    """Allocated at most: before the capture everything but the buffers, as without graphs. On the device both exist."""
    plain, found = rank({}), rank({**GRAPHS, "cuda_graph_scope": ["attn"]})
    buffers = found.items["CUDA graph buffers"].bytes
    assert found.moments["backward before the capture"] == plain.moments["backward of the last forward"]
    assert found.device_low_bytes >= plain.device_low_bytes + buffers - found.doubts["CUDA graphs"].peak_low


def test_capture_before_the_first_step_has_no_moments() -> None:
    late = rank({**GRAPHS, "cuda_graph_scope": ["attn"]}).moments["capture of the CUDA graphs"]
    early = rank({**GRAPHS, "cuda_graph_scope": ["attn"], "cuda_graph_warmup_steps": 0})
    moments = early.items["optimizer moment 1"].bytes + early.items["optimizer moment 2"].bytes
    assert early.moments["capture of the CUDA graphs"] == late - moments
    assert early.moments["backward before the capture"] == 0


def test_router_and_preparation_of_the_dispatch() -> None:
    args = {**MODELS["mixtral-8x22b"], "expert_model_parallel_size": 8, **GRAPHS}
    router = account({**args, "cuda_graph_scope": ["moe_router"]}, 8).ranks[0].items["CUDA graph pool"].bytes
    both = account({**args, "cuda_graph_scope": ["moe_router", "moe_preprocess"]}, 8).ranks[0]
    assert both.items["CUDA graph pool"].bytes < router < 0


@pytest.mark.parametrize("changes", [{}, {"cuda_graph_impl": "full_iteration"}])
def test_no_graphs_of_layers(changes: dict[str, Any]) -> None:
    assert "CUDA graph buffers" not in rank(changes).items
