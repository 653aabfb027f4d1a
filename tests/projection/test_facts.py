"""The facts that throughput rules ask for."""

from __future__ import annotations

import pytest

from primus_lint.projection import facts, project

from . import plain
from .recipes import run


def projected(recipe: object) -> tuple[object, facts.Projection]:  # type: ignore[name-defined]
    projection = project(recipe, plain.accelerator(), plain.node())  # type: ignore[arg-type]
    assert projection is not None
    return recipe, projection


def test_tokens_per_local_expert() -> None:
    """4096 tokens, 8 of 128 experts: 256 rows each alone; with EP 8 an expert gets those of 8 ranks."""
    assert facts.tokens_per_local_expert(run("qwen3-30b-a3b")) == 256
    assert facts.tokens_per_local_expert(run("qwen3-30b-a3b", micro_batch_size=2)) == 512
    assert facts.tokens_per_local_expert(run("qwen3-30b-a3b", expert_model_parallel_size=8)) == 2048
    assert facts.tokens_per_local_expert(run("llama3-8b")) is None


def test_straddling_has_a_price() -> None:
    recipe = run("llama3-70b", world_size=16, gpus_per_node=8, tensor_model_parallel_size=16, sequence_parallel=True)
    _, projection = projected(recipe)
    assert facts.straddling(projection)["tp"] == 1
    price = facts.straddle_price_s(recipe, projection, plain.accelerator(), plain.node())
    assert 0 < price < projection.breakdown_s["tp"]
    inside = run("llama3-70b", world_size=16, tensor_model_parallel_size=8, sequence_parallel=True)
    _, projection = projected(inside)
    assert facts.straddling(projection) == {"tp": 0, "cp": 0, "ep": 0, "etp": 0}
    assert facts.straddle_price_s(inside, projection, plain.accelerator(), plain.node()) == 0


def test_shares_and_imbalance() -> None:
    _, projection = projected(run("llama3-8b", world_size=8, pipeline_model_parallel_size=4))
    shares = facts.exposed_shares(projection)
    assert set(shares) == {"tp", "cp", "ep", "fsdp", "pp", "dp"}
    assert shares["pp"] == pytest.approx(projection.breakdown_s["pp"] / projection.iteration_s)
    busy = projection.per_stage_s
    assert facts.stage_imbalance(projection) == pytest.approx(max(busy) / (sum(busy) / 4) - 1)
    assert facts.stage_imbalance(projection) > 0.05  # the head of 128,256 words sits on the last stage
