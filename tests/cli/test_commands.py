"""The other commands: explain, project, batch, rules, hardware, config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

OOM = "configs/oom-llama3.1_70B.yaml"
CLEAN = "configs/clean-llama3.1_8B.yaml"


def test_explain_a_rule_by_name_and_code(lint: Any) -> None:
    by_name, by_code = lint("explain", "hbm-overflow"), lint("explain", "M101")
    assert by_name.exit_code == by_code.exit_code == 0
    assert by_name.output == by_code.output
    assert "why:" in by_name.output


def test_explain_an_unknown_name_offers_near_ones(lint: Any) -> None:
    result = lint("explain", "hbm-overlow")
    assert result.exit_code == 2
    assert "hbm-overflow" in result.stderr


def test_explain_a_value_shows_its_whole_chain(repo: Path, lint: Any) -> None:
    result = lint("explain", f"{OOM}:tensor_model_parallel_size")
    assert result.exit_code == 0
    assert "used" in result.output and "${PRIMUS_TP:4}" in result.output
    assert "language_model.yaml" in result.output  # what it overrides
    result = lint("explain", f"{CLEAN}:sequence_parallel")
    assert "switched off" in result.output  # Megatron's own change at TP=1


def test_explain_offers_near_keys_and_takes_flags(lint: Any) -> None:
    result = lint("explain", "recompute_granularty")
    assert result.exit_code == 2 and "recompute_granularity" in result.stderr
    assert lint("explain", "--", "--disable-bias-linear").output == lint("explain", "add_bias_linear").output


def test_explain_a_value_of_a_launch_script(tmp_path: Path, lint: Any) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "TP=${TP:-4}\nARGS=(--tensor-model-parallel-size $TP)\ntorchrun pretrain_gpt.py --num-layers 2 ${ARGS[@]}\n"
    )
    for key in ("tensor_model_parallel_size", "--tensor-model-parallel-size"):
        result = lint("explain", f"{script}:{key}")
        assert result.exit_code == 0
        assert "used       4" in result.output and "run.sh:1:10" in result.output and "$TP" in result.output
    result = lint("explain", f"{script}:tensor_model_paralel_size")
    assert result.exit_code == 2 and "near keys: tensor_model_parallel_size" in result.stderr
    script.write_text("exit 1\n# --num-layers --hidden-size\n")
    result = lint("explain", f"{script}:num_layers")
    assert result.exit_code == 2 and "leaves here, before any training command" in result.stderr


def test_explain_shows_what_a_parent_set_in_a_section_that_is_gone(repo: Path, lint: Any) -> None:
    """A null in place of `overrides` wipes the parent's: the chain of a key says so, whether a preset sets it or not."""
    parent = (repo / CLEAN).read_text()
    line = parent[: parent.index("global_batch_size")].count("\n") + 1
    (repo / "configs/parent.yaml").write_text(parent + "      not_a_key_of_megatron: 7\n")
    thin = "extends: parent.yaml\nmodules:\n  pre_trainer:\n    overrides:\n"
    (repo / "configs/thin.yaml").write_text(thin)
    out = lint("explain", "configs/thin.yaml:global_batch_size").output
    assert "lost       128 from extends" in out and f"parent.yaml:{line}:" in out and "thin.yaml:4:5 replaces" in out
    out = lint("explain", "configs/thin.yaml:not_a_key_of_megatron").output
    assert "is not set\n" in out and "lost       7 from extends" in out
    (repo / "configs/thin.yaml").write_text(thin.replace("overrides:", "overrides: {lr: 1.0e-4}"))
    assert "lost" not in lint("explain", "configs/thin.yaml:global_batch_size").output


@pytest.mark.parametrize("key", ["micro-batch-size", "micro_batch_size", "--micro-batch-size"])
def test_explain_takes_hyphens_for_underscores(repo: Path, lint: Any, key: str) -> None:
    paths = ("", "modules.pre_trainer.overrides.")
    answers = {lint("explain", f"{CLEAN}:{path}{key}").output for path in paths}
    assert len(answers) == 1 and "used       2 from experiment" in answers.pop()


