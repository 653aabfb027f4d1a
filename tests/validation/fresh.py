"""Fresh recipes put to Megatron-LM's own argument check and to ours (`fresh --megatron DIR --version V`).

DIR is an unpacked wheel of megatron-core from 0.17 on (0.17.0 is nearest to d3528a21, 0.19.2 to d98e8a64). Recipes are
legal labelled cases and shipped recipes with up to five arguments changed: to values seen elsewhere among them, to the
parser's choices, to neighbours of a number. Runs in the oracle's Python; `tests.oracle.arguments` says what is asked.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from primus_lint.evaluate import evaluate
from primus_lint.lower.megatron.tables import names_known
from primus_lint.readers import read
from tests.oracle.arguments import ask
from tests.oracle.ask import why_not
from tests.validation.legality import labels, request

Described = dict[str, dict[str, Any]]
Case = dict[str, Any]

ASKED_STAGES = ("parse", "args", "batch", "config")
# Stages of our verdicts that the asked program does not reach.
BEYOND = {
    "grid": "no process groups are made",
    "build": "no module is built, only the layers of a stage are counted",
    "optim": "no optimizer is made, only its config",
    "first-step": "no step is run",
}
# Arguments that are left alone, by their group in the parser or by a pattern of their name.
OUTSIDE_GROUPS = {
    "logging": "changes no verdict", "profiling": "changes no verdict", "one logger": "a service",
    "data and dataloader": "files", "checkpointing": "files", "Logits Distillation": "files", "msc": "a service",
    "tokenizer": "files", "autoresume": "a service", "straggler": "a service", "workload inspector": "a service",
    "ft_package": "a package that is not installed", "In-process restart": "a package that is not installed",
    "rerun engine": "debugging", "fault injector": "debugging", "rl": "another program", "sft": "another program",
    "biencoder": "another program", "vision": "another program", "inference": "another program",
}  # fmt: skip
OUTSIDE_NAMES = {
    r".*(_path|_file|_cfg|_dir)|spec|load|save|pretrained_checkpoint": "files",
    r"hybrid_(layer|override)_pattern|is_hybrid_model": "another model",
    r"local_rank|lazy_mpu_init|skip_train|test_mode|exit_\w+": "set by the launcher or about the end of a run",
}
# Disagreements that are the wheel's: (version, pattern of our "name: message" or of Megatron's "place error", cause).
# 0.17.0 is younger than d3528a21; what the commit itself says is in the labelled cases and in the rules' sources.
KNOWN = (
    ("d3528a21", r"argument-choice: megatron_fsdp_\w+_dtype cannot be auto", "0.17.0 takes auto, d3528a21 not"),
    ("d3528a21", r"hybrid-pattern-or-layers: num_layers", "0.17.0 lets a hybrid pattern override num_layers"),
    ("d3528a21", r"AssertionError: disable moe in recompute_modules when", "0.17.0 has a check that d3528a21 lacks"),
    ("d98e8a64", r"swiglu-clamp-limits: ", "0.19.2 lacks the check of the clamp that d98e8a64 has"),
)
# Substrings of names that are changed together: arguments of one family meet in conditions.
FAMILIES = (
    ("moe", "expert"), ("fp8", "fp4", "bf16", "fp16"), ("pipeline", "virtual", "layout", "stage", "mtp", "num_layers"),
    ("recompute", "offload", "cuda_graph"), ("optim", "overlap", "ddp", "fsdp", "dtype", "grad"),
    ("mla", "lora", "rope", "rotary", "position", "head", "query", "qk", "attention", "cp_", "context", "window", "softmax"),
    ("batch", "lr", "train", "decay", "iters", "seq"), ("parallel",),
    ("swiglu", "gelu", "relu", "bias", "norm", "fusion", "impl"),
)  # fmt: skip


def run(paths: list[Path], megatron: Path, version: str, count: int, seed: int) -> dict[str, Any]:
    """Ask both and print the differences; figures for --json. `paths`: files of labelled cases, folders of recipes."""
    reason = why_not()
    if reason:
        raise SystemExit(reason)
    labelled = [json.loads(line) for path in paths if path.is_file() for line in path.open(encoding="utf-8")]
    shipped = [recipe for path in paths if path.is_dir() for recipe in recipes(path)]
    pairs = ask(megatron, lambda described: fresh(described, labelled, shipped, version, count, seed))
    counts: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    known: Counter[str] = Counter()
    false_alarms: dict[str, list[Any]] = defaultdict(list)
    misses: dict[str, list[Any]] = defaultdict(list)
    for case, real in pairs:
        answer = evaluate(request(case, version), only="legality")
        errors = [finding for finding in answer["findings"] if finding["severity"] == "error"]
        inside = [finding for finding in errors if finding["stage"] in ASKED_STAGES]
        counts["asked"] += 1
        counts["illegal" if real["stage"] else "legal"] += 1
        if bool(errors) == bool(real["stage"]):
            counts["agree"] += 1
            continue
        if errors and not inside:
            beyond[errors[0]["stage"]] += 1
            continue
        if real["stage"]:
            place, text, found = f"{real['where']} [{real['stage']}]", f"{real['where']} {real['error']}", misses
        else:
            first = inside[0]
            place = f"{first['code']} {first['name']} [{first['stage']}]"
            text, found = f"{first['name']}: {first['message']}", false_alarms
        cause = next((cause for at, pattern, cause in KNOWN if at == version and re.search(pattern, text)), None)
        if cause:
            known[cause] += 1
        else:
            found[place].append([case["id"], case["base"], case["changed"], case["world_size"], text, answer["error"]])
    print(
        f"asked {counts['asked']} of {version}: {counts['legal']} legal, {counts['illegal']} illegal; agree {counts['agree']}"
    )
    for stage, number in beyond.most_common():
        print(f"{number:6} ours at {stage}: {BEYOND.get(stage, 'a later stage')}")
    for cause, number in known.most_common():
        print(f"{number:6} known: {cause}")
    for title, found in (("false alarms", false_alarms), ("misses", misses)):
        print(f"{title}: {sum(map(len, found.values()))}")
        for place, rows in sorted(found.items(), key=lambda item: -len(item[1])):
            print(f"{len(rows):6} {place}")
            for row in rows[:2]:
                print("       ", *row)
    return {
        **counts, "beyond": beyond, "known": known, "false_alarms": false_alarms, "misses": misses,
        "version": version, "seed": seed,
    }  # fmt: skip


def recipes(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """(path, arguments) of every Megatron recipe below a folder; presets of a Primus checkout are its own."""
    root = str(folder) if (folder / "primus" / "configs").is_dir() else None
    found = []
    for path in sorted([*folder.rglob("model_config.yaml"), *folder.glob("examples/megatron/**/*.yaml")]):
        document = read(str(path), primus_root=root)
        for section in document.sections:
            if section.framework == "megatron":
                found.append((path.relative_to(folder).as_posix(), {key: v.value for key, v in section.values.items()}))
    return found


def fresh(
    described: Described,
    labelled: list[Case],
    shipped: list[tuple[str, dict[str, Any]]],
    version: str,
    count: int,
    seed: int,
) -> list[Case]:
    """New cases in the form of the labelled ones, with `base` and the `changed` arguments. The same seed, the same cases."""
    draw = random.Random(seed)
    ours = names_known(version)
    keys = sorted(key for key, row in described.items() if key in ours and not outside(key, row["group"]))
    values: dict[str, list[Any]] = {key: list(described[key]["values"]) for key in keys}
    bases: list[Case] = []
    for case in labelled:
        args = request(case, version)["args"]
        for key, value in args.items():
            if key in values and fits(described[key], value) and value not in values[key]:
                values[key].append(value)
        legal = any(at == version and verdict == "legal" for at, verdict, _, _ in labels(case))
        if legal and set(args) <= set(described) | {"enable_gloo_process_groups"}:
            bases.append({**case, "args": args})
    bases += [base for path, args in shipped for base in shipped_base(path, args, described, set(keys))]
    for key in keys:
        values[key] += numbers(described[key]) if not values[key] else []
    keys = [key for key in keys if values[key]]
    families = [[key for key in keys if any(part in key for part in family)] for family in FAMILIES]
    return [changed(f"{seed}-{number}", draw.choice(bases), keys, families, values, draw) for number in range(count)]


def outside(key: str, group: str) -> bool:
    return group in OUTSIDE_GROUPS or any(re.fullmatch(pattern, key) for pattern in OUTSIDE_NAMES)


def fits(row: dict[str, Any], value: Any) -> bool:
    """Whether the parser can be given this value: recipes for Primus hold others, and files hold text for numbers."""
    if isinstance(value, bool) or row["kind"] == "flag":
        return row["kind"] == "flag" and value in row["values"] and isinstance(value, bool)
    if isinstance(value, list):
        return bool(value) and (row["list"] or row["kind"] == "text")
    if row["kind"] in ("int", "float"):
        return isinstance(value, int) or (row["kind"] == "float" and isinstance(value, float))
    return isinstance(value, (int, float, str)) and (not row["values"] or value in row["values"])


def numbers(row: dict[str, Any]) -> list[Any]:
    """Values of a number that no recipe sets."""
    if row["list"] or row["kind"] not in ("int", "float"):
        return []
    if row["kind"] == "float":
        return [0.0, 0.1, 1.0, 2.0, -1.0]
    default = row["default"]
    return [default, default + 1, default * 2, 0, 1] if isinstance(default, int) else [0, 1, 2, 4, 8]


def shipped_base(path: str, args: dict[str, Any], described: Described, keys: set[str]) -> list[Case]:
    """A shipped recipe as a case on the smallest world that suits it; none where it states no model."""
    kept = {key: value for key, value in args.items() if key in keys and fits(described[key], value)}
    if "num_layers" not in kept or "hidden_size" not in kept:
        return []
    for key in ("train_samples", "lr_decay_samples", "lr_warmup_samples"):  # the iterations below replace them
        kept.pop(key, None)
    given = {"train_iters": 100, "lr": 1e-4, "vocab_size": 128256, **kept}
    given.update(mock_data=True, tokenizer_type="NullTokenizer")
    return [
        {"base": path, "args": given, "world_size": max(8, world(given)), "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}
    ]


def world(args: dict[str, Any]) -> int:
    """The smallest number of ranks that both grids divide."""
    tp, pp, cp, ep = (
        int(args.get(f"{name}_parallel_size") or 1)
        for name in ("tensor_model", "pipeline_model", "context", "expert_model")
    )
    return max(1, math.lcm(tp * pp * cp, (args.get("expert_tensor_parallel_size") or tp) * ep * pp))


def changed(
    name: str, base: Case, keys: list[str], families: list[list[str]], values: dict[str, list[Any]], draw: random.Random
) -> Case:
    """A base with none to five arguments changed and, mostly where degrees were, a world and batch that suit them."""
    args = dict(base["args"])
    env = dict(base.get("env") or {})
    pool = keys if draw.random() < 0.4 else draw.choice(families)
    touched = draw.sample(pool, min(draw.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5)), len(pool)))
    for key in touched:
        value = another(key, args, values, draw)
        args.pop(key, None)
        if value is not None:
            args[key] = value
    size = base["world_size"]
    degrees = any("parallel" in key or "instances" in key for key in touched)
    if draw.random() < (0.75 if degrees else 0.1):
        size = min(2048, world(args) * draw.choice((1, 1, 2, 4)))
        if draw.random() < 0.8 and args.get("global_batch_size"):
            tp, pp, cp = (
                int(args.get(f"{n}_parallel_size") or 1) for n in ("tensor_model", "pipeline_model", "context")
            )
            step = max(1, (args.get("micro_batch_size") or 1) * (size // (tp * pp * cp or 1))) * max(1, pp)
            args["global_batch_size"] = -(-args["global_batch_size"] // step) * step
    if draw.random() < 0.05:
        env.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        env.update(draw.choice(({}, {"CUDA_DEVICE_MAX_CONNECTIONS": draw.choice(("1", "8", "32"))})))
    if draw.random() < 0.15:
        env["arch"] = draw.choice((8, 9, 10))
    return {
        "id": name, "base": base["base"], "changed": {key: args.get(key) for key in touched}, "args": args,
        "world_size": size, "env": env,
    }  # fmt: skip


def another(key: str, args: dict[str, Any], values: dict[str, list[Any]], draw: random.Random) -> Any:
    """A value for an argument; None drops it."""
    now = args.get(key)
    chance = draw.random()
    if chance < 0.1:
        return None
    if key == "pipeline_model_parallel_layout" and chance < 0.8:
        return layout(args, draw)
    if isinstance(now, int) and not isinstance(now, bool) and chance < 0.5:
        return draw.choice((now * 2, now // 2, now + 1, now + 2, now - 1, now * 3, now // 4, now + 64))
    return draw.choice(values[key])


def layout(args: dict[str, Any], draw: random.Random) -> str:
    """A pipeline layout of these layers cut anywhere; one in five lacks a layer or has an MTP layer or stage too many."""
    stages = max(1, int(args.get("pipeline_model_parallel_size") or 1) * draw.choice((1, 1, 2)))
    layers = max(1, int(args.get("num_layers") or 4))
    units = ["E", *"t" * layers, *"m" * int(args.get("mtp_num_layers") or 0), "L"]
    fault = draw.random()
    if fault < 0.1:
        units.remove("t")
    elif fault < 0.15:
        units.insert(-1, "m")
    elif fault < 0.2:
        stages += 1
    cuts = sorted(draw.sample(range(1, len(units)), min(stages - 1, len(units) - 1)))
    return "|".join("".join(units[start:end]) for start, end in zip([0, *cuts], [*cuts, len(units)], strict=True))
