"""The smallest world size: right by going through every size with the whole search, and not below what is held."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numpy")

from primus_lint.tune.search import Pins, search
from primus_lint.tune.smallest import held_bytes, smallest_world
from tests.tune import recipes

# A narrow space: at sizes where nothing fits the search must go through all of it.
NARROW: dict[str, tuple[Any, ...]] = {
    "context_parallel_size": (1, 2), "micro_batch_size": (1, 2), "tp_comm_overlap": (False,), "cp_comm_type": ("p2p", ["p2p"]),
    "pipeline_model_parallel_layout": (None,), "num_virtual_stages_per_pipeline_rank": (None, 2),
    "overlap_grad_reduce": (False, True), "overlap_moe_expert_parallel_comm": (False,),
    "recompute_granularity": (None, "full"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "args"),
    [
        ("llama2-13b", {"num_layers": 80, "global_batch_size": 32}),
        ("llama3.1-70b", {"num_layers": 40, "global_batch_size": 48}),
        ("mixtral-8x7b", {"num_layers": 32, "global_batch_size": 32, "moe_aux_loss_coeff": 0.0}),
        ("qwen3-30b-a3b", {"global_batch_size": 24, "use_distributed_optimizer": False}),
    ],
)
def test_it_is_the_first_size_at_which_the_search_finds_something(model: str, args: dict[str, Any]) -> None:
    subject = recipes.subject(model, "h100", 8, **args)
    accelerator, pins = subject.accelerator, Pins(limits=NARROW)
    assert accelerator is not None
    found = smallest_world(subject, accelerator, pins)
    assert found is not None and found <= 64
    for size in range(16, found, 8):
        assert search(subject.at_world(size), accelerator, pins=pins).best == [], size
    assert search(subject.at_world(found), accelerator, pins=pins).best != []


def test_what_is_held_at_least_by_hand() -> None:
    """Llama-2-13B, 40 layers, untied: 4 x 5120^2 + 3 x 5120 x 13824 a layer, 2 x 32000 x 5120 at the ends; 2 B of weight,
    4 B of gradient and 12 B of state for each."""
    subject = recipes.subject("llama2-13b", untie_embeddings_and_output_weights=True, vocab_size=32000)
    assert subject.run is not None
    elements = 40 * (4 * 5120**2 + 3 * 5120 * 13824) + 2 * 32000 * 5120
    assert held_bytes(subject.run) == elements * 18
