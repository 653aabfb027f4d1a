"""estimate-train-time (Perlmutter, Vista) and vTrain tables."""

from __future__ import annotations

import csv
import os
from typing import Any

from tools.hardware.tables import Ledger, Table, keep_one_in

SITES = {
    "Perlmutter": ("a100-80gb", "a100-4", "NVIDIAA100-SXM4-80GB"),
    "Vista": ("gh200-96gb", "gh200-1", "NVIDIAGH200120GB"),
}
# hidden size -> (n, k) of y[b*l, n] = x[b*l, k] on one of `mp` ranks
LINEARS = {
    "linear1": lambda dim, mp: (3 * dim / mp, dim),
    "linear2": lambda dim, mp: (dim, dim / mp),
    "linear3": lambda dim, mp: (4 * dim / mp, dim),
    "linear4": lambda dim, mp: (dim, 4 * dim / mp),
}
UNUSED = {
    "linear_final": "the vocabulary size is not stated",
    "embedding": "the vocabulary size is not stated",
    "parallel_cross_entropy": "the vocabulary size is not stated",
    "firstStage_optimizer": "the vocabulary size is not stated",
    "lastStage_optimizer": "the vocabulary size is not stated",
    "optimizer_fp16": "whole-model optimizer of a small model: launch-bound",
    "RMSlayernorm": "unfused kernel, 12-15 % of bandwidth: not what TransformerEngine or Primus-Turbo run",
    "layernorm": "unfused backward: not what TransformerEngine or Primus-Turbo run",
    "RoPE": "unfused kernel",
    "softmax": "unfused attention",
    "Softmax": "unfused attention",
    "fillmask": "unfused attention",
    "baddbmm": "unfused attention",
    "bmm": "unfused attention",
    "gelu": "one shape family; res_add already gives the share of bandwidth",
}
SIZE_STEP = 1.25  # collectives: stored sizes are at least this factor apart, per group


def estimate_train_time(root: str, ledger: Ledger) -> list[Table]:
    """Durations are microseconds, shapes fp16 elements; backward of a linear is dgrad plus wgrad."""
    found = []
    for site, (accelerator, node, stem) in SITES.items():
        folder = os.path.join(root, "estimate-train-time", site)
        gemm = Table("gemm", accelerator, "estimate-train-time", "one in 8; op bwd is dgrad plus wgrad")
        attention = Table("attention", accelerator, "estimate-train-time", "one in 8")
        memory = Table("memory", accelerator, "estimate-train-time")
        collective = Table("collective", node, "estimate-train-time", f"sizes at least {SIZE_STEP} apart per group")
        for name in sorted(os.listdir(os.path.join(folder, "operator"))):
            path = f"estimate-train-time/{site}/operator/{name}"
            rows = _numbers(root, path, ledger)
            kind = name[len(stem) + 1 :]
            linear = next((LINEARS[key] for key in LINEARS if kind.startswith(key + "_fp16")), None)
            if linear is not None:
                for row in rows:
                    n, k = linear(row["dim"], row["mp"])
                    shape = round(row["b"] * row["l"]), round(n), round(k)
                    gemm.rows.append(("fp16", "fwd", *shape, row["F_dur(us)"] * 1e-6))
                    gemm.rows.append(("fp16", "bwd", *shape, row["B_dur(us)"] * 1e-6))
            elif kind.startswith("flash_atten"):
                for row in rows:
                    _flash(attention, row)
            elif kind.startswith("res_add"):
                for row in rows:  # two tensors read, one written
                    moved = round(3 * 2 * row["b"] * row["l"] * row["dim"])
                    memory.rows.append(("residual_add", moved, row["F_dur(us)"] * 1e-6))
            elif kind.startswith("middleStage_optimizer"):
                for row in (
                    rows
                ):  # 12 h^2 parameters per encoder; 28 B: fp16 gradient in, three fp32 states in and out, fp16 out
                    moved = round(28 * 12 * row["dim"] ** 2 * row["encoders"] / row["mp"])
                    memory.rows.append(("optimizer", moved, row["dur(us)"] * 1e-6))
            else:
                reason = next((text for key, text in UNUSED.items() if key in kind), "not used")
                ledger.reject(path, reason, str(rows[0]), len(rows))
        for name in sorted(os.listdir(os.path.join(folder, "nccl"))):
            path = f"estimate-train-time/{site}/nccl/{name}"
            rows = _numbers(root, path, ledger)
            if "allgather" in name:
                reason = (
                    "the size convention is not stated, and rows of one site pass the link rate under either reading"
                )
                ledger.reject(path, reason, str(rows[0]), len(rows))
                continue
            op = "all_reduce" if "allreduce" in name else "p2p"
            for row in rows:
                spread = round(row["nodes"]), round(row["GPUsPerNode"])
                collective.rows.append((op, *spread, round(row["shape"] * 2), row["dur(us)"] * 1e-6))
        found += [gemm, attention, memory, collective]
    return found


def _flash(table: Table, row: dict[str, float]) -> None:
    dim, heads = round(row["dim"] / row["h"]), round(row["h"] / row["mp"])
    shape = round(row["b"]), heads, heads, round(row["l"]), dim, dim
    table.rows.append(("fp16", "forward", *shape, True, row["F_dur(us)"] * 1e-6))
    table.rows.append(("fp16", "backward", *shape, True, row["B_dur(us)"] * 1e-6))


class KeepSites:
    """Thinning of the site tables; collectives remember the last stored size of their group."""

    def __init__(self) -> None:
        self.last: dict[tuple[Any, ...], int] = {}

    def __call__(self, table: Table, row: tuple[Any, ...]) -> bool:
        if table.operation == "collective":
            group = (table.name, *row[:3])
            if row[3] < self.last.get(group, 0) * SIZE_STEP:
                return False
            self.last[group] = row[3]
            return True
        return table.operation == "memory" or keep_one_in(8, row[1:-1])


def vtrain(root: str, ledger: Ledger) -> list[Table]:
    """All-reduce of 2, 4, 8 GPUs of an A100 node: bytes, and nanoseconds out of place."""
    table = Table("collective", "hgx-a100-8", "vtrain", f"sizes at least {SIZE_STEP} apart per group")
    for group in (2, 4, 8):
        path = f"vtrain/a100_allreduce_gpu{group}.lut"
        with open(os.path.join(root, path), encoding="utf-8") as file:
            lines = file.read().splitlines()[1:]
        ledger.file(path, len(lines))
        for line in lines:
            cells = line.split(",")
            table.rows.append(("all_reduce", 1, group, int(cells[0]), float(cells[3]) * 1e-9))
    return [table]


def _numbers(root: str, path: str, ledger: Ledger) -> list[dict[str, float]]:
    with open(os.path.join(root, path), encoding="utf-8", newline="") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    ledger.file(path, len(rows))
    return rows