def test_explain_memory_says_what_crosses_the_limit_first(repo: Path, lint: Any) -> None:
    """Every line within 100 columns; the rank, the event and the item; three cures with their price."""
    result = lint("explain", OOM, "--memory", "--nodes", "1", "--gpu", "mi300x")
    assert result.exit_code == 0 and max(map(len, result.output.splitlines())) <= 100
    _, _, rest = result.output.partition("the first byte over, by the low estimate")
    assert "where: pipeline rank 0" in rest and "when:  iteration 1, forward of micro-batch 2" in rest
    assert "what:  activations dense layers" in rest
    assert rest.count("tokens/s (") == 3 and all(f"  {number}. " in rest for number in (1, 2, 3))
    fits = lint("explain", CLEAN, "--memory", "--nodes", "1", "--gpu", "mi300x").output
    assert "the first byte over" not in fits and "fits: AMD Instinct MI300X" in fits
    # the allocator may reserve more than the device is said to need: the reader is told why
    assert ("free segments are given back" in result.output) is (
        bytes_of(result.output, "peak reserved, band") > bytes_of(result.output, "device, high")
    )


def bytes_of(output: str, name: str) -> int:
    """The (last) number of bytes of a total."""
    line = next(line for line in output.splitlines() if f"= {name}" in line)
    return int(line.partition(" B")[0].split()[-1].replace(",", ""))


def test_explain_memory_adds_up(repo: Path, lint: Any) -> None:
    result = lint("explain", CLEAN, "--memory", "--rank", "0")
    assert result.exit_code == 0
    assert "weights" in result.output and "formula" not in result.output
    assert lint("explain", CLEAN, "--memory", "--rank", "7").exit_code == 2
    assert "peak allocated, band" in result.output
    assert "allocator blocks" in result.output


def test_explain_memory_adds_up_the_host_memory_of_a_node(repo: Path, lint: Any) -> None:
    away = (
            "--set", "optimizer_cpu_offload=true", "--set", "optimizer_offload_fraction=1.0",
            "--set", "use_precision_aware_optimizer=true",
        )  # fmt: skip
    where = ("--nodes", "1", "--gpu", "mi300x", *away)
    text = lint("explain", CLEAN, "--memory", *where).output.partition("host memory of the fullest node (")[2]
    host = json.loads(lint("project", CLEAN, *where, "--format", "json").stdout)["memory"]["host"]
    shown = {
        line[2:34].strip(): int(line[34:].split(" B")[0].replace(",", ""))
        for line in text.splitlines()
        if " B " in line
    }
    assert text.startswith(host["node"]) and shown == host["items"] and "optimizer state" in shown
    assert "pinned" in text and "not counted: " in text


def test_project_text_and_json_agree(repo: Path, lint: Any) -> None:
    text, data = lint("project", CLEAN), json.loads(lint("project", CLEAN, "--format", "json").stdout)
    assert text.exit_code == 0
    assert f"{data['time']['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU" in text.output
    assert lint("project", OOM).exit_code == 1


def test_batch_keeps_order_and_survives_bad_lines(lint: Any) -> None:
    lines = [
        {"id": "a", "framework": "megatron", "model": "llama3.1-8b", "args": _args(), "target": _target(8)},
        {"id": "b", "framework": "nowhere", "args": {}},
        {"id": "c", "framework": "megatron", "model": "llama3.1-8b", "args": {**_args(), "tensor_model_parallel_size": 3},
         "target": _target(8)},
        {"id": "d", "framework": "megatron", "model": "llama3.1-8b", "args": _args(), "target": _target(None)},
        {"id": "e", "framework": "megatron", "model": "lama3.1-8b", "args": {}, "target": _target(8)},
    ]  # fmt: skip
    text = "\n".join([*(json.dumps(line) for line in lines), "{not json", ""])
    result = lint("batch", "-", stdin=text)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 2
    assert [answer["id"] for answer in answers] == ["a", "b", "c", "d", "e", None]
    first, other, illegal, open_world, unknown, broken = answers
    assert first["ok"] and first["legal"] is True
    assert first["memory"]["fits"] in (True, False, None) and first["memory"]["ranks"][0]["count"] == 8
    assert first["time"]["tokens_per_s_per_gpu"] > 0
    assert not other["ok"] and "nowhere" in other["error"]
    assert illegal["legal"] is False and illegal["findings"][0]["severity"] == "error"
    assert open_world["legal"] is None and open_world["legal_world_sizes"] == [2**power for power in range(8)]
    assert not unknown["ok"] and "llama3.1-8b" in unknown["error"]
    assert not broken["ok"] and "line 6" in broken["error"]


