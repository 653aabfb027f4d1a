"""Numbers worked out by hand: base units, and the formulas of the rates on a device with round figures."""

from __future__ import annotations

import pytest

from primus_lint.hardware import Accelerator, NodeType, accelerator, collectives, rates, runtime

GIB = 2**30


def device(**rate: object) -> Accelerator:
    """1,000 TFLOP/s, 1 TB/s."""
    gemm = {
        "launch": 1e-6, "math": 0.5, "bandwidth": 0.8, "dgrad": 1.1, "wgrad": 1.2, "peak": "bf16", "band": [0.9, 1.2],
        "tier": "fitted", **rate,
    }  # fmt: skip
    attention = {"launch": 1e-5, "math": 0.5, "bandwidth": 0.5, "ratio": 1.0, "band": [0.9, 1.1], "tier": "fitted"}
    slower = {**attention, "ratio": 3.0}
    return Accelerator(
        "round",
        {
            "title": "Round", "vendor": "none", "arch": "", "nodes": ["n"], "nominal": 1, "visible": [1, 1, 1],
            "bandwidth": 1e12, "units": None, "peak": {"bf16": 1e15, "fp8": 2e15}, "achievable": {},
            "context": [100, 200], "communicator": [10, 50],
            "rates": {
                "gemm": {"bf16": gemm, "fp8": {**gemm, "peak": "fp8", "quantize": 0.5}},
                "grouped_gemm": {"bf16": {"fwd": gemm, "dgrad": gemm, "wgrad": gemm}},
                "attention": {"forward": {"causal": {"128": attention}}, "backward": {"causal": {"128": slower}}},
                "memory": {"elementwise": {"share": 0.8, "band": [0.9, 1.1], "tier": "constant"}},
            },
        },
    )  # fmt: skip


def test_visible_bytes() -> None:
    """MI300X as rocm-smi shows it; MI325X and MI355X are 256 and 288 GiB less the same 16 MiB."""
    for name, total_gib in (("mi300x", 192), ("mi325x", 256), ("mi355x", 288)):
        found = accelerator(name)
        assert found is not None and found.visible_hbm_bytes == total_gib * GIB - 16 * 2**20
    mi300x, h100, b200 = accelerator("mi300x"), accelerator("h100"), accelerator("b200")
    assert mi300x is not None and mi300x.visible_hbm_bytes == 206_141_652_992
    # torchtitan issue 1789: 73.32 GiB is 92.7 % of an H100-80; a public B200 log says 178 GiB
    assert h100 is not None and h100.visible_hbm_bytes == pytest.approx(73.32 / 0.927 * GIB, rel=6e-4)
    assert b200 is not None and round(b200.visible_hbm_bytes / GIB) == 178
    low, high = h100.visible_hbm_band_bytes
    assert low < h100.visible_hbm_bytes < high


def test_base_units() -> None:
    mi355x = accelerator("mi355x")
    assert mi355x is not None
    assert mi355x.peak_flops["bf16"] == pytest.approx(2.5166e15) and mi355x.memory_bytes_per_s == 8e12
    assert mi355x.achievable_flops["bf16"] == 1.565e15 and mi355x.compute_units == 256 and mi355x.arch == "gfx950"


def test_gemm_bound_by_math() -> None:
    """2 * 4096^3 = 137,438,953,472 FLOP over 500 TFLOP/s = 274.88 us; bytes 3 * 2 * 4096^2 = 100.7 MB over 800 GB/s = 125.8 us."""
    found = rates.gemm_time_s(device(), "bf16", 4096, 4096, 4096)
    assert found.time_s == pytest.approx(1e-6 + 137_438_953_472 / 5e14)
    assert (found.low, found.high, found.tier) == (0.9, 1.2, "fitted")
    assert rates.gemm_time_s(device(), "bf16", 4096, 4096, 4096, "dgrad").time_s == pytest.approx(1.1 * found.time_s)


def test_gemm_bound_by_memory() -> None:
    """[4096,256] x [256,4096]: 8.59 GFLOP = 17.2 us; bytes 2*(2*4096*256) + 2*4096^2 = 37.7 MB over 800 GB/s = 47.2 us."""
    found = rates.gemm_time_s(device(), "bf16", 4096, 4096, 256)
    assert found.time_s == pytest.approx(1e-6 + (2 * (2 * 4096 * 256) + 2 * 4096**2) / 8e11)
    # wgrad reads and writes the fp32 gradient: 8 bytes an element of the output
    wgrad = rates.gemm_time_s(device(), "bf16", 4096, 4096, 256, "wgrad")
    assert wgrad.time_s == pytest.approx(1.2 * (1e-6 + (2 * (2 * 4096 * 256) + 8 * 4096**2) / 8e11))


