"""Random recipe files repaired and tuned: `python -m tests.tune.random_fix --count 5000 --jobs 2`.

Most are told to keep some keys as they are, the pipeline among them, which makes the search short. Every outcome must be
legal and fit (by reading the new text anew), be no slower than before, keep every comment, change
nothing that is trained or to be kept, and stay as it is on a second run. Files for which nothing fits must say so.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from typing import Any, NamedTuple

from primus_lint.pipeline import Checked, Options, check_source
from primus_lint.source.text import SourceText
from primus_lint.subject import Subject
from primus_lint.tune import safety
from primus_lint.tune.fix import Rules, fix_source
from primus_lint.tune.keys import (
    CP,
    CP_TYPE,
    EP,
    ETP,
    EXPERT_KEYS,
    GRAD_OVERLAP,
    MBS,
    PARAM_OVERLAP,
    PIPELINE_KEYS,
    PP,
    RECOMPUTE_KEYS,
    SPLIT_KEYS,
    TP,
)

MODELS = (
    ("llama3.1_8B.yaml", False), ("llama3.2_1B.yaml", False), ("qwen2.5_7B.yaml", False), ("qwen3_8B.yaml", False),
    ("llama2_13B.yaml", False), ("qwen2.5_72B.yaml", False), ("llama3.1_70B.yaml", False),
    ("mixtral_8x7B_v0.1.yaml", True), ("deepseek_v2_lite.yaml", True), ("qwen3_30B_A3B.yaml", True),
)  # fmt: skip
PIPELINE = frozenset((PP, *SPLIT_KEYS, *PIPELINE_KEYS))
OTHERS = ((TP,), (CP, CP_TYPE), (EP, ETP), (MBS,), RECOMPUTE_KEYS, EXPERT_KEYS, (GRAD_OVERLAP, PARAM_OVERLAP))
FREE = 0.02  # share of recipes whose pipeline is searched, too: each takes as long as fifty others
TRAINED = ("global_batch_size", "seq_length", "num_layers", "lr", "train_iters", "max_position_embeddings")


def recipe(rng: random.Random) -> str:
    """The text of a random experiment file, in a random style, with comments in all places."""
    model, experts = rng.choice(MODELS)
    seq = rng.choice((2048, 4096, 8192))
    keys: dict[str, Any] = {
        "train_iters": 100, "micro_batch_size": rng.choice((1, 1, 2, 4, 3)),
        "global_batch_size": rng.choice((32, 64, 128, 96)), "seq_length": seq, "max_position_embeddings": seq,
        "lr": "1.0e-4", "vocab_size": 128256, "mock_data": "true",
        "tensor_model_parallel_size": rng.choice((1, 1, 2, 4, 8, 3)),
        "pipeline_model_parallel_size": rng.choice((1, 1, 2, 4, 8)),
    }  # fmt: skip
    maybe: dict[str, Any] = {
        "context_parallel_size": rng.choice((1, 2)), "sequence_parallel": rng.choice(("true", "false", "1")),
        "use_distributed_optimizer": rng.choice(("true", "false")), "overlap_grad_reduce": rng.choice(("true", "false")),
        "recompute_granularity": "full", "num_virtual_stages_per_pipeline_rank": rng.choice((1, 2, 4)),
        "cross_entropy_loss_fusion": "true", "gradient_accumulation_fusion": "false", "ckpt_format": "torch",
    }  # fmt: skip
    if experts:
        keys["expert_model_parallel_size"] = rng.choice((1, 2, 4, 8))
        maybe["moe_permute_fusion"] = rng.choice(("true", "false"))
        maybe["moe_token_dispatcher_type"] = "alltoall"
    for key, value in maybe.items():
        if rng.random() < 0.4:
            keys[key] = value
    if "recompute_granularity" in keys:
        keys["recompute_method"] = rng.choice(("uniform", "block"))
        keys["recompute_num_layers"] = rng.choice((1, 2, 4))
    names = list(keys)
    rng.shuffle(names)
    lines = ["# a random recipe", "work_group: amd", "user_name: root", "exp_name: drawn", "workspace: ./output  # where it goes", "modules:", "  pre_trainer:",
             "    framework: megatron", "    config: pre_trainer.yaml", f"    model: {model} # the model", "    overrides:"]  # fmt: skip
    for index, key in enumerate(names):
        value = keys[key]
        if rng.random() < 0.15 and isinstance(value, int):
            value = f"${{SOME_{index}:{value}}}"
        if rng.random() < 0.15:
            lines.append(f"      # about {key}")
        comment = f" # why {key}" if rng.random() < 0.3 else ""
        lines.append(f"      {key}: {value}{comment}")
        if rng.random() < 0.1:
            lines.append("")
    newline = "\r\n" if rng.random() < 0.1 else "\n"
    return newline.join([*lines, "# the end"]) + newline


def comments(text: str, left: str | None = None) -> list[str]:
    """The comments of a text. With `left`, without those on the lines of keys that are no longer in that text: the fix
    of a rule that drops a key takes the remark on its line along."""
    found = []
    for line in text.splitlines():
        key = re.match(r" +(\w+):", line)
        gone = left is not None and key is not None and not re.search(rf"^ +{key[1]}:", left, re.M)
        if "#" in line and not gone:
            found.append(line[line.index("#") :])
    return found


def kept(rng: random.Random) -> frozenset[str]:
    """What a user may want to stay as it is: nothing, the pipeline, or that and more."""
    if rng.random() < FREE:
        return frozenset()
    more = rng.sample(OTHERS, rng.choice((0, 0, 1, 2)))
    pipeline = PIPELINE if rng.random() >= FREE else frozenset()
    return pipeline | {key for keys in more for key in keys}


class Outcome(NamedTuple):
    """`problem` is empty when everything held. `kind`: "unchanged", "repaired", "tuned", "hopeless"."""

    kind: str
    problem: str
    gain: float


def errors(checked: Checked) -> list[str]:
    return [f"{f.name}: {f.message}" for f in checked.findings if f.severity == "error" and f.suppressed is None]


def runs(subject: Subject) -> bool:
    """Legal, and not out of memory for sure."""
    legal = not any(finding.severity == "error" for finding in subject.conditions)
    ledger, accelerator = subject.ledger, subject.accelerator
    return (
        legal
        and ledger is not None
        and accelerator is not None
        and ledger.fits(accelerator.visible_hbm_bytes) is not False
    )


def one(seed: int) -> Outcome:
    """Fix one random recipe on a random target, twice."""
    rng = random.Random(seed)
    text = recipe(rng)
    options = Options(gpu=rng.choice(("mi300x", "mi355x")), nodes=rng.choice((1, 1, 2, 4)))
    how = Rules(unsafe=rng.random() < 0.1, minimal=rng.random() < 0.1, tune=rng.random() < 0.85, keep=kept(rng))
    source = SourceText.from_bytes("random.yaml", text.encode())
    result = fix_source(source, options, None, how)
    after = check_source(SourceText.from_bytes("random.yaml", result.source.data), options, None)
    before_subject, subject = result.before.subjects[0], after.subjects[0]
    left = errors(after)
    kind = "hopeless" if left else "tuned" if result.candidate else "repaired" if result.changed else "unchanged"
    if left and result.candidate is not None:
        return Outcome(kind, f"a searched recipe has errors: {left}", 0.0)
    if left and not any("no legal recipe of the space fits" in m or "no search" in m for m in result.messages):
        return Outcome(kind, f"errors remain, and nothing says why: {left} {result.messages}", 0.0)
    if left:
        return Outcome(kind, "", 0.0)
    problem, gain = "", 0.0
    accelerator = subject.accelerator
    if not runs(subject) or subject.ledger is None or subject.projection is None or accelerator is None:
        problem = "the outcome does not run"
    elif result.candidate is not None and subject.ledger.fits(accelerator.visible_hbm_bytes) is not True:
        problem = "a searched recipe is not sure to fit"
    elif runs(before_subject) and before_subject.projection is not None:
        gain = float(before_subject.projection.iteration_s) / float(subject.projection.iteration_s) - 1
        if gain < -1e-9:
            problem = f"slower by {-gain:.2%}: {result.applied}"
    if comments(result.source.text) != comments(text, result.source.text):
        problem = "comments changed"
    old, new = before_subject.lowered.namespace.given, subject.lowered.namespace.given
    if any(old.get(key) != new.get(key) for key in TRAINED):
        problem = "what is trained changed"
    touched = [key for key in how.keep if old.get(key) != new.get(key)]
    if touched:
        problem = f"keys to keep changed: {touched}"
    assert before_subject.run is not None or problem or subject.run is not None
    if not how.unsafe and result.candidate is not None and before_subject.run is not None:
        kinds = safety.class_of_all(result.candidate.changes.items(), old, before_subject.run.model)
        if kinds != safety.SAFE:
            problem = f"{kinds} changes: {result.candidate.changes}"
    again = fix_source(result.source, options, None, how)
    if again.source.data != result.source.data:
        problem = f"the second run changed something: {again.applied}"
    return Outcome(kind, problem, gain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    from concurrent.futures import ProcessPoolExecutor

    start, kinds, bad = time.perf_counter(), dict[str, int](), 0
    gains = []
    seeds = range(given.seed, given.seed + given.count)
    with ProcessPoolExecutor(given.jobs) as pool:
        for seed, outcome in zip(seeds, pool.map(one, seeds, chunksize=4), strict=True):
            kinds[outcome.kind] = kinds.get(outcome.kind, 0) + 1
            bad += bool(outcome.problem)
            if outcome.problem:
                print(f"seed {seed}: {outcome.problem}", flush=True)
            if outcome.kind == "tuned" and outcome.gain:
                gains.append(outcome.gain)
            done = seed - given.seed + 1
            if done % 50 == 0:
                print(f"{done}: {kinds}, {bad} problems; {time.perf_counter() - start:.0f} s", flush=True)
    middle = f", median gain of tuned ones that ran before {sorted(gains)[len(gains) // 2]:.1%}" if gains else ""
    print(f"{given.count} recipes: {kinds}, {bad} problems{middle}; {time.perf_counter() - start:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
