"""What others wrote down: Primus artefacts, nccl-tests and rccl-tests, hipblaslt-bench and rocblas-bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primus_lint.ir.run import Run
from primus_lint.measure.errors import MeasureError
from primus_lint.measure.imports import Given, read
from primus_lint.measure.plan import layer_shape
from tests.projection.recipes import run

RANKS = "\n".join(
    f"#  Rank {i:2} Group  0 Pid   {100 + i} on    node{i // 4} device {i % 4:2} [0x{i:02x}] NVIDIA H100 80GB HBM3"
    for i in range(8)
)
ALL_REDUCE = f"""# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Using devices
{RANKS}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    52.30   20.05   35.09      0    51.10   20.52   35.91      0
     2097152        524288     float     sum      -1    80.00   26.21   45.87      0    79.00   26.55   46.45    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 40.8
"""
HIPBLASLT = """hipblaslt-bench -m 28672 -n 4096 -k 4096 --transA T --transB N --a_type bf16_r --b_type bf16_r --iters 50
[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,beta,ldb,ldc,ldd,a_type,b_type,c_type,d_type,compute_type,hipblaslt-Gflops,hipblaslt-GB/s,us
    T,N,0,1,28672,4096,4096,1,4096,0,4096,28672,28672,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,550000,300,1749.2
    N,N,0,8,4096,2048,1408,1,4096,0,1408,4096,4096,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,400000,300,472.5
"""
ROCBLAS = """rocblas-bench -f gemm_ex --transposeA N --transposeB T --a_type f16_r -m 4096 -n 28672 -k 8192 -i 10
transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,rocblas-Gflops,us
N,T,4096,28672,8192,1,4096,0,28672,4096,500000,3848.3
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_log_of_nccl_tests(tmp_path: Path) -> None:
    """8 ranks on 2 hosts; the name of the file says the operation, the ranks say the device."""
    rows = read(written(tmp_path, "all_reduce_perf.log", ALL_REDUCE), Given())
    assert [(row.operation, row.device, row.shape, row.median_s, row.repetitions) for row in rows] == [
        ("all_reduce", "h100", {"bytes": 1048576, "ranks": 8, "nodes": 2}, pytest.approx(52.3e-6), 20),
        ("all_reduce", "h100", {"bytes": 2097152, "ranks": 8, "nodes": 2}, pytest.approx(80e-6), 20),
    ]


def test_a_log_says_its_collective_itself_or_is_asked(tmp_path: Path) -> None:
    started = ALL_REDUCE.replace("# Using devices", "# Collective test starting: alltoall_perf\n# Using devices")
    assert {row.operation for row in read(written(tmp_path, "a.log", started), Given())} == {"all_to_all"}
    with pytest.raises(MeasureError, match="--operation"):
        read(written(tmp_path, "b.log", ALL_REDUCE), Given())
    given = Given(device="mi300x", operation="p2p")
    rows = read(written(tmp_path, "c.log", ALL_REDUCE), given)
    assert (rows[0].device, rows[0].shape) == ("mi300x", {"bytes": 1048576, "ranks": 2, "nodes": 2})
    with pytest.raises(MeasureError, match="lists no ranks"):
        read(written(tmp_path, "all_reduce.log", ALL_REDUCE.replace("#  Rank", "#  rank")), Given())


def test_logs_of_blas_benchmarks(tmp_path: Path) -> None:
    """hipBLASLt's 28672 x 4096 result is ours of 4,096 rows; 8 batches N,N are the input gradient of 8 experts with
    2,048 rows: [2048, 1408] x [1408, 4096], of a forward [2048, 4096] x [4096, 1408]."""
    rows = read(written(tmp_path, "gemm.log", HIPBLASLT), Given("mi300x"))
    assert [(row.operation, row.dtype, row.layout, row.repetitions) for row in rows] == [
        ("gemm", "bf16", "TN", 50), ("grouped_gemm", "bf16", "NN", 50),
    ]  # fmt: skip
    assert rows[0].shape == {"m": 4096, "n": 28672, "k": 4096}
    assert rows[0].median_s == pytest.approx(1749.2e-6)
    assert rows[1].shape == {"groups": 8, "calls": 1, "m": 2048, "n": 1408, "k": 4096}
    rows = read(written(tmp_path, "rocblas.log", ROCBLAS), Given("mi300x"))
    assert [(row.dtype, row.layout, row.shape) for row in rows] == [("fp16", "NT", {"m": 28672, "n": 4096, "k": 8192})]
    with pytest.raises(MeasureError, match="--gpu"):
        read(written(tmp_path, "gemm.log", HIPBLASLT), Given())


def artefact(**metadata: Any) -> str:
    layer = {"forward_time_ms": 3.0, "backward_time_ms": 6.0}
    moe = {
        **layer, "type": "moe", "attention": {**layer},
        "mlp": {**layer, "a2a_forward_time_ms": 0.5, "a2a_backward_time_ms": 1.0},
    }  # fmt: skip
    return json.dumps(
        {
            "schema_version": 2,
            "metadata": {
                "benchmark_ep": 2, "benchmark_tp": 1, "benchmark_pp": 1, "original_ep": 8, "original_tp": 1,
                "benchmark_num_experts": 32, "gpu_arch": "gfx942:sramecc+:xnack-",
                "framework_versions": {"torch": "2.9.0", "primus": "26.9"}, **metadata,
            },
            "profiling_results": {"0": moe, "embedding": {**layer}, "output": {**layer}, "_tp_allreduce_benchmark": {}},
            "memory_results": None,
        }
    )  # fmt: skip


def recipe() -> Run:
    return run("qwen3-30b-a3b", gpu="mi300x", world_size=8, expert_model_parallel_size=8)


def test_a_primus_artefact(tmp_path: Path) -> None:
    """Its all-to-all is taken off; the experts are those of the benchmark (32 over 2 ranks: 16 on each, as 128 over 8)."""
    rows = read(written(tmp_path, "bench.json", artefact()), Given("mi300x", recipe()))
    found = {(row.operation, row.layout): row for row in rows}
    forward = found["moe_layer", "forward"]
    assert forward.median_s == pytest.approx(2.5e-3)
    assert found["moe_layer", "backward"].median_s == pytest.approx(5e-3)
    assert (forward.shape["ep"], forward.shape["num_experts"]) == (2, 32) and "communication" not in forward.shape
    wanted = layer_shape(recipe(), "moe_layer")
    assert {key: forward.shape[key] for key in wanted if key not in ("ep", "num_experts")} == {
        key: wanted[key] for key in wanted if key not in ("ep", "num_experts")
    }
    assert forward.stack == "primus 26.9, torch 2.9.0"
    assert found["gemm", "TN"].shape["k"] == 2048 and ("gemm", "NN") not in found
    assert ("embedding", "backward") in found


def test_an_artefact_with_tensor_parallelism_keeps_its_collectives(tmp_path: Path) -> None:
    rows = read(written(tmp_path, "bench.json", artefact(benchmark_tp=2)), Given("mi300x", recipe()))
    layer = next(row for row in rows if row.operation == "moe_layer" and row.layout == "forward")
    assert layer.median_s == pytest.approx(3e-3) and layer.shape["communication"] == 1 and layer.shape["tp"] == 2


def test_an_artefact_needs_its_recipe_and_a_device(tmp_path: Path) -> None:
    path = written(tmp_path, "bench.json", artefact())
    with pytest.raises(MeasureError, match="does not hold the model"):
        read(path, Given("mi300x"))
    with pytest.raises(MeasureError, match="mi300x, mi325x"):  # both are gfx942
        read(path, Given(None, recipe()))
    with pytest.raises(MeasureError, match="benchmark_tp"):
        read(written(tmp_path, "bad.json", artefact(benchmark_tp="two")), Given("mi300x", recipe()))


def test_a_layer_of_an_fp8_recipe_is_an_fp8_layer(tmp_path: Path) -> None:
    fp8 = run("llama3-8b", gpu="mi300x", world_size=8, fp8="hybrid")
    path = written(tmp_path, "bench.json", artefact(benchmark_ep=1).replace('"moe"', '"dense"'))
    dtypes = {row.operation: row.dtype for row in read(path, Given("mi300x", fp8))}
    assert dtypes == {"dense_layer": "fp8", "embedding": "bf16", "gemm": "bf16"}


def test_tables_of_the_hardware_database() -> None:
    """The H100 has [1024, 2048] x [2048, 1024] in 10.21 us (see the table); attention is kept where it is causal."""
    folder = Path(__file__).resolve().parents[2] / "hardware_db" / "measured"
    rows = read(str(folder / "gemm.h100.aiconfigurator.jsonl"), Given())
    first = next(row for row in rows if row.dtype == "bf16" and row.shape == {"m": 1024, "n": 1024, "k": 2048})
    assert (first.device, first.layout, first.median_s) == ("h100", "TN", 1.021e-5)
    rows = read(str(folder / "attention.mi300x.primus-turbo.jsonl"), Given())
    assert {row.layout for row in rows} == {"causal forward"} and len(rows) == 39
    with pytest.raises(MeasureError, match="as it is"):
        read(str(folder / "collective.hgx-h100-8.aiconfigurator.jsonl"), Given())


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"a": 1}', "[1, 2]", "busbw", "x-Gflops\nus"])
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(MeasureError):
        read(written(tmp_path, "file", text), Given("h100", recipe()))