def test_fp8_quantizes_activations() -> None:
    """2*8192^3 FLOP over 1,000 TFLOP/s = 1,099.5 us, plus 3 * 8192^2 bytes over 500 GB/s = 402.7 us."""
    found = rates.gemm_time_s(device(), "fp8", 8192, 8192, 8192)
    assert found.time_s == pytest.approx(1e-6 + 2 * 8192**3 / 1e15 + 3 * 8192**2 / 5e11)
    wgrad = rates.gemm_time_s(device(), "fp8", 8192, 8192, 8192, "wgrad")
    assert wgrad.time_s == pytest.approx(1.2 * (1e-6 + 2 * 8192**3 / 1e15))


def test_linear_dimensions() -> None:
    """y[t,o] = x[t,i] W: all three products have 2*t*i*o FLOPs; dgrad writes [t,i], wgrad [o,i]."""
    forward, dgrad, wgrad = rates.linear_times_s(device(), "bf16", 16384, 8192, 8192)
    busy = 2 * 16384 * 8192 * 8192 / 5e14
    assert [part.time_s for part in (forward, dgrad, wgrad)] == pytest.approx(
        [1e-6 + busy, 1.1 * (1e-6 + busy), 1.2 * (1e-6 + busy)]
    )


def test_grouped_gemm_adds_weights() -> None:
    """8 x [512,2048]x[2048,1024]: 17.18 GFLOP / 500 T = 34.4 us, plus 2*8*(512*2048 + 2048*1024 + 512*1024) B = 58.7 MB / 800 G."""
    found = rates.grouped_gemm_time_s(device(), "bf16", 8, 512, 1024, 2048)
    moved = 2 * 8 * (512 * 2048 + 2048 * 1024 + 512 * 1024)
    assert found.time_s == pytest.approx(1e-6 + 2 * 8 * 512 * 1024 * 2048 / 5e14 + moved / 8e11)


def test_attention() -> None:
    """Causal, 32 heads, 8 KV heads, 4096 tokens, 128 wide: half of 2*32*4096^2*256 FLOP; q, out 32 and k, v 8 heads wide."""
    found = rates.attention_time_s(device(), "bf16", 1, 32, 8, 4096, 4096, 128, 128)
    flops, moved = 32 * 4096**2 * 256, 2 * 4096 * (32 + 8) * 256
    assert found.time_s == pytest.approx(1e-5 + flops / 5e14 + moved / 5e11)
    whole = rates.attention_time_s(device(), "bf16", 1, 32, 8, 4096, 4096, 128, 128, causal=False)
    assert whole.time_s == pytest.approx(1e-5 + 2 * flops / 5e14 + moved / 5e11)
    backward = rates.attention_time_s(device(), "bf16", 1, 32, 8, 4096, 4096, 128, 128, direction="backward")
    assert backward.time_s == pytest.approx(3 * found.time_s)  # a device without backward rows: a multiple


def test_memory_and_runtime() -> None:
    assert rates.memory_time_s(device(), 8e9).time_s == pytest.approx(10e-3)  # 8 GB over 800 GB/s
    assert rates.memory_time_s(device(), 8e9, "unheard-of").time_s == pytest.approx(10e-3)
    assert runtime.runtime_bytes(device(), 3) == (100 + 3 * 10, 200 + 3 * 50)


