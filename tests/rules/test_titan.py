"""TorchTitan and Megatron-Bridge beyond the examples of their rules: names, versions, sizes, places in files, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from primus_lint.evaluate import evaluate
from primus_lint.ir.run import Target
from primus_lint.ledger.titan.sizes import abstain
from primus_lint.lower import torchtitan
from primus_lint.pipeline import Options, check_source
from primus_lint.readers.batch import section_of
from primus_lint.rules.engine import check
from primus_lint.rules.worlds import legal_world_sizes
from primus_lint.source.text import SourceText
from tests.rules.texts import check_text

if TYPE_CHECKING:
    from primus_lint.lower.megatron import Lowered

LABELLED = Path(__file__).parents[1] / "lower" / "torchtitan" / "labelled.jsonl"


def ask(args: dict[str, Any], world_size: int | None = 8, **fields: Any) -> dict[str, Any]:
    target = {"world_size": world_size, "gpu": fields.pop("gpu", None)}
    return evaluate({"framework": "torchtitan", "args": args, "target": target, **fields})


def errors(answer: dict[str, Any]) -> list[str]:
    assert answer["ok"], answer["error"]
    return [finding["code"] for finding in answer["findings"] if finding["severity"] == "error"]


def lowered(args: dict[str, Any], world_size: int | None) -> Lowered:
    section = section_of({"args": args}, "torchtitan")
    return torchtitan.lower(section, Target(None, world_size, 8), "v0.2.2", "torchtitan", {}, {})


# ------------------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    "args",
    [
        {"model": {"name": "llama3", "flavor": "8B"}, "parallelism": {"tensor_parallel_degree": 16}},
        {"model.name": "llama3", "model.flavor": "8B", "parallelism.tensor_parallel_degree": 16},
        {"model": {"name": "llama3", "flavor": "8B"}, "parallelism.tensor_parallel_degree": 16},
    ],
)
def test_nested_and_dotted_arguments_are_the_same(args: dict[str, Any]) -> None:
    assert errors(ask(args, 16)) == ["P806"]


@pytest.mark.parametrize("name", ["llama3/8B", "llama3_8B"])
def test_models_by_flavor_and_by_name_of_the_table(name: str) -> None:
    answer = ask({"activation_checkpoint.mode": "full"}, model=name, gpu="mi300x")
    assert errors(answer) == []
    assert answer["memory"]["fits"] is True
    weights = sum(rank["items"]["weights"] * rank["count"] for rank in answer["memory"]["ranks"])
    assert weights == 8_030_261_248 * 4  # fp32, sharded over all ranks


@pytest.mark.parametrize("name", ["llama3/700B", "lama3/8B", "llama3.1-8b"])
def test_an_unknown_model_is_no_verdict(name: str) -> None:
    answer = ask({}, model=name)
    assert not answer["ok"]
    assert name in answer["error"]


def test_expressions_read_keys_and_symbols() -> None:
    names = lowered(
        {"model.name": "llama3", "model.flavor": "8B", "parallelism.tensor_parallel_degree": 2}, 16
    ).namespace
    assert (names["tp"], names["dp_shard"], names["fsdp"], names["world_size"]) == (2, 8, 8, 16)
    assert (names["heads"], names["groups"], names["layers"]) == (32, 8, 32)
    assert names["training.seq_len"] == 2048  # TorchTitan's own default
    assert names.depends_on_world("dp_shard")
    assert not names.depends_on_world("tp")


# ---------------------------------------------------------------------------------------------------------- versions
def test_versions_have_rules_of_their_own() -> None:
    args = {"parallelism.tensor_parallel_degree": 16}
    by_version = {
        version: errors(ask(args, 16, model="llama3/8B", version=version)) for version in (None, "v0.2.2", "b5bcd76c")
    }
    assert by_version == {None: ["P806"], "v0.2.2": ["P806"], "b5bcd76c": ["P807"]}


def test_versions_of_another_framework_are_not_known() -> None:
    answer = ask({}, model="llama3/8B", version="d3528a21")
    assert not answer["ok"]
    assert "v0.2.2" in answer["error"]


# ------------------------------------------------------------------------------------------------------------- sizes
RECIPES: list[tuple[dict[str, Any], list[int]]] = [
    ({"parallelism.tensor_parallel_degree": 4, "training.global_batch_size": 24, "training.local_batch_size": 2},
     [4, 8, 12, 16, 24, 48]),
    ({"parallelism.data_parallel_shard_degree": 4, "parallelism.tensor_parallel_degree": 2}, [8]),
    ({"parallelism.data_parallel_replicate_degree": 2, "training.global_batch_size": 16,
      "training.local_batch_size": 1}, [2, 4, 8, 16]),
    ({"parallelism.pipeline_parallel_degree": 2, "training.local_batch_size": 4, "training.global_batch_size": 8},
     [2, 4]),
    ({"parallelism.tensor_parallel_degree": 3}, []),
]  # fmt: skip


@pytest.mark.parametrize(("args", "expected"), RECIPES)
def test_legal_sizes_by_hand(args: dict[str, Any], expected: list[int]) -> None:
    assert ask(args, None, model="llama3/8B")["legal_world_sizes"] == expected


@pytest.mark.parametrize("number", range(0, 284, 12))
def test_legal_sizes_against_the_engine_at_each_size(number: int) -> None:
    case = json.loads(LABELLED.read_text(encoding="utf-8").splitlines()[number])
    legal = [
        size
        for size in range(1, 65)
        if not any(
            finding.severity == "error" and finding.code[0] not in "MT"
            for finding in check(lowered(case["args"], size))
        )
    ]
    assert legal_world_sizes(lowered(case["args"], None), 64) == legal


def test_nothing_is_refused_without_a_size_that_is_legal_at_one() -> None:
    for line in LABELLED.read_text(encoding="utf-8").splitlines()[::3]:
        case = json.loads(line)
        if case["legal"]:
            answer = evaluate(
                {"framework": "torchtitan", "args": case["args"], "stack": {"torch": "2.13.0"}}, only="legality"
            )
            found = errors(answer)
            if {"K801", "K802", "K803"} & set(found):  # the labels were made in code, past the command line
                continue
            assert not found, case
            assert case["world_size"] in answer["legal_world_sizes"], case


def test_experts_need_their_ranks_at_every_size() -> None:
    args = {"parallelism.expert_parallel_degree": 8, "parallelism.tensor_parallel_degree": 2}
    sizes = ask(args, None, model="deepseek_v3/16B")["legal_world_sizes"]
    assert sizes[:3] == [8, 16, 24]
    given = ask({**args, "parallelism.data_parallel_shard_degree": 2}, None, model="deepseek_v3/16B")
    assert (errors(given), given["legal_world_sizes"]) == (["P805"], [])


# ------------------------------------------------------------------------------------------------------------- files
def findings(text: str, folder: Path, **example: Any) -> list[Any]:
    return check_text(text, {"framework": "torchtitan", **example}, folder).findings


def test_a_finding_points_at_the_key(tmp_path: Path) -> None:
    text = "training: {local_batch_size: 3}\nparallelism:\n  pipeline_parallel_degree: 5"
    (found,) = [finding for finding in findings(text, tmp_path) if finding.code == "L808"]
    assert found.place is not None
    assert (found.place.line, found.place.column) == (11, 36)
    assert "training.local_batch_size" in found.keys


def test_an_unknown_key_is_said_once(tmp_path: Path) -> None:
    found = [finding.code for finding in findings("training: {local_batch_sise: 4}", tmp_path)]
    assert found.count("K101") == 1
    assert not {"K801", "K802", "K803"} & set(found)  # Primus hands keys over in code: no command line refuses them


def test_a_plain_configuration_is_refused_by_its_parser() -> None:
    assert errors(ask({"training.seq_length": 8}, model="llama3/8B")) == ["K801"]


def test_memory_points_at_batch_and_sequence(tmp_path: Path) -> None:
    text = "training: {local_batch_size: 64, seq_len: 8192}"
    (found,) = [f for f in findings(text, tmp_path, world_size=8, gpu="mi300x") if f.code == "M101"]
    assert found.keys[:2] == ("training.local_batch_size", "training.seq_len")
    assert found.place is not None
    assert found.place.line == 11


def test_memory_that_is_not_modelled_gives_its_reason(tmp_path: Path) -> None:
    text = "parallelism: {context_parallel_degree: 2}"
    (subject,) = check_text(text, {"framework": "torchtitan", "world_size": 8, "gpu": "mi300x"}, tmp_path).subjects
    assert subject.ledger is None
    assert any("context parallel" in reason for reason in subject.not_modelled)
    assert ask({"parallelism.context_parallel_degree": 2}, model="llama3/8B", gpu="mi300x")["memory"] is None


def test_experts_that_ranks_pad_still_fit_at_some_size(tmp_path: Path) -> None:
    """16 experts over 16,384 ranks are gathered with 16,368 of padding: without a world size that is no error."""
    text = (
        "model: {name: llama4, flavor: 17bx16e}\ntraining: {local_batch_size: 1, seq_len: 4096}\n"
        "activation_checkpoint: {mode: full}"
    )
    checked = check_text(text, {"framework": "torchtitan", "gpu": "mi355x"}, tmp_path)
    assert "M101" not in {finding.code for finding in checked.findings}
    (subject,) = checked.subjects
    accelerator = subject.accelerator
    assert accelerator is not None
    verdicts = {size: subject.at_world(size).ledger.fits(accelerator.visible_hbm_bytes) for size in (4, 64, 16384)}
    assert verdicts == {4: False, 64: True, 16384: False}
    assert not subject.not_modelled or "wrong kind" not in " ".join(subject.not_modelled)


def test_experts_and_float8_have_an_account() -> None:
    """And what has none is named."""
    shape = {"training.local_batch_size": 1, "training.seq_len": 4096}
    for model, args in (
        ("llama4/17bx16e", {"parallelism.expert_parallel_degree": 8}),
        ("qwen3/30B-A3B", {}), ("qwen3/1.7B", {}), ("llama3/8B", {"model.converters": ["quantize.linear.float8"]}),
    ):  # fmt: skip
        memory = ask({**shape, **args}, 64, model=model, gpu="mi355x")["memory"]
        assert memory is not None and memory["ranks"][0]["static_bytes"] > 0, model
    for model, args, word in (
        ("deepseek_v3/16B", {}, "flex attention"),
        ("qwen3/30B-A3B", {"parallelism.tensor_parallel_degree": 2}, "tensor parallelism"),
        ("llama3/8B", {"model.converters": ["quantize.linear.mx"]}, "quantize.linear.mx"),
    ):  # fmt: skip
        names = lowered({"model.name": model.split("/")[0], "model.flavor": model.split("/")[1], **args}, 64).namespace
        assert word in " ".join(abstain(names)), model


# ------------------------------------------------------------------------------------------------------------ bridge
def bridge(args: dict[str, Any], world_size: int | None = 8) -> dict[str, Any]:
    return evaluate({"framework": "megatron_bridge", "args": args, "target": {"world_size": world_size}})


QWEN = {"recipe": "qwen.qwen3", "flavor": "qwen3_8b_pretrain_config"}


def test_bridge_recipes_have_the_degrees_of_their_function() -> None:
    assert errors(bridge({**QWEN, "tensor_model_parallel_size": 3}, 6)) == ["P902", "P104"]  # 32 heads, 8 groups
    assert bridge({**QWEN, "tensor_model_parallel_size": 2, "global_batch_size": 8, "micro_batch_size": 1}, None)[
        "legal_world_sizes"
    ] == [2, 4, 8, 16]


def test_bridge_recipes_of_unknown_degrees_have_no_verdict() -> None:
    answer = bridge({"recipe": "my.recipes", "flavor": "mine"}, None)
    assert answer["ok"]
    assert answer["legal_world_sizes"] is None
    assert answer["legal"] is None


@pytest.mark.parametrize(
    ("line", "near", "severity"),
    [
        ("training: {mixed_precision_param: float322}", "float32", "error"),  # a KeyError in torchtitan v0.2.2
        ("lr_scheduler: {decay_type: Cosine}", "cosine", "error"),  # a ValueError there
        ("checkpoint: {async_mode: asynk}", "async", "warning"),  # not read while checkpoint.enable is off
    ],
)
def test_primus_does_not_check_choices_but_a_slip_is_told_at_its_line(line: str, near: str, severity: str) -> None:
    head = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: ./o\nmodules:\n  pre_trainer:\n    framework: torchtitan\n"
    text = f"{head}    config: pre_trainer.yaml\n    model: llama3.1_8B.yaml\n    overrides:\n      {line}\n"
    [found] = [f for f in check_source(SourceText.from_text("x.yaml", text), Options()).findings if f.code == "K144"]
    assert found.place is not None and found.place.line == text.count("\n")
    assert f"(near: {near})" in found.message and found.severity == severity
    fine = text.replace(line, f"{line.partition(': {')[0]}: {{{line.partition('{')[2].partition(':')[0]}: {near}}}")
    assert not [f for f in check_source(SourceText.from_text("x.yaml", fine), Options()).findings if f.code == "K144"]
