"""Training logs of four programs."""

from __future__ import annotations

import pytest

from primus_lint.measure.errors import MeasureError
from primus_lint.measure.training_log import read, warm_up

MEGATRON = [
    f" [2026-08-01 10:00:{i:02}.1] iteration {i:8}/     100 | consumed samples:  {i * 64} | elapsed time per iteration (ms): {ms} | "
    "throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate: 1.0E-05 | global batch size:    64 |"
    for i, ms in enumerate([9000.0, 1500.0, 1010.0, 1000.0, 1002.0, 998.0, 1001.0], 1)
]
MEMORY = "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1024.5 | max allocated: 2048.0 | reserved: 3000.0 | max reserved: 4096.0"


def test_megatron() -> None:
    """Seven iterations: the first three do not count, the median of 1000, 1002, 998 and 1001 ms is 1000.5 ms."""
    found = read([*MEGATRON[:2], MEMORY, *MEGATRON[2:]])
    assert (found.framework, found.iterations) == ("megatron", 4)
    assert found.seconds(1.0, 1) == pytest.approx(1.0005)
    assert (found.max_allocated_bytes, found.max_reserved_bytes) == (2048 * 2**20, 4096 * 2**20)


def test_primus_writes_the_current_value_before_the_average() -> None:
    line = (
        "iteration 5/50 | elapsed time per iteration (ms): 12345.6/12300.0 | hip mem usage/free/total/usage_ratio: "
        "150.50GB/41.48GB/191.98GB/78.39% | throughput per GPU (TFLOP/s/GPU): 1,400.1/398.2"
    )
    found = read([line])
    assert found.iteration_s == pytest.approx(12.3456)
    assert found.device_bytes == round(150.5 * 2**30)


def test_torchtitan_says_tokens_per_second_of_a_device() -> None:
    """8 x 8192 tokens on 8 GPUs at 6,400 tokens/s each: 1.28 s. Colours in between do not matter."""
    lines = [
        f"[rank0]:[titan] 2026-08-01 - root - INFO - \x1b[31mstep: {i:2}  \x1b[32mloss:  7.1  \x1b[33mmemory: 40.14GiB(42.27%)  "
        f"\x1b[34mtps: {tps}  \x1b[36mtflops: 367.47  \x1b[35mmfu: 37.16%\x1b[39m"
        for i, tps in enumerate(["900", "6,000", "6,300", "6,400", "6,400", "6,500"], 1)
    ]
    found = read(lines)
    assert found.framework == "torchtitan"
    assert found.seconds(8 * 8192, 8) == pytest.approx(1.28)
    assert found.max_reserved_bytes == round(40.14 * 2**30)


def test_maxtext() -> None:
    lines = [
        f"completed step: {i}, seconds: {s}, TFLOP/s/device: 312.1, Tokens/s/device: 6394.1, total_weights: 65536, loss: 8.1"
        for i, s in enumerate([60.5, 5.2, 5.15, 5.125, 5.125])
    ]
    found = read(lines)
    assert (found.framework, found.iteration_s) == ("maxtext", 5.125)


def test_a_step_that_every_rank_logs_counts_once() -> None:
    assert read([line for line in MEGATRON for _ in range(8)]).iterations == 4


def test_nothing_to_read() -> None:
    with pytest.raises(MeasureError, match="elapsed time per iteration"):
        read(["loss 3.2", "", MEMORY])


def test_warm_up() -> None:
    """At most three iterations all count; then three do not, or a fifth of them."""
    assert [warm_up(count) for count in (1, 3, 4, 10, 50)] == [0, 0, 3, 3, 10]


def test_whole_lines_of_four_programs() -> None:
    """Lines as the programs write them, with everything that stands before and behind the figures."""
    megatron = [
        f" [2026-08-01 10:00:{i:02}.123456] iteration {i:8}/  500000 | consumed samples: {i * 1024:12} | elapsed time per iteration "
        f"(ms): {5100.5 + i % 2} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.200000E-07 | global batch size:  1024 | "
        "lm loss: 1.103270E+01 | loss scale: 1.0 | grad norm: 2.534 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        for i in range(1, 12)
    ]  # fmt: skip
    primus = [
        f"[20260801 10:00:{i:02}][rank-7/8][INFO ] [-----------trainer.py:2043] : [2026-08-01 10:00:{i:02}] iteration {i:8}/      50 | "
        f"consumed samples: {i * 128:12} | elapsed time per iteration (ms): {8100.0 + i:.1f}/8105.3 | rocm mem usage/free/total/usage_ratio: "
        "151.21GB/40.77GB/191.98GB/78.76% | throughput per GPU (TFLOP/s/GPU): 455.1/452.0 | tokens per GPU (tokens/s/GPU): "
        "8090.1/8085.2 | learning rate: 1.0E-05 | global batch size:   128 | lm loss: 1.19E+01 |"
        for i in range(1, 12)
    ]  # fmt: skip
    titan = [
        f"[rank0]:[titan] 2026-08-01 10:00:{i:02},123 - root - INFO - step: {i:2}  loss:  8.1234  grad_norm:  2.1000  memory: 47.04GiB"
        f"(59.48%)  tps: {5_700 + i:,}  tflops: 330.12  mfu: 33.36%"
        for i in range(1, 12)
    ]  # fmt: skip
    maxtext = [
        f"I0801 10:00:{i:02}.123456 140 metric_logger.py:186] completed step: {i}, seconds: {4.1 + i / 1000:.3f}, TFLOP/s/device: 298.102, "
        "Tokens/s/device: 7991.011, total_weights: 131072, loss: 9.876, lm_loss: 9.876, perplexity: 19455.100"
        for i in range(11)
    ]  # fmt: skip
    found = read(megatron)
    assert (found.framework, found.iterations) == ("megatron", 8) and found.iteration_s == pytest.approx(5.101)
    found = read(primus)
    assert found.iteration_s == pytest.approx(8.1075) and found.device_bytes == round(151.21 * 2**30)
    found = read(titan)
    assert found.framework == "torchtitan" and found.tokens_per_s_per_gpu == pytest.approx(5707.5)
    found = read(maxtext)
    assert found.framework == "maxtext" and found.iteration_s == pytest.approx(4.1065)
