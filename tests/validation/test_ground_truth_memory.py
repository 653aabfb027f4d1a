"""Published memory is compared like with like: kind, engine, rank by rank, and the floor of the states."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ledger import ledger
from tests.validation.ground_truth import recipe
from tests.validation.ground_truth_memory import GIB, memory
from tests.validation.ground_truth_rows import build

from .test_ground_truth import raw


def scored(**values: str) -> tuple[list[dict[str, Any]], Any]:
    row = build(raw(pp="2", **values))
    assert row.request is not None
    run, accelerator = recipe(row.request)
    account = ledger(run, accelerator)
    return memory(row, account), account


def test_every_rank_is_compared_with_its_own_stage() -> None:
    _, account = scored()
    first, last = (max(r.peak_allocated_bytes for r in account.ranks if r.pp_rank == at) / GIB for at in (0, 1))
    listed = [first] * 4 + [last] * 4  # the pipeline is the outermost of Megatron's rank order
    whole, *ranks = scored(
        measured_mem_gib=str(first), mem_kind="allocated", notes=f"per-rank alloc GiB {listed}",
        published_projection_error="time -1.0%; memory -0.5%",
    )[0]  # fmt: skip
    assert whole["kind"] == "allocated" and whole["error"] == pytest.approx(0) and whole["in_band"]
    assert whole["published_error"] == pytest.approx(-0.005)
    assert len(ranks) == 8 and all(one["error"] == pytest.approx(0) for one in ranks)


def test_states_are_a_floor_without_the_gradients_of_another_engine() -> None:
    (own,), account = scored(measured_mem_gib="1", mem_kind="nvidia-smi(GB)", framework="Megatron-LM")
    ((other,), _) = scored(measured_mem_gib="1", mem_kind="nvidia-smi(GB)", framework="Megatron-DeepSpeed")
    assert own["kind"] == other["kind"] == "device"
    assert not own["other_engine"] and other["other_engine"]
    assert own["floor"] == max(rank.static_bytes for rank in account.ranks) / GIB
    gradients = max(rank.items["gradients dense"].bytes for rank in account.ranks) / GIB
    assert other["floor"] == pytest.approx(own["floor"] - gradients)
    assert own["floor"] > own["measured"]


@pytest.mark.parametrize("framework", ("Primus MaxText", "torchtune"))
def test_engines_without_an_account_are_left_out(framework: str) -> None:
    assert scored(measured_mem_gib="30", mem_kind="unknown(GB)", framework=framework)[0] == []
