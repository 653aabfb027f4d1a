"""One formula, any shape: arrays give what scalars give, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.hardware import accelerator, collectives, names, rates, runtime

DEVICES = st.sampled_from(names())
DIMS = st.lists(st.tuples(*[st.integers(1, 200_000)] * 3), min_size=1, max_size=5)
GROUPS = st.lists(st.tuples(st.floats(1, 2**36), st.integers(1, 512), st.integers(1, 16)), min_size=1, max_size=6)
OPS = st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])


def _acc(name: str) -> Any:
    found = accelerator(name)
    assert found is not None
    return found


def same(array: Any, scalars: list[Any]) -> None:
    np.testing.assert_allclose(np.broadcast_to(array, len(scalars)), np.array(scalars, float), rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(DEVICES, DIMS, st.sampled_from(["fwd", "dgrad", "wgrad"]), st.data())
def test_gemm(name: str, dims: list[tuple[int, int, int]], op: str, data: Any) -> None:
    acc = _acc(name)
    dtype = data.draw(st.sampled_from(sorted(acc.rates["gemm"])))
    m, n, k = (np.array(values) for values in zip(*dims, strict=True))
    same(
        rates.gemm_time_s(acc, dtype, m, n, k, op).time_s,
        [rates.gemm_time_s(acc, dtype, *dim, op).time_s for dim in dims],
    )
    grouped = rates.grouped_gemm_time_s(acc, dtype, 8, m, n, k, op).time_s
    same(grouped, [rates.grouped_gemm_time_s(acc, dtype, 8, *dim, op).time_s for dim in dims])


@settings(deadline=None, max_examples=40)
@given(DEVICES, DIMS, st.sampled_from(["forward", "backward"]), st.booleans())
def test_attention(name: str, dims: list[tuple[int, int, int]], direction: str, causal: bool) -> None:
    acc = _acc(name)

    def seconds(batch: Any, heads: Any, seq: Any) -> Any:
        found = rates.attention_time_s(
            acc, "bf16", batch, heads, heads, seq, seq, 128, 128, direction=direction, causal=causal
        )
        return found.time_s

    same(seconds(*(np.array(values) for values in zip(*dims, strict=True))), [seconds(*dim) for dim in dims])


@settings(deadline=None, max_examples=80)
@given(DEVICES, GROUPS, OPS)
def test_collectives(name: str, groups: list[tuple[float, int, int]], op: str) -> None:
    acc = _acc(name)
    size, ranks, per_node = (np.array(values) for values in zip(*groups, strict=True))
    found = collectives.time_s(acc, None, op, size, ranks, per_node)
    scalars = [collectives.time_s(acc, None, op, *group) for group in groups]
    same(found.time_s, [part.time_s for part in scalars])
    same(found.low, [part.low for part in scalars])
    same(found.high, [part.high for part in scalars])
    same(
        collectives.time_s(acc, None, op, size, 8, 8).time_s,
        [collectives.time_s(acc, None, op, x, 8, 8).time_s for x in size],
    )


@settings(deadline=None, max_examples=40)
@given(DEVICES, st.lists(st.tuples(st.floats(1, 2**36), st.integers(0, 1)), min_size=1, max_size=6))
def test_messages_and_memory(name: str, messages: list[tuple[float, int]]) -> None:
    acc = _acc(name)
    size, crosses = (np.array(values) for values in zip(*messages, strict=True))
    found = collectives.send_time_s(acc, None, size, crosses).time_s
    same(found, [collectives.send_time_s(acc, None, *message).time_s for message in messages])
    same(rates.memory_time_s(acc, size).time_s, [rates.memory_time_s(acc, x).time_s for x in size])


def test_a_broadcast_grid() -> None:
    """Group sizes along one axis, message sizes along the other, one of the groups a single rank."""
    acc = _acc("mi300x")
    ranks, size = np.array([[1], [2], [8], [64]]), np.array([1e3, 1e6, 1e9])
    found = collectives.time_s(acc, None, "all_gather", size, ranks, np.minimum(ranks, 8))
    assert found.time_s.shape == (4, 3)
    assert (found.time_s[0] == 0).all() and (found.time_s[1:] > 0).all()
    low, high = runtime.runtime_bytes(acc, np.array([0, 3]))
    assert low.tolist() == [acc.context_band_bytes[0], acc.context_band_bytes[0] + 3 * acc.communicator_band_bytes[0]]
    assert (high > low).all()


@pytest.mark.parametrize("values", [(8192, 4096, 4096)])
def test_scalars_stay_scalars(values: tuple[int, int, int]) -> None:
    """Plain numbers in, plain numbers out: linting imports no numpy for it."""
    assert type(rates.gemm_time_s(_acc("h100"), "bf16", *values).time_s) is float
    assert type(collectives.time_s(_acc("h100"), None, "all_reduce", 1024, 16, 8).time_s) is float