def _args() -> dict[str, Any]:
    return {
        "micro_batch_size": 1, "global_batch_size": 128, "train_iters": 100, "lr": 3e-4, "bf16": True,
        "seq_length": 8192, "mock_data": True, "tokenizer_type": "NullTokenizer", "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "use_distributed_optimizer": True,
    }  # fmt: skip


def _target(world_size: int | None) -> dict[str, Any]:
    return {"gpu": "h200", "world_size": world_size, "gpus_per_node": 8}


def test_only_leaves_the_other_parts_null(lint: Any) -> None:
    line = {"id": 1, "framework": "megatron", "model": "llama3.1-8b", "args": _args(), "target": _target(8)}
    for only, kept in (("legality", "legal"), ("memory", "memory"), ("time", "time")):
        answer = json.loads(lint("batch", "-", "--only", only, stdin=json.dumps(line) + "\n").stdout)
        assert answer[kept] is not None
        assert all(answer[name] is None for name in ("legal", "memory", "time") if name != kept)


def test_rules_are_listed(lint: Any) -> None:
    rules = json.loads(lint("rules", "--format", "json").stdout)
    assert len(rules) >= 40
    assert all(rule["what"] and rule["why"] for rule in rules)


def test_hardware(lint: Any) -> None:
    listing = lint("hardware")
    for name in ("mi300x", "mi325x", "mi350x", "mi355x", "a100", "h100", "h200", "b200", "gb200"):
        assert name in listing.output.lower()
    assert "206,141,652,992" in lint("hardware", "MI300X").output
    assert lint("hardware", "mi999x").exit_code == 2


def test_columns_of_hardware_do_not_touch(lint: Any) -> None:
    from primus_lint.hardware import accelerator, describe, names

    lines = lint("hardware").output.splitlines()
    for name in names():
        device = accelerator(name)
        assert device is not None
        (line,) = [line for line in lines if line.startswith(f"{device.name} ")]
        assert f" {device.label} " in line
        shown = lint("hardware", name).output.splitlines()
        for (label, value, *_), line in zip(describe(device), shown, strict=True):
            assert line.startswith(f"{label} ") and f"  {value}" in line


def test_config_says_where_the_target_comes_from(repo: Path, lint: Any) -> None:
    result = lint("config", CLEAN)
    assert "primus-lint.toml" in result.output
    assert "world size 8" in result.output


def test_shipped_rules_pass_their_own_examples(lint: Any) -> None:
    result = lint("test-rules")
    assert result.exit_code == 0, result.output
    assert "0 failed" in result.output


def test_the_schema_of_experiments_accepts_the_example_recipes_and_refuses_a_wrong_type(repo: Path, lint: Any) -> None:
    import jsonschema
    import yaml

    schema = json.loads(lint("schema", "experiment").stdout)
    for path in sorted((repo / "configs").glob("*.yaml")):
        recipe = yaml.safe_load(path.read_text())
        jsonschema.validate(recipe, schema)
        recipe["modules"]["pre_trainer"]["overrides"]["train_iters"] = "eight"
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(recipe, schema)
    assert lint("schema", "nothing").exit_code == 2


def test_a_format_that_nobody_reads_is_named(tmp_path: Path, lint: Any) -> None:
    file = tmp_path / "train.toml"
    file.write_text("[job]\ndump_folder = 'out'\n")
    for words in (["check"], ["project", "--gpu", "h100", "--nodes", "1"]):
        result = lint(*words, str(file))
        assert result.exit_code == 2
        assert "TOML is not read" in result.stderr
