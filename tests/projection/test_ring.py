"""Ring attention: cp pieces of a causal problem of S/cp each, outputs merged in fp32, gradients added."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.projection import compute
from primus_lint.projection.device import Device
from primus_lint.projection.layers import contexts
from primus_lint.projection.placement import place

from . import plain
from .recipes import run

LAUNCH = 1e-3


def core(cp: int, launch: float = 0.0, **args: Any) -> compute.Block:
    recipe = run("llama3-8b", world_size=8, context_parallel_size=cp, seq_length=8192, **args)
    acc = plain.accelerator()
    attention = {
        way: {"causal": {"128": {**masks["causal"]["128"], "launch": launch}}}
        for way, masks in acc.rates["attention"].items()
    }
    acc.rates = {**acc.rates, "attention": attention}
    device = Device(acc, plain.node(), recipe)
    return compute.attention_core(contexts(recipe, device, place(recipe.parallel, 8))[False])


@pytest.mark.parametrize("cp", (2, 4, 8))
def test_the_work_of_the_square_is_shared(cp: int) -> None:
    """No launches, bytes for nothing: a rank computes its cp-th part of the square, whatever the pieces."""
    whole = core(1).forward.parts["attention"][0]
    for kind in ("p2p", "all_gather"):
        assert core(cp, cp_comm_type=[kind]).forward.parts["attention"][0] == pytest.approx(whole / cp)


def test_every_piece_starts_anew() -> None:
    ring = core(4, LAUNCH).forward.parts["attention"][0] - core(4).forward.parts["attention"][0]
    assert ring == pytest.approx(4 * LAUNCH)


def test_pieces_are_merged() -> None:
    """8,192 tokens over 4 ranks, 3 steps behind the first that touch three quarters of the rows: outputs of 4,096 values are
    read in 2 bytes, read and written in 4; gradients of queries, keys and values (4,096 + 2,048) read twice, written once."""
    ring, one = core(4), core(1)
    rows = 3 * 0.75 * 8192 / 4
    assert ring.forward.parts["memory_bound"][0] == pytest.approx(rows * 4096 * 10 / plain.MEMORY)
    assert ring.backward.parts["memory_bound"][0] == pytest.approx(rows * 6144 * 6 / plain.MEMORY)
    assert one.forward.parts["memory_bound"][0] == one.backward.parts["memory_bound"][0] == 0
