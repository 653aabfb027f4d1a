"""Collective times against rows and published figures that did not make the curves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from primus_lint.hardware import accelerator, collectives, measured, node_type
from primus_lint.hardware.curves import volume


def _acc(name: str) -> Any:
    found = accelerator(name)
    assert found is not None
    return found


def bus_gb_per_s(device: str, op: str, message: float, ranks: int, per_node: int, node: Any = None) -> float:
    seconds = collectives.time_s(_acc(device), node, op, message, ranks, per_node).time_s
    return float(volume(op, ranks) * message / seconds / 1e9)


def test_bus_bandwidth_factors() -> None:
    """NCCL's performance notes: all-reduce 2(n-1)/n, the others (n-1)/n."""
    assert volume("all_reduce", 8) == pytest.approx(1.75) and volume("all_gather", 4) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("device", "node"),
    [
        ("a100-80gb", "hgx-a100-8"),
        ("h100", "hgx-h100-8"),
        ("h200", "hgx-h200-8"),
        ("b200", "hgx-b200-8"),
        ("gb200", "gb200-nvl72"),
    ],
)
def test_measured_rows_come_back(device: str, node: str) -> None:
    """Every stored row of the table (all sizes, groups and operations); the curves rise, so that dips are evened out."""
    errors, large = [], []
    for row in measured.rows(f"collective.{node}.aiconfigurator"):
        found = collectives.time_s(
            _acc(device), None, row["op"], row["bytes"], row["gpus_per_node"], row["gpus_per_node"]
        )
        assert found.tier == "measured"
        errors.append(abs(found.time_s / row["time_s"] - 1))
        if row["bytes"] >= 1 << 20:
            large.append(errors[-1])
    assert np.mean(errors) < 0.02 and max(large) < 0.05  # small ones: repeats of 5-20 us differ by up to a half


def test_another_machine_agrees() -> None:
    """vTrain's A100 node, which made no curve: large all-reduces within the band, and 5 % in the mean."""
    errors = []
    for row in measured.rows("collective.hgx-a100-8.vtrain"):
        if row["bytes"] >= 64 << 20:
            group = row["gpus_per_node"]
            found = collectives.time_s(_acc("a100-80gb"), None, "all_reduce", row["bytes"], group, group)
            assert found.time_s * found.low <= row["time_s"] <= found.time_s * found.high
            errors.append(found.time_s / row["time_s"] - 1)
    assert len(errors) > 20 and np.mean(np.abs(errors)) < 0.05


def test_gh200_between_nodes() -> None:
    """Vista, one GPU a node, 2 to 8 nodes: all-reduce of 256 MiB and more within 10 %, messages within the band's reach."""
    node = node_type("gh200-1")
    for row in measured.rows("collective.gh200-1.estimate-train-time"):
        if row["op"] == "all_reduce" and row["bytes"] >= 256 << 20:
            found = collectives.time_s(_acc("gh200-96gb"), node, "all_reduce", row["bytes"], row["nodes"], 1)
            assert found.time_s == pytest.approx(row["time_s"], rel=0.25)
            assert found.tier == "constant"
    errors = [
        collectives.time_s(_acc("gh200-96gb"), node, "all_reduce", row["bytes"], row["nodes"], 1).time_s / row["time_s"]
        - 1
        for row in measured.rows("collective.gh200-1.estimate-train-time")
        if row["op"] == "all_reduce"
    ]
    assert np.mean(np.abs(errors)) < 0.10


def test_four_gpu_mesh() -> None:
    """Perlmutter: all-reduce of 4 GPUs at 222 GB/s, of a pair at 74, messages at 91 (GB/s, large)."""
    node = node_type("a100-4")
    assert bus_gb_per_s("a100-80gb", "all_reduce", 2**30, 4, 4, node) == pytest.approx(221.6, rel=0.08)
    assert bus_gb_per_s("a100-80gb", "all_reduce", 2**30, 2, 2, node) == pytest.approx(73.8, rel=0.08)
    assert 2**30 / collectives.send_time_s(_acc("a100-80gb"), node, 2**30, 0).time_s / 1e9 == pytest.approx(
        91, rel=0.25
    )


def test_published_figures_between_nodes() -> None:
    """RCCL on 2 x 8 MI300X: all-reduce and gather 330-350, scatter 340-360, all-to-all 45-50 GB/s, messages 47-48; eight
    B200 on each of four nodes: all-reduce 382."""
    for op, low, high in (("all_reduce", 330, 350), ("all_gather", 330, 350), ("reduce_scatter", 320, 360)):
        assert low * 0.98 <= bus_gb_per_s("mi300x", op, 8 * 2**30, 16, 8) <= high * 1.02
    assert 45 <= bus_gb_per_s("mi300x", "all_to_all", 8 * 2**30, 16, 8) <= 50
    message = 8 * 2**30
    assert 47 <= message / collectives.send_time_s(_acc("mi300x"), None, message, 1).time_s / 1e9 <= 48
    assert bus_gb_per_s("b200", "all_reduce", 16 * 2**30, 32, 8) == pytest.approx(382, rel=0.02)


def test_mesh_inside_a_node() -> None:
    """xGMI: 48 of 64 GB/s a link, n - 1 links: 336 GB/s on 8 MI300X (TransferBench all-to-all: 320), 48 for a pair."""
    assert bus_gb_per_s("mi300x", "all_to_all", 2**30, 8, 8) == pytest.approx(320, rel=0.06)
    assert bus_gb_per_s("mi300x", "all_reduce", 2**30, 2, 2) == pytest.approx(48, rel=0.03)
    assert bus_gb_per_s("mi355x", "all_reduce", 2**30, 8, 8) == pytest.approx(0.75 * 7 * 76.8, rel=0.03)


@pytest.mark.parametrize("device", ["mi300x", "h100", "b200", "gb200", "a100-pcie-80gb", "gh200-96gb"])
def test_times_grow(device: str) -> None:
    """More bytes or more domains never take less time, and no bus bandwidth passes the links."""
    acc = _acc(device)
    node = collectives.node_of(acc, None)
    here = min(node.scale_up_gpus, 8)
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for ranks, per_node in ((here, here), (4 * here, here), (16, 1)):
            sizes = [float(2**exponent) for exponent in range(8, 34)]
            seconds = [collectives.time_s(acc, node, op, size, ranks, per_node).time_s for size in sizes]
            assert all(later >= 0.9999 * earlier for earlier, later in pairwise(seconds))
            assert seconds[-1] > 10 * seconds[0] > 0
        inside = collectives.time_s(acc, node, op, 2**28, here, here).time_s
        assert collectives.time_s(acc, node, op, 2**28, 2 * here, here).time_s > inside


def test_a_group_that_straddles_nodes_has_its_price() -> None:
    """Eight ranks over two nodes are slower than eight in one."""
    acc = _acc("h100")
    together = collectives.time_s(acc, None, "all_reduce", 2**26, 8, 8).time_s
    assert collectives.time_s(acc, None, "all_reduce", 2**26, 8, 4).time_s > 1.5 * together
