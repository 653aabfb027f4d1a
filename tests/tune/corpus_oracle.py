"""Tuned recipes before the real Megatron: `ORACLE_PYTHON -m tests.tune.corpus_oracle CORPUS.json`, of `tests.tune.corpus`.

The real objects are built for the first and the last rank of every tuned recipe (by Megatron-Core and TransformerEngine,
in the environment of the extra `oracle`): what they refuse is counted, and their states must have the bytes that the
ledger gave the search. Adapters of LoRA (asked in tests/oracle) and stages in V shape are Primus's: there only what is
refused counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from primus_lint.ir.run import Run
from primus_lint.ledger import lora
from primus_lint.pipeline import Options, check_source
from primus_lint.schedules.events import FOLDED_KINDS
from primus_lint.source.text import SourceText
from primus_lint.subject import Subject
from tests.oracle.ask import ask, why_not
from tests.oracle.compare import states_of, theirs
from tests.oracle.recipes import question
from tests.tune.corpus import ROOT


def subject_of(row: dict[str, Any]) -> Subject:
    """The tuned recipe of a row, read anew."""
    source = SourceText.from_bytes(str(ROOT / row["path"]), row["text"].encode())
    return check_source(source, Options(world_size=row["world_size"])).subjects[0]


def arguments(subject: Subject) -> dict[str, Any]:
    """The effective arguments; DeepEP, which is not installed there and holds no states, stands as all-to-all."""
    assert subject.run is not None
    args = {**subject.lowered.namespace, "vocab_size": subject.run.model.vocab_size}  # that of the tokenizer
    args["grad_reduce_in_bf16"] = subject.run.precision.grads_dtype == "bf16"  # the one flag that the oracle has for it
    if args.get("recompute_layer_ids"):  # Primus's list of layers, instead of a method; it changes no state
        args |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    if args.get("num_experts"):
        args["moe_ffn_hidden_size"] = args.get("moe_ffn_hidden_size") or args["ffn_hidden_size"]
        if args["moe_token_dispatcher_type"] == "flex":
            args["moe_token_dispatcher_type"] = "alltoall"
    return args


def as_megatron(run: Run) -> bool:
    """Whether a rank holds what Megatron without Primus would give it."""
    return not lora.enabled(run) and run.schedule.kind not in FOLDED_KINDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(reason)
        return 2
    rows = [row for row in json.loads(given.rows.read_text()) if row.get("outcome") == "tuned"][:: given.every]
    asked = []
    for row in rows:
        subject = subject_of(row)
        if subject.run is not None and subject.run.optimizer.sharding in ("none", "distributed"):
            asked += [(row, subject, rank) for rank in (0, row["world_size"] - 1)]
    answers = ask(
        [question("megatron_state", arguments(subject), row["world_size"], rank) for row, subject, rank in asked]
    )
    refused, different, equal, built = [], [], 0, 0
    for (row, subject, rank), answer in zip(asked, answers, strict=True):
        name = f"{row['path']} rank {rank}"
        if "error" in answer:
            refused.append(f"{name}: {answer['error']}")
            continue
        assert subject.run is not None
        mine, real = states_of(subject.run, row["world_size"], rank), theirs(answer["answer"])
        if not as_megatron(subject.run):
            built += 1
            continue
        keys = [
            key for key in mine if key != "buckets" and mine[key] != real[key]
        ]  # Primus-Turbo's experts: other buckets
        equal += not keys
        if keys:
            different.append(f"{name}: {keys}")
    print(
        f"{len(rows)} tuned recipes, {len(asked)} ranks asked, {len(refused)} refused, {equal} equal to the byte, "
        f"{len(different)} different, {built} built with stages or adapters that Megatron alone has not"
    )
    print("\n".join([*refused, *different]))
    return int(bool(refused or different))


if __name__ == "__main__":
    raise SystemExit(main())
