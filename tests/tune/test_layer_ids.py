"""Layers recomputed on the ranks that lack memory alone: as few as let the recipe fit, and hardly a cost."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numpy")

from primus_lint.tune import safety
from primus_lint.tune.layer_ids import IDS, by_layer, least
from primus_lint.tune.search import search
from primus_lint.tune.space import Pins
from primus_lint.tune.what_if import with_changes
from tests.tune import recipes

PIPELINE = {"pipeline_model_parallel_size": (4,), "num_virtual_stages_per_pipeline_rank": (None,),
            "pipeline_model_parallel_layout": (None,), "decoder_first_pipeline_num_layers": (None,),
            "decoder_last_pipeline_num_layers": (None,), "tensor_model_parallel_size": (1,), "context_parallel_size": (1,),
            "micro_batch_size": (1,), "pp_algorithm": (None,)}  # fmt: skip
TIGHT = 0.84  # share of the device to leave free: the first rank does not fit without recomputation, the others do


def searched(framework: str = "primus-megatron", **args: Any) -> Any:
    subject = recipes.subject(
        "llama3.1-8b", "mi300x", 8, framework, num_layers=16, pipeline_model_parallel_size=4, global_batch_size=256,
        lr_warmup_iters=1, untie_embeddings_and_output_weights=True, **args,
    )  # fmt: skip
    assert subject.accelerator is not None
    return subject, search(subject, subject.accelerator, pins=Pins(limits=PIPELINE), min_headroom=TIGHT)


def test_fewest_layers_of_the_ranks_that_lack_memory() -> None:
    subject, result = searched()
    capacity = result.objective.capacity_bytes
    found = by_layer(subject, result, frozenset())
    assert found
    best = min(found, key=lambda each: each.iteration_s)
    assert best.iteration_s <= result.best[0].iteration_s and best.peak_bytes <= capacity
    ids = best.changes[IDS]
    other = with_changes(subject, best.changes)
    assert other.run is not None and other.run.parallel.stages is not None and other.ledger is not None
    assert float(other.projection.iteration_s) == best.iteration_s
    first = {layer for chunk in other.run.parallel.stages[0] for layer in chunk.layers}
    assert set(ids) <= first  # the other ranks need none
    fewer = with_changes(subject, {**best.changes, IDS: ids[:-1]} if len(ids) > 1 else {
        **best.changes, IDS: None, "recompute_granularity": None})  # fmt: skip
    assert fewer.ledger is not None and fewer.ledger.worst_rank.device_high_bytes > capacity
    assert subject.run is not None
    given = subject.lowered.namespace.given
    assert safety.class_of_all(best.changes.items(), given, subject.run.model) == safety.SAFE


def test_it_is_primus_alone_and_pins_hold() -> None:
    subject, result = searched("megatron")
    assert by_layer(subject, result, frozenset()) == []
    subject, result = searched()
    pinned = result.space.pins._replace(keys=frozenset((IDS,)))
    result.space.pins = pinned
    assert by_layer(subject, result, frozenset()) == []
    assert least(subject, {"pipeline_model_parallel_size": 1}, result, frozenset()) is None
