"""`python -m tests.fuzz.batch --count 5000`: hostile batch requests. Each must be answered, never raise.

Real recipes with some argument replaced by another type, an extreme number, or something of no sense.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from primus_lint.evaluate import evaluate

ROOT = Path(__file__).resolve().parents[2]
LABELLED = ROOT.parent / "shared" / "legality" / "labelled.jsonl"
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 7, 2**31, 2**70, -(2**70), 0.5, 1e308, float("inf"), float("nan"), "", "8", "1e-5",
    "auto", "fp8", "full", "bf16", [], [1], [0, 0], ["a"], [[1]], {}, {"a": 1}, "x" * 10_000, [1] * 10_000,
]  # fmt: skip


def requests(count: int, seed: int) -> Any:
    """Mutated requests over real recipes (or over one of our own when the shared data is absent)."""
    rng = random.Random(seed)
    if LABELLED.is_file():
        cases = [json.loads(line)["args"] for line in LABELLED.read_text(encoding="utf-8").splitlines()[::7]]
    else:
        cases = [{"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 8192, "bf16": True,
                  "micro_batch_size": 1, "global_batch_size": 64, "train_iters": 10, "lr": 1e-4,
                  "max_position_embeddings": 8192, "vocab_size": 32000, "mock_data": True}]  # fmt: skip
    keys = sorted({key for case in cases for key in case})
    for number in range(count):
        args = dict(rng.choice(cases))
        for _ in range(rng.choice((1, 1, 2, 5))):
            args[rng.choice(keys) if rng.random() < 0.9 else "nonsense_" + str(number)] = rng.choice(VALUES)
        request: dict[str, Any] = {
            "id": number,
            "framework": rng.choice(["megatron", "megatron", "primus-megatron"]),
            "version": rng.choice([None, "d3528a21", "d98e8a64", "core-0.16.1"]),
            "args": args,
            "target": {
                "gpu": rng.choice([None, "h100", "mi300x", "mi355x"]),
                "world_size": rng.choice([None, 1, 8, 64, 1000]),
            },
        }
        if rng.random() < 0.1:
            request[rng.choice(["target", "args", "env", "stack", "model", "version", "framework"])] = rng.choice(
                VALUES
            )
        if rng.random() < 0.05:
            request["target"] = {rng.choice(["gpu", "world_size", "gpus_per_node"]): rng.choice(VALUES)}
        yield request


def survive(request: Any) -> str | None:
    """The traceback of a request that raised, or None."""
    try:
        answer = evaluate(request)
        json.dumps(answer, default=str)
        if str(answer["error"]).startswith("internal error"):
            return f"{json.dumps(request, default=str)[:1500]}\n{answer['error']}"
        if answer["ok"] and answer["error"] is not None:
            return f"{request['id']}: ok, but with an error"
        if not answer["ok"] and not answer["error"]:
            return f"{request['id']}: not ok, and no reason"
    except Exception:
        return f"{json.dumps(request, default=str)[:1500]}\n{traceback.format_exc(limit=-5)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    failures = []
    slowest = (0.0, -1)
    for request in requests(arguments.count, arguments.seed):
        begin = time.perf_counter()
        failure = survive(request)
        slowest = max(slowest, (time.perf_counter() - begin, request["id"]))
        if failure:
            failures.append(failure)
    for failure in failures[:10]:
        print(failure, file=sys.stderr)
    took = time.perf_counter() - start
    print(
        f"{arguments.count} requests in {took:.0f} s, {len(failures)} raised; slowest {slowest[0]:.2f} s (number {slowest[1]})"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