def node() -> NodeType:
    """8 GPUs; a flat 10 us + volume / 100 GB/s would not be log-linear, so the curve is 2**k us at 2**k MiB and flat below."""
    flat = [1e-6] * 12 + [1e-6 * 2.0**step for step in range(9)]  # 2^9 .. 2^20 B: 1 us; 2^21: 1 us, ... 2^29: 256 us
    ops = {op: {"2": flat, "4": flat, "8": flat} for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")}
    shares = {op: [0.5, 0.8, 1.5] for op in (*ops, "p2p")}
    return NodeType(
        "round",
        {
            "gpus_per_node": 8, "scale_up_gpus": 8, "fabric": "f", "fabric_kind": "switch", "fabric_rate": 1e12,
            "network": "n", "nic_rate": 50e9, "nics": 8, "host_memory": None, "note": "",
            "host_operation": [60e-6, 30e-6, 90e-6],
            "curves": {"ops": {**ops, "p2p": {"2": flat}}, "band": [0.9, 1.1], "tier": "measured", "source": "s"},
            "inter": {
                "base": 1e-5, "network_hop": 4e-6, "peer": 3e-6, **shares,
                "ring": [[5e-6, 1e-7, 2e-6, 0.5, 5e9], [1e-5, 1e-6, 4e-6, 1.0, 1e15]],  # a quick and a wide protocol
                "tree": [[2e-5, 1e-6, 8e-6, 0.9, 1e15]],
            },
        },
    )  # fmt: skip


def test_collective_inside_a_node() -> None:
    found = collectives.time_s(device(), node(), "all_reduce", 2**26, 8, 8)
    assert found.time_s == pytest.approx(32e-6) and found.tier == "measured"
    assert collectives.time_s(device(), node(), "all_reduce", 64, 8, 8).time_s == pytest.approx(1e-6)
    assert collectives.time_s(device(), node(), "all_reduce", 2**31, 8, 8).time_s == pytest.approx(4 * 256e-6)
    # geometric middle between 16 and 32 us
    assert collectives.time_s(device(), node(), "all_reduce", 2**25.5, 8, 8).time_s == pytest.approx(16e-6 * 2**0.5)
    assert collectives.time_s(device(), node(), "all_reduce", 2**26, 1, 1).time_s == 0.0


def test_collective_between_nodes() -> None:
    """16 ranks, 8 a node: 2 * 15/16 * 4 GB = 7.5 GB over 8 NICs of 50 GB/s at one half = 200 GB/s (the links inside reach
    more): 37.5 ms; a ring of 30 steps, 2 of them between nodes: 10 us + 28 * 1 us + 2 * 4 us."""
    found = collectives.time_s(device(), node(), "all_reduce", 4e9, 16, 8)
    assert found.time_s == pytest.approx(37.5e-3 + 10e-6 + 28e-6 + 8e-6)
    assert (found.low, found.high, found.tier) == (0.8, 1.5, "constant")
    # one rank a node: every rank has its own NIC at 25 GB/s; 2 * 3/4 * 1 GB = 1.5 GB: 60 ms, six steps between nodes
    alone = collectives.time_s(device(), node(), "all_reduce", 1e9, 4, 1)
    assert alone.time_s == pytest.approx(60e-3 + 10e-6 + 6 * 4e-6)
    # small: the quick protocol, 5 us + 6 * 2 us + 1.5 kB at 5 GB/s
    small = collectives.time_s(device(), node(), "all_reduce", 1e3, 4, 1)
    assert small.time_s == pytest.approx(5e-6 + 12e-6 + 0.3e-6)
    # 64 single ranks: the tree, 20 us + 2 * 6 levels * 8 us, against a ring of 126 steps
    tree = collectives.time_s(device(), node(), "all_reduce", 1e3, 64, 1)
    assert tree.time_s == pytest.approx(20e-6 + 96e-6 + 2 * 63 / 64 * 1e3 / (25e9 * 0.9))
    # all-to-all of 1 GB: half of it leaves the node, through this rank's NIC at 25 GB/s: 20 ms; 8 remote peers
    exchange = collectives.time_s(device(), node(), "all_to_all", 1e9, 16, 8)
    assert exchange.time_s == pytest.approx(20e-3 + 10e-6 + 4e-6 + 8 * 3e-6)
    gather = collectives.time_s(device(), node(), "all_gather", 4e9, 16, 8)
    assert gather.time_s == pytest.approx(15 / 16 * 4e9 / 200e9 + 10e-6 + 14e-6 + 4e-6)


def test_slow_links_inside_bound_a_ring() -> None:
    """The curve's last point is 2^29 B in 256 us: 1.75 * 2^29 / 256 us = 3.67 TB/s; 16 NICs would give more."""
    wide = node()
    wide.nic_bytes_per_s = 1e12
    found = collectives.time_s(device(), wide, "all_reduce", 2.0**34, 16, 8)
    rate = 1.75 * 2**29 / 256e-6
    assert found.time_s == pytest.approx(2 * 15 / 16 * 2**34 / rate + 46e-6)


def test_send() -> None:
    assert collectives.send_time_s(device(), node(), 2**26, 0).time_s == pytest.approx(32e-6)
    assert collectives.send_time_s(device(), node(), 1e9, 1).time_s == pytest.approx(40e-3 + 10e-6 + 4e-6)
