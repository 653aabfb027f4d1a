"""The Megatron recipe by which a TorchTitan step is timed: splits of the real program, published runs, refusals."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint.ledger.count import parameters
from primus_lint.ledger.titan import params
from primus_lint.ledger.titan.sizes import sizes_of
from primus_lint.lower.torchtitan.timed import arguments
from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText
from primus_lint.subject import Subject

HERE = Path(__file__).parent
ROWS = Path(__file__).resolve().parents[4] / "shared" / "ground-truth" / "measured.csv"
PYTHON = os.environ.get("TORCHTITAN_PYTHON") or (sys.executable if importlib.util.find_spec("torchtitan") else None)


def subject(overrides: str, world: int = 64, gpu: str = "h100", model: str = "llama3.1_8B.yaml") -> Subject:
    text = (
        "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n"
        f"    framework: torchtitan\n    config: pre_trainer.yaml\n    model: {model}\n    overrides:\n{overrides}"
    )
    checked = check_source(SourceText.from_text("t.yaml", text), Options(gpu=gpu, world_size=world))
    return checked.subjects[0]


def keys(**groups: dict[str, Any]) -> str:
    lines = []
    for group, values in groups.items():
        lines.append(f"      {group}:")
        lines += [f"        {key}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(PYTHON is None, reason="no interpreter with torchtitan (TORCHTITAN_PYTHON)")
def test_layers_are_split_as_the_real_program_splits_them() -> None:
    pick = random.Random(5)
    asked, mine = [], []
    while len(asked) < 200:
        pp, first, last = pick.choice([2, 4, 8, 16]), pick.randint(0, 2), pick.randint(0, 2)
        flavor = pick.choice(["8B", "70B", "405B"])
        names = subject(
            keys(
                model={"flavor": flavor},
                parallelism={
                    "pipeline_parallel_degree": pp, "pipeline_parallel_first_stage_less_layers": first,
                    "pipeline_parallel_last_stage_less_layers": last,
                    "pipeline_parallel_schedule": pick.choice(["1F1B", "Interleaved1F1B"]),
                },
            )
        ).lowered.namespace  # fmt: skip
        if max(first, last) > names["layers_each"]:
            continue  # the program refuses it
        asked.append([names["num_stages"], names["layers"], first, last])
        layout = arguments(names)["pipeline_model_parallel_layout"]
        mine.append([part.count("t") for part in layout.split("|")])
    text = "\n".join(map(json.dumps, asked))
    done = subprocess.run(
        [str(PYTHON), str(HERE / "splits.py")], input=text, capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == mine


@pytest.mark.skipif(PYTHON is None, reason="no interpreter with torchtitan (TORCHTITAN_PYTHON)")
def test_what_is_made_again_is_what_the_real_program_makes_again() -> None:
    """The sums of tests/projection/test_recompute.py: all products, all but w2, or wk, wo and w3 (attention's are not counted)."""
    hidden, key, width = 64, 32, 160
    whole = 2 * hidden**2 + 2 * hidden * key + 3 * hidden * width
    expected = {
        ("full", "op", False): whole,
        ("full", "op", True): whole - hidden * width,
        ("selective", "1", True): whole - hidden * width,
        ("selective", "op", False): hidden * key + hidden**2 + hidden * width,
        ("selective", "op", True): hidden * key + hidden**2 + hidden * width,
    }
    text = "\n".join(json.dumps([*case, hidden, key, width]) for case in expected)
    done = subprocess.run(
        [str(PYTHON), str(HERE / "recomputed.py")], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(expected.values())


@pytest.mark.skipif(not ROWS.exists(), reason="../shared/ground-truth is absent")
def test_published_runs_lie_near_the_projection() -> None:
    """Llama 3 on A100 (FSDP2 over 64 GPUs) and H100 (FSDP2 with tensor parallelism) as torchtitan published them."""
    modes = {"selective layer": ("selective", "2"), "selective op": ("selective", "op"), "full": ("full", "2"),
             "selective(per-op SAC)": ("selective", "op"), "none": ("none", "2")}  # fmt: skip
    errors = []
    for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines()):
        measured = row["measured_tokens_per_s_per_gpu"]
        if not row["source"].startswith("torchtitan") or "Llama-3" not in row["model"] or not measured:
            continue
        if "rowwise" in row["precision"]:
            continue
        mode, option = modes[row["recompute"]]
        quantized = {"converters": ["quantize.linear.float8"]} if "float8" in row["precision"] else {"converters": []}
        one = subject(
            keys(
                model={"flavor": row["model"].rpartition("-")[2], **quantized},
                training={"local_batch_size": int(row["mbs"]), "seq_len": int(row["seq_len"] or 8192)},
                activation_checkpoint={"mode": mode, "selective_ac_option": option},
                parallelism={"tensor_parallel_degree": int(row["tp"] or 1),
                             "enable_async_tensor_parallel": "async" in row["other"]},
                compile={"enable": "compile" in row["other"]},
            ),
            int(row["num_gpus"]), "h100-96gb" if "96GB" in row["gpu"] else "a100-80gb",
        )  # fmt: skip
        assert one.projection is not None, one.no_time
        errors.append(one.projection.tokens_per_s_per_gpu / float(measured) - 1)
    assert len(errors) == 11
    assert sum(map(abs, errors)) / len(errors) < 0.2 and max(map(abs, errors)) < 0.35, errors


@pytest.mark.parametrize(
    ("overrides", "model", "word"),
    [
        (keys(parallelism={"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "ZBVZeroBubble"}), "8B", "ZBV"),
        (keys(training={"mixed_precision_param": "float32"}), "8B", "float32"),
        (keys(model={"converters": ["quantize.linear.mx"]}), "8B", "quantized"),
        (keys(activation_checkpoint={"mode": "memory_budget"}), "8B", "memory-budget"),
        (keys(model={"name": "gpt_oss", "flavor": "20b"}), "8B", "gpt_oss"),
        (
            keys(model={"name": "deepseek_v3", "flavor": "16B"}, primus_turbo={"use_classic_attention": True}),
            "8B",
            "classic",
        ),
        (keys(primus_turbo={"enable_attention_float8": True}), "8B", "attention in float8"),
    ],
)
def test_what_has_no_time_says_why(overrides: str, model: str, word: str) -> None:
    one = subject(overrides, model=f"llama3.1_{model}.yaml")
    assert one.projection is None
    assert word in " ".join(one.no_time)


# Billions of parameters on the model cards of DeepSeek-V2-Lite, V2, V3, Llama 4 Maverick and Qwen3.
PUBLISHED = {
    ("deepseek_v3", "16B"): 15.7, ("deepseek_v3", "236B"): 236, ("deepseek_v3", "671B"): 671,
    ("llama4", "17bx128e"): 400, ("qwen3", "30B-A3B"): 30.5, ("qwen3", "235B-A22B"): 235,
}  # fmt: skip


@pytest.mark.parametrize(("name", "flavor"), PUBLISHED)
def test_timed_model_has_the_parameters_of_the_real_one(name: str, flavor: str) -> None:
    """As published, and as the memory account, which is equal to the real model's, has them."""
    one = subject(keys(model={"name": name, "flavor": flavor}, parallelism={"expert_parallel_degree": 8}))
    assert one.timed_run is not None, one.no_time
    timed = sum(parameters(one.timed_run))
    assert timed / 1e9 == pytest.approx(PUBLISHED[name, flavor], rel=0.003)
    s = sizes_of(one.lowered.namespace)
    routed = [group for layer in range(s.layers) if (group := params.routed(s, layer)) is not None]
    held = sum(group.numel for group in params.stored(s)) + sum(7 * group.numel for group in routed)
    assert timed == held


def test_experts_cost_what_they_exchange_and_compute() -> None:
    """Experts spread over ranks exchange rows, and gather less; more experts a token cost more."""

    def parts(**groups: dict[str, Any]) -> dict[str, float]:
        one = subject(keys(model={"name": "qwen3", "flavor": "30B-A3B"}, **groups), gpu="mi300x")
        assert one.projection is not None, one.no_time
        return {name: float(value) for name, value in one.projection.breakdown_s.items()}

    alone, spread = parts(), parts(parallelism={"expert_parallel_degree": 8})
    assert alone.get("ep", 0.0) == 0.0 < spread["ep"]
    assert spread["fsdp"] < alone["fsdp"]
    few = subject(keys(model={"name": "qwen3", "flavor": "30B-A3B", "moe_args": {"top_k": 2}})).projection
    many = subject(keys(model={"name": "qwen3", "flavor": "30B-A3B"})).projection
    assert few is not None and many is not None and few.iteration_s < many.iteration_s


def test_recomputation_and_sharding_cost_what_they_should() -> None:
    """More recomputation is slower; parameters that stay gathered are not gathered again."""

    def step(**groups: dict[str, Any]) -> float:
        projection = subject(keys(**groups)).projection
        assert projection is not None
        return float(projection.iteration_s)

    none, op, full = (
        step(activation_checkpoint={"mode": mode, "selective_ac_option": "op"})
        for mode in ("none", "selective", "full")
    )
    assert none < op < full < none * 1.45
    assert step(parallelism={"fsdp_reshard_after_forward": "never"}) < step(
        parallelism={"fsdp_reshard_after_forward": "always"}
    )


@pytest.mark.parametrize(
    "groups",
    [{"parallelism": {"pipeline_parallel_degree": "x"}}, {"model": {"converters": 5}},
     {"training": {"seq_len": [4]}}, {"compile": {"enable": True, "components": 3}}],
)  # fmt: skip
def test_a_value_of_a_wrong_kind_is_a_reason_and_no_crash(groups: dict[str, Any]) -> None:
    one = subject(keys(**groups))
    assert one.projection is None and one.not_modelled
    assert "is that of the same products" not in " ".join(one.no_time)
