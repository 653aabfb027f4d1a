"""`python -m tests.validation oracle`: our bytes against the real Megatron-Core and TransformerEngine objects.

States: more than 500 (recipe, rank) pairs of a seeded sample; activations: every case of tests/oracle. Needs the extra
`oracle` and ../shared/oracle; takes about 15 minutes on two cores.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.oracle.activation_cases import all_cases
from tests.oracle.ask import ask, why_not
from tests.oracle.compare import our_activations, ours, their_activations, theirs
from tests.oracle.grid import pairs
from tests.oracle.recipes import question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAIRS = int(os.environ.get("ORACLE_PAIRS", "560"))
BYTE_FIELDS = ("param_buffer_bytes", "grad_buffer_bytes", "main", "exp_avg", "exp_avg_sq")


def run(paths: Sequence[str], out: Callable[[str], None] = print) -> dict[str, Any]:
    """`pairs`, `bytes_compared`, `bytes_different` of the states, and the same of the activations."""
    reason = why_not()
    if reason is not None:
        return {"error": reason, "pairs": 0, "bytes_compared": 0, "bytes_different": None}
    result: dict[str, Any] = _states(out)
    result["activations"] = _activations(out)
    return result


def _states(out: Callable[[str], None]) -> dict[str, Any]:
    sample = pairs(PAIRS)
    answers = ask([question("megatron_state", p.args, p.world, p.rank) for p in sample])
    compared = different = done = 0
    refused: dict[str, int] = {}
    wrong = []
    for pair, answer in zip(sample, answers, strict=True):
        if "error" in answer:
            refused[answer["error"]] = refused.get(answer["error"], 0) + 1
            continue
        done += 1
        mine, real = ours(pair), theirs(answer["answer"])
        compared += sum(real[name] for name in BYTE_FIELDS)
        off = sum(abs(mine[name] - real[name]) for name in BYTE_FIELDS)
        different += off
        if mine != real:
            wrong.append({"world": pair.world, "rank": pair.rank, "ours": mine, "real": real})
    out(f"states: {done} pairs, {compared:,} bytes compared, {different:,} different, {len(wrong)} pairs unequal")
    for reason, count in refused.items():
        out(f"  upstream refuses {count}: {reason}")
    return {
        "pairs": done, "bytes_compared": compared, "bytes_different": different, "unequal": wrong, "refused": refused,
    }  # fmt: skip


def _activations(out: Callable[[str], None]) -> dict[str, Any]:
    cases = all_cases()
    questions = [question("megatron_activations", args, world, 0, extra) for args, world, extra in cases.values()]
    compared = different = done = 0
    wrong = []
    for name, answer in zip(cases, ask(questions), strict=True):
        args, world, _ = cases[name]
        if "error" in answer:
            wrong.append({"case": name, "error": answer["error"]})
            continue
        done += 1
        mine = our_activations(args, world)
        real = their_activations(answer["answer"], args["num_layers"], "last layer" in mine)
        compared += real["kept"]
        different += abs(mine["kept"] - real["kept"])
        if mine != real:
            wrong.append({"case": name, "ours": mine, "real": real})
    out(f"activations: {done} cases, {compared:,} bytes compared, {different:,} different")
    return {"cases": done, "bytes_compared": compared, "bytes_different": different, "unequal": wrong}
