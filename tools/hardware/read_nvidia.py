"""AIConfigurator and SimuMax tables."""

from __future__ import annotations

import csv
import json
import os
from typing import Any

from tools.hardware.tables import Ledger, Table, keep_one_in

DEVICES = {
    "a100_sxm": ("a100-80gb", "hgx-a100-8"), "h100_sxm": ("h100", "hgx-h100-8"), "h200_sxm": ("h200", "hgx-h200-8"),
    "b200_sxm": ("b200", "hgx-b200-8"), "gb200": ("gb200", "gb200-nvl72"),
}  # fmt: skip
DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}
NCCL = {"half": 2, "int8": 1}
OPS = {"alltoall": "all_to_all"}
GEMM_M = frozenset({512, 768, 1024, 2048, 4096, 8192, 16384, 32768})
SIMUMAX = {"b200_bf16_ceperm": ("b200", 2250e12), "a100_pcie": ("a100-pcie-80gb", 312e12)}
LAYOUTS = {"TN": "fwd", "NN": "dgrad", "NT": "wgrad"}
STAGES = {"fwd": "fwd", "bwd_grad_act": "dgrad", "bwd_grad_w": "wgrad"}


def aiconfigurator(root: str, ledger: Ledger) -> list[Table]:
    """GEMM, attention and NCCL tables. Latencies are ms; NCCL message sizes are elements of the whole tensor."""
    found = []
    folder = os.path.join(root, "aiconfigurator")
    for device, (accelerator, node) in DEVICES.items():
        gemm = Table("gemm", accelerator, "aiconfigurator", "m in powers of two from 512 to 32768, and 768")
        for row in _csv(folder, f"{device}_gemm.csv", ledger):
            shape = int(row["m"]), int(row["n"]), int(row["k"])
            gemm.rows.append((DTYPES[row["gemm_dtype"]], "fwd", *shape, float(row["latency"]) * 1e-3))
        attention = Table(
            "attention", accelerator, "aiconfigurator",
            "head dimension up to 256, batch up to 8, at least 8192 tokens x heads, one in 4",
        )  # fmt: skip
        name = f"{device}_attention_fwd.csv"
        for row in _csv(folder, name, ledger):
            dim = int(row["head_dim"])
            if int(row["window_size"]) != 0:
                ledger.reject(f"aiconfigurator/{name}", "windowed attention is not modelled", str(row))
                continue
            sizes = int(row["batch_size"]), int(row["num_heads"]), int(row["num_key_value_heads"]), int(row["isl"])
            attention.rows.append(("bf16", "forward", *sizes, dim, dim, True, float(row["latency"]) * 1e-3))
        collective = Table("collective", node, "aiconfigurator", "16-bit elements only")
        name = f"{device}_nccl.csv"
        for row in _csv(folder, name, ledger):
            if row["nccl_dtype"] != "half":
                ledger.reject(f"aiconfigurator/{name}", "same byte sizes as the 16-bit rows", str(row))
                continue
            size = int(row["message_size"]) * NCCL[row["nccl_dtype"]]
            collective.rows.append(
                (OPS.get(row["op_name"], row["op_name"]), 1, int(row["num_gpus"]), size, float(row["latency"]) * 1e-3)
            )
        found += [gemm, attention, collective]
    return found


def keep_aiconfigurator(table: Table, row: tuple[Any, ...]) -> bool:
    """The thinning that the tables name."""
    if table.operation == "gemm":
        return row[2] in GEMM_M
    if table.operation == "attention":
        batch, heads, seq, dim = row[2], row[3], row[5], row[6]
        return dim <= 256 and batch <= 8 and batch * heads * seq >= 8192 and keep_one_in(4, row[2:7])
    return True


def simumax(root: str, ledger: Ledger) -> list[Table]:
    """Efficiencies of the stated peak. Attention counts the whole square of scores although its kernel is causal, and
    five products backward against two forward: its times come from those FLOPs."""
    found = []
    for stem, (accelerator, peak) in SIMUMAX.items():
        path = f"simumax/{stem}.json"
        with open(os.path.join(root, path), encoding="utf-8") as file:
            ops = json.load(file)["accelerator"]["op"]
        gemm, grouped = Table("gemm", accelerator, "simumax"), Table("grouped_gemm", accelerator, "simumax")
        attention = Table("attention", accelerator, "simumax", "contiguous q, k, v only")
        for key, share in _factors(ops, "matmul", path, ledger):
            if LAYOUTS[key["layout"]] == "wgrad" and key["out_dtype"] != "fp32":
                ledger.reject(path, "wgrad into a 16-bit gradient: Megatron accumulates in fp32", str(key))
                continue
            b, m, n, k = (int(key[name]) for name in ("b", "m", "n", "k"))
            gemm.rows.append(("bf16", LAYOUTS[key["layout"]], b * m, n, k, 2.0 * b * m * n * k / (share * peak)))
        for key, share in _factors(ops, "group_matmul", path, ledger):
            groups, m, n, k = (int(key[name]) for name in ("ng", "M", "N", "K"))
            seconds = 2.0 * groups * m * n * k / (share * peak)
            grouped.rows.append(("bf16", STAGES[key["stage"]], groups, m, n, k, seconds))
        for name, direction, products in (("sdp_fwd", "forward", 2), ("sdp_bwd", "backward", 5)):
            for key, share in _factors(ops, name, path, ledger):
                if key["qkv_contiguous"] != "True":
                    ledger.reject(path, "strided q, k, v: same times as contiguous within 5 %", str(key))
                    continue
                batch, seq, heads, kv_heads, dim_qk, dim_v = (
                    int(key[part])
                    for part in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
                )
                counted = float(products) * batch * seq * seq * heads * (dim_qk + dim_v)
                shape = batch, heads, kv_heads, seq, dim_qk, dim_v
                attention.rows.append(("bf16", direction, *shape, True, counted / (share * peak)))
        found += [gemm, grouped, attention]
    return found


def _factors(ops: dict[str, Any], name: str, path: str, ledger: Ledger) -> list[tuple[dict[str, str], float]]:
    table = ops[name]["accurate_efficient_factor"]
    ledger.file(path, len(table))
    return [(dict(part.split("=") for part in key.split(", ")), share) for key, share in table.items()]


def _csv(folder: str, name: str, ledger: Ledger) -> list[dict[str, str]]:
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ledger.file(f"{os.path.basename(folder)}/{name}", len(rows))
    return rows
