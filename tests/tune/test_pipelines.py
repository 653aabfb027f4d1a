"""Primus's pipelines on the best recipes: legal, fitting, scored exactly, and only where the runtime has them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numpy")

from primus_lint.subject import Subject
from primus_lint.tune import safety
from primus_lint.tune.keys import LAYOUT, PIPELINE_KEYS, PP, VPP
from primus_lint.tune.pipelines import fastest, other_pipelines
from primus_lint.tune.propose import Rules, propose
from primus_lint.tune.rescore import Candidate, rescore
from primus_lint.tune.search import Pins, Result, search
from tests.tune import recipes

FEW: dict[str, Any] = {  # few micro-batches on a deep pipeline that may not be left: bubbles are what there is to gain
    "num_layers": 32, "global_batch_size": 16, "pipeline_model_parallel_size": 8, "micro_batch_size": 1,
    "use_distributed_optimizer": True, "overlap_grad_reduce": True, "seq_length": 8192, "max_position_embeddings": 8192,
    "lr_warmup_iters": 2,
}  # fmt: skip
DEEP = Pins(
    limits={
        PP: (8,),
        VPP: (None, 2),
        LAYOUT: (None,),
        "tensor_model_parallel_size": (1,),
        "context_parallel_size": (1,),
    }
)


def searched(framework: str = "primus-megatron", pins: Pins = DEEP, **args: Any) -> tuple[Subject, Result]:
    subject = recipes.subject("llama3.1-8b", gpu="mi300x", framework=framework, **{**FEW, **args})
    assert subject.accelerator is not None
    return subject, search(subject, subject.accelerator, pins=pins)


def found(framework: str = "primus-megatron", pins: Pins = DEEP, **args: Any) -> list[Candidate]:
    subject, result = searched(framework, pins, **args)
    return other_pipelines(subject, result, frozenset())


def test_they_are_legal_fit_and_are_scored_exactly() -> None:
    subject, result = searched()
    candidates = other_pipelines(subject, result, frozenset())
    assert {each.changes["pp_algorithm"] for each in candidates} == {"zero-bubble", "zbv-formatted"}
    assert subject.run is not None
    for each in candidates:
        again = rescore(subject, result.objective.capacity_bytes, each.changes, frozenset())
        assert again is not None and again.iteration_s == each.iteration_s and again.peak_bytes == each.peak_bytes
        given = subject.lowered.namespace.given
        assert safety.class_of_all(each.changes.items(), given, subject.run.model) == safety.SAFE
    assert all(changes.get(PP, 8) > 1 for changes in fastest(result))


def test_a_smaller_bubble_wins() -> None:
    """8 stages and 16 micro-batches: of 16 + 7 rounds 1F1B idles 7, with two chunks 3.5; zero bubble next to nothing."""
    subject, result = searched()
    proposal = propose(subject, Rules(limits=DEEP.limits))
    assert proposal.candidates and proposal.candidates[0].changes["pp_algorithm"] == "zbv-formatted"
    assert proposal.candidates[0].iteration_s < result.best[0].iteration_s * 0.95


@pytest.mark.parametrize(
    ("framework", "pins", "args"),
    [
        ("megatron", DEEP, {}),
        ("primus-megatron", DEEP._replace(keys=frozenset(("pp_algorithm",))), {}),
        ("primus-megatron", DEEP._replace(limits={**DEEP.limits, "pp_algorithm": ("1f1b",)}), {}),
        ("primus-megatron", DEEP, {"patch_primus_pipeline": True, "pp_algorithm": "1f1b"}),
    ],
)
def test_where_there_are_none(framework: str, pins: Pins, args: dict[str, Any]) -> None:
    assert found(framework, pins, **args) == []


def test_keys_go_together() -> None:
    assert all(set(PIPELINE_KEYS) <= set(each.changes) for each in found())
