"""`primus-lint [FILES]`: what is said, where it points, and the exit status (design 4.1)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

CLEAN = "configs/clean-llama3.1_8B.yaml"
OOM = "configs/oom-llama3.1_70B.yaml"
ILLEGAL = "configs/illegal-qwen2.5_7B.yaml"
SLOW = "configs/slow-mixtral_8x7B.yaml"


def report(result: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def errors(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in data["findings"] if finding["severity"] == "error"]


def test_a_clean_recipe_exits_with_0(repo: Path, lint: Any) -> None:
    result = lint(CLEAN)
    assert result.exit_code == 0, result.output
    assert "tokens/s/GPU" in result.output


def test_an_oom_recipe_is_rejected_at_the_line_that_drives_it(repo: Path, lint: Any) -> None:
    result = lint("--output-format", "json", OOM)
    assert result.exit_code == 1
    [finding] = errors(report(result))
    assert finding["name"] == "hbm-overflow"
    line = (repo / OOM).read_text().splitlines()[finding["span"]["line"] - 1]
    assert line.strip().startswith("micro_batch_size")
    text = (repo / OOM).read_bytes()
    assert text[finding["span"]["byte_start"] : finding["span"]["byte_end"]] == b"4"
    [file] = report(result)["files"]
    assert file["memory"]["fits"] is False
    worst = file["memory"]["ranks"][file["memory"]["worst_rank"]]
    assert worst["device_low_bytes"] > file["memory"]["capacity_bytes"] == 206_141_652_992
    # 70.6e9 parameters over TP 4 x PP 2, one data-parallel rank: 2 B weights, 4 B gradients, 12 B optimizer state.
    assert worst["static_bytes"] == pytest.approx(70.6e9 / 8 * 18, rel=0.01)


def test_an_illegal_recipe_says_what_would_be_legal(repo: Path, lint: Any) -> None:
    result = lint("--output-format", "json", ILLEGAL)
    assert result.exit_code == 1
    first = errors(report(result))[0]
    assert "P01" in first["catalogue_ids"]
    line = (repo / ILLEGAL).read_text().splitlines()[first["span"]["line"] - 1]
    assert line.strip().startswith("pipeline_model_parallel_size")
    assert "4" in first["message"]  # 28 layers: 4 pipeline ranks would do


def test_a_slow_recipe_gets_a_projection_and_a_suggestion(repo: Path, lint: Any) -> None:
    data = report(lint("--output-format", "json", SLOW))
    assert errors(data) == []
    assert "recompute-without-need" in [finding["name"] for finding in data["findings"]]
    time = data["files"][0]["time"]
    assert time["low_s"] < time["iteration_s"] < time["high_s"]
    tokens = 128 * 4096 / time["iteration_s"] / 8  # global batch x sequence over seconds and GPUs
    assert time["tokens_per_s_per_gpu"] == pytest.approx(tokens)


def test_a_folder_is_searched_and_other_yaml_is_skipped(repo: Path, lint: Any) -> None:
    (repo / "configs" / "values.yaml").write_text("replicas: 3\n")
    data = report(lint("--output-format", "json", "."))
    assert sorted(Path(file["path"]).name for file in data["files"]) == sorted(
        path.name for path in (repo / "configs").glob("*-*.yaml")
    )


def test_yaml_that_is_no_recipe_is_an_error_when_named_alone(repo: Path, lint: Any) -> None:
    (repo / "values.yaml").write_text("replicas: 3\n")
    assert lint("values.yaml").exit_code == 2
    assert lint("--hook", "values.yaml").exit_code == 0
    assert lint("--hook").exit_code == 0


@pytest.mark.parametrize(
    "text",
    [
        "modules:\n  pre_trainer:\n    framework: megatron\n   config: x\n",
        "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\nmodules:\n  pre_trainer:\n    framework: megatron\n"
        "    config: nowhere.yaml\n    model: llama3_8B.yaml\n    overrides: {}\n",
        "work_group: ${TEAM}\nuser_name: b\nexp_name: c\nworkspace: d\nmodules:\n  pre_trainer:\n    framework: megatron\n"
        "    config: pre_trainer.yaml\n    model: llama3_8B.yaml\n    overrides: {}\n",
    ],
)
def test_what_cannot_be_read_is_located_and_exits_with_2(repo: Path, lint: Any, text: str) -> None:
    (repo / "broken.yaml").write_text(text)
    result = lint("--output-format", "json", "broken.yaml", CLEAN, OOM)
    assert result.exit_code == 2  # 2 wins over the OOM's 1
    finding = next(f for f in errors(report(result)) if f["path"] == "broken.yaml")
    assert finding["span"]["line"] >= 1 and finding["message"]


def test_a_missing_file_exits_with_2(repo: Path, lint: Any) -> None:
    result = lint("nowhere.yaml", CLEAN)
    assert result.exit_code == 2
    assert "nowhere.yaml" in result.stderr


def test_standard_input(repo: Path, lint: Any) -> None:
    text = (repo / OOM).read_bytes()
    result = lint("-", "--stdin-filename", OOM, "--output-format", "json", stdin=text)
    assert result.exit_code == 1
    assert report(result)["files"][0]["path"] == OOM


def test_set_and_env_change_the_recipe(repo: Path, lint: Any) -> None:
    assert lint(OOM, "--env", "PRIMUS_TP=8", "--env", "PRIMUS_PP=1", "--set", "micro_batch_size=1").exit_code == 0
    assert lint(CLEAN, "--set", "tensor_model_parallel_size=3").exit_code == 1


def test_usage_errors_exit_with_2(repo: Path, lint: Any) -> None:
    for words in (
        ["--gpu", "mi999x", CLEAN],
        ["--nodes", "1", "--world-size", "8", CLEAN],
        ["--framework-version", "nonsense", CLEAN],
        ["--env", "X", CLEAN],
        ["--no-such-option", CLEAN],
        ["--nodes", "0", CLEAN],
    ):
        assert lint(*words).exit_code == 2, words


def test_fail_on(repo: Path, lint: Any) -> None:
    assert lint(SLOW).exit_code == 0
    assert lint(SLOW, "--fail-on", "warning").exit_code == 1
    assert lint(OOM, "--fail-on", "never").exit_code == 0


def test_without_a_world_size_the_legal_sizes_are_printed(repo: Path, lint: Any) -> None:
    (repo / "primus-lint.toml").unlink()
    result = lint("--gpu", "mi300x", CLEAN)
    # Global batch 128 in micro-batches of 2: data parallel 1, 2, 4 ... 64.
    assert "1, 2, 4, 8, 16, 32 or 64 GPUs" in result.output, result.output
    data = report(lint("--gpu", "mi300x", "--output-format", "json", CLEAN))
    assert data["files"][0]["legal_world_sizes"] == [1, 2, 4, 8, 16, 32, 64]


def test_target_comes_from_the_strongest_source(repo: Path, lint: Any) -> None:
    def target(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = report(lint("--output-format", "json", *words, CLEAN))["files"][0]["target"]
        return found

    assert target()["gpu"] == "mi300x" and target()["world_size"] == 8  # primus-lint.toml
    assert target("--gpu", "MI355X", "--nodes", "2") == {"gpu": "mi355x", "world_size": 16, "gpus_per_node": 8}
    (repo / "primus-lint.toml").unlink()
    from primus_lint.settings import forget_settings

    forget_settings()
    assert target() == {"gpu": None, "world_size": None, "gpus_per_node": 8}
    text = (repo / CLEAN).read_text()
    (repo / CLEAN).write_text("# primus-lint: target gpu=h200 nodes=4\n" + text)
    assert target() == {"gpu": "h200", "world_size": 32, "gpus_per_node": 8}


def test_suppressions(repo: Path, lint: Any) -> None:
    text = (repo / OOM).read_text()
    line = "      micro_batch_size: 4 # as on the 8B model\n"
    assert line in text
    (repo / OOM).write_text(text.replace(line, line[:-1] + "  # primus-lint: ignore[hbm-overflow] it is known\n"))
    result = lint("--output-format", "json", OOM)
    assert result.exit_code == 0
    assert [f["suppressed"] for f in errors(report(result))] == ["it is known"]
    (repo / OOM).write_text(text.replace(line, "      # primus-lint: ignore[M101] above\n" + line))
    assert lint(OOM).exit_code == 0
    (repo / OOM).write_text("# primus-lint: file-ignore[hbm-overflow] all of it\n" + text)
    assert lint(OOM).exit_code == 0
    (repo / OOM).write_text(text.replace(line, line[:-1] + "  # primus-lint: ignore[tp-divides-heads] wrong one\n"))
    result = lint(OOM)
    assert result.exit_code == 1 and "unused-suppression" in result.output
    (repo / OOM).write_text("# primus-lint: file-ignore[no-such-rule]\n" + text)
    assert "unknown-rule-in-suppression" in lint(OOM).output


SCRIPT = """#!/bin/bash
cat <<EOF > notes.yaml
key: "a  # primus-lint: ignroe[in a here-document]
EOF
echo '{ [ # primus-lint: ignroe[in quotes]' "# primus-lint: ignroe[in quotes]"
ARGS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096
  --micro-batch-size 2 --global-batch-size 64 --train-iters 10 --lr 1e-4 --bf16 --mock-data)
ABOVE
torchrun --nproc-per-node 8 pretrain_gpt.py --tokenizer-type NullTokenizer --vocab-size 32000 \\
  --tensor-model-parallel-size 3 \\
  --pipeline-model-parallel-size 1 ${ARGS[@]}
"""


def test_suppressions_in_scripts(repo: Path, lint: Any) -> None:
    """A script is no YAML: its comments are what bash passes over. One above a command covers all of its lines."""
    script = repo / "run.sh"

    def found(above: str) -> dict[str, tuple[int, str | None]]:
        script.write_text(SCRIPT.replace("ABOVE", above))
        findings = report(lint("--output-format", "json", "run.sh"))["findings"]
        return {f["name"]: (f["span"]["line"], f["suppressed"]) for f in findings if f["severity"] != "info"}

    open_ones = found("")
    assert open_ones["tp-divides-heads"] == (10, None) and "malformed-comment" not in open_ones
    assert found("# primus-lint: ignore[tp-divides-heads] seven nodes")["tp-divides-heads"] == (10, "seven nodes")
    assert found("# primus-lint: file-ignore[tp-divides-heads] all")["tp-divides-heads"][1] == "all"
    wrong = found("# primus-lint: ignroe[tp-divides-heads] seven nodes")
    assert wrong["tp-divides-heads"][1] is None and wrong["malformed-comment"] == (8, None)
    assert "unused-suppression" in found("# primus-lint: ignore[layers-divide-pipeline] nothing")


def test_select_ignore_and_per_file_ignores(repo: Path, lint: Any) -> None:
    assert lint(OOM, "--ignore", "hbm-overflow").exit_code == 0
    assert lint(OOM, "--select", "P").exit_code == 0
    assert lint(OOM, "--select", "M").exit_code == 1
    settings = (repo / "primus-lint.toml").read_text()
    (repo / "primus-lint.toml").write_text('ignore = ["M"]\n' + settings)
    from primus_lint.settings import forget_settings

    forget_settings()
    assert lint(OOM).exit_code == 0
    (repo / "primus-lint.toml").write_text('[per-file-ignores]\n"configs/oom*.yaml" = ["hbm-overflow"]\n' + settings)
    forget_settings()
    assert lint(OOM).exit_code == 0
    (repo / "primus-lint.toml").write_text('required-version = ">=99"\n' + settings)
    forget_settings()
    assert lint(CLEAN).exit_code == 2


def test_several_outputs_at_once(repo: Path, lint: Any) -> None:
    result = lint(OOM, "--output-format", "json", "--output", "report.json", "--output-format", "concise")
    assert result.exit_code == 1
    assert json.loads((repo / "report.json").read_text())["summary"]["errors"] == 1
    assert result.stdout.startswith(f"{OOM}:13:")


def test_fingerprints_survive_a_line_above(repo: Path, lint: Any) -> None:
    before = [f["fingerprint"] for f in report(lint("--output-format", "json", OOM))["findings"]]
    text = (repo / OOM).read_text()
    (repo / OOM).write_text("# a comment\n\n" + text)
    assert [f["fingerprint"] for f in report(lint("--output-format", "json", OOM))["findings"]] == before
    assert len(set(before)) == len(before)


def test_environment_reaches_the_ranks(repo: Path, lint: Any) -> None:
    """deterministic_mode wants NCCL_ALGO set: Megatron's pinned version refuses it otherwise."""
    words = [CLEAN, "--set", "deterministic_mode=true", "--output-format", "json"]
    without = {f["name"] for f in errors(report(lint(*words)))}
    with_algorithm = {f["name"] for f in errors(report(lint(*words, "--env", "NCCL_ALGO=Ring")))}
    assert without - with_algorithm, without


def test_own_rules_hold_beside_the_shipped_ones(repo: Path, lint: Any) -> None:
    from primus_lint.rules.catalogue import use_rule_paths
    from primus_lint.settings import forget_settings

    (repo / "own").mkdir()
    (repo / "own" / "Z101-house-batch.yaml").write_text(
        "code: Z101\nname: house-batch\nseverity: error\nprofile: recommended\nrequire: global_batch_size % 96 == 0\n"
        'message: "our batches are multiples of 96, not {global_batch_size}"\nwhat: House rule.\nwhy: Our data loader.\n'
        "examples:\n  - bad: {global_batch_size: 128}\n  - good: {global_batch_size: 192}\n"
    )
    settings = (repo / "primus-lint.toml").read_text()
    (repo / "primus-lint.toml").write_text('rule-paths = ["own"]\n' + settings)
    forget_settings()
    try:
        [finding] = errors(report(lint("--output-format", "json", CLEAN)))
        assert finding["name"] == "house-batch" and "128" in finding["message"]
        assert lint("test-rules", "own").exit_code == 0
        (repo / "own" / "Z101-house-batch.yaml").write_text("code: Z101\n")
        forget_settings()
        use_rule_paths(())
        assert lint(CLEAN).exit_code == 2
    finally:
        use_rule_paths(())
        forget_settings()


def test_a_selection_that_names_no_rule_is_not_taken_for_clean(repo: Path, lint: Any) -> None:
    """`--select` with a typo would show nothing and pass; a typo in `ignore` only shows more than was meant."""
    from primus_lint.settings import forget_settings

    result = lint("--select", "hbm-overflo", OOM)
    assert result.exit_code == 2
    assert "did you mean hbm-overflow?" in result.output
    result = lint("--ignore", "NOPE", CLEAN)
    assert result.exit_code == 0
    assert "ignore: no rule has the name, code or prefix 'NOPE'" in result.output
    for known in ("M", "M1", "M101", "hbm-overflow", "ALL"):
        assert "no rule has" not in lint("--select", known, OOM).output
    (repo / "primus-lint.toml").write_text('ignore = [\n  "NOPE",\n]\n')
    forget_settings()
    assert "primus-lint.toml:2:4: warning[settings-pattern] ignore: no rule" in lint(CLEAN).output


def test_a_folder_without_any_candidate_is_said(repo: Path, lint: Any) -> None:
    (repo / "nothing").mkdir()
    result = lint("nothing")
    assert result.exit_code == 0
    assert "nothing: no YAML file or script below this folder" in result.output


def test_launch_scripts_below_a_folder_are_read(repo: Path, lint: Any) -> None:
    (repo / "jobs").mkdir()
    (repo / "jobs" / "setup.sh").write_text("pip install x\n")
    (repo / "jobs" / "train.sh").write_text(
        "torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --num-layers 30 --hidden-size 1024 "
        "--num-attention-heads 16 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8 "
        "--seq-length 1024 --max-position-embeddings 1024\n"
    )
    data = report(lint("--output-format", "json", "jobs"))
    assert [file["path"] for file in data["files"]] == ["jobs/train.sh"]
    assert "layers-divide-pipeline" in [finding["name"] for finding in errors(data)]


def test_scripts_of_batch_systems_and_flags_in_any_sourced_file_are_read(repo: Path, lint: Any) -> None:
    """bash reads what a script sources whatever its name; folders hold scripts of the suffixes that readers know."""
    (repo / "jobs").mkdir()
    (repo / "jobs" / "common.env").write_text(
        'ARGS="--num-layers 30 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size 8'
        ' --seq-length 1024 --max-position-embeddings 1024"\n'
    )
    command = "torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS --pipeline-model-parallel-size 4\n"
    (repo / "jobs" / "train.sbatch").write_text("#!/bin/bash\nsource ./common.env\n" + command)
    (repo / "jobs" / "train.slurm").write_text("#!/bin/bash\n. ./common.env\n" + command)
    data = report(lint("--output-format", "json", "jobs"))
    assert [file["path"] for file in data["files"]] == ["jobs/train.sbatch", "jobs/train.slurm"]
    assert [finding["name"] for finding in errors(data)].count("layers-divide-pipeline") == 2


@pytest.mark.parametrize(
    ("before", "words", "said"),
    [
        ("", (), True),
        ("", ("--env", "CUDA_DEVICE_MAX_CONNECTIONS=1"), False),
        ("export CUDA_DEVICE_MAX_CONNECTIONS=1\n", (), False),
        ("CUDA_DEVICE_MAX_CONNECTIONS=1 ", (), False),
        ("docker run -e CUDA_DEVICE_MAX_CONNECTIONS=1 image ", (), False),
        ("mpirun -x CUDA_DEVICE_MAX_CONNECTIONS=1 -np 8 ", (), False),
    ],
)
def test_a_script_that_leaves_the_connections_to_chance(
    repo: Path, lint: Any, before: str, words: tuple[str, ...], said: bool
) -> None:
    """Megatron asserts CUDA_DEVICE_MAX_CONNECTIONS=1 under tensor parallelism before Blackwell."""
    (repo / "run.sh").write_text(
        f"{before}torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
        "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --train-iters 1 --lr 1e-4 --mock-data "
        "--tokenizer-type NullTokenizer --vocab-size 100 --tensor-model-parallel-size 2\n"
    )
    data = report(lint("--gpu", "h100", *words, "--output-format", "json", "run.sh"))
    assert ("connections-not-set-in-script" in [finding["name"] for finding in data["findings"]]) is said


def test_an_experiment_inside_a_script_is_said_not_to_be_read(repo: Path, lint: Any) -> None:
    text = (repo / ILLEGAL).read_text()
    (repo / "job.sh").write_text(f"#!/bin/bash\ncat > /tmp/x.yaml <<EOF\n{text}EOF\nbash run.sh --config /tmp/x.yaml\n")
    (repo / "other.sh").write_text("cat > x <<EOF\nmodules:\n  - a\nEOF\n")
    words = "the Primus experiment in its here-document is not read"
    folder = lint(".")
    assert f"warning: job.sh: {words}" in folder.stderr and "other.sh" not in folder.stderr
    assert words in lint("job.sh").stderr


def test_an_empty_file_is_one_error(repo: Path, lint: Any) -> None:
    (repo / "empty.yaml").write_text("")
    data = report(lint("--output-format", "json", "empty.yaml"))
    assert [finding["name"] for finding in data["findings"]] == ["empty-file"]


def test_a_missing_training_length_hides_no_memory(repo: Path, lint: Any) -> None:
    text = (repo / CLEAN).read_text()
    (repo / "configs" / "endless.yaml").write_text(
        "\n".join(x for x in text.splitlines() if "train_iters" not in x) + "\n"
    )
    data = report(lint("--output-format", "json", "--set", "train_iters=null", "configs/endless.yaml"))
    assert "training-length-given" in [finding["name"] for finding in errors(data)]
    assert data["files"][0]["memory"] is not None and data["files"][0]["time"] is not None


def test_what_is_no_file_is_skipped_in_a_folder_and_refused_by_name(repo: Path, lint: Any) -> None:
    """A link to nothing and a named pipe; a pipe is never opened (it would wait for a writer for ever)."""
    (repo / "configs/gone.yaml").symlink_to("nowhere")
    os.mkfifo(repo / "configs/pipe.yaml")
    (repo / "configs/loop").symlink_to(repo / "configs")
    alone = lint("configs/clean-llama3.1_8B.yaml")
    for name in ("illegal-qwen2.5_7B", "oom-llama3.1_70B", "slow-mixtral_8x7B"):
        (repo / f"configs/{name}.yaml").unlink()
    result = lint("configs")
    assert result.exit_code == 0 and result.stdout == alone.stdout
    assert result.stderr.splitlines() == [
        "primus-lint: warning: configs/gone.yaml is skipped: a link to nowhere, which leads to no file",
        "primus-lint: warning: configs/pipe.yaml is skipped: not a regular file (a pipe, socket or device)",
    ]
    for command in ((), ("fix",), ("project",), ("config",), ("tune",), ("explain",)):
        for name in ("gone", "pipe"):
            result = lint(*command, f"configs/{name}.yaml")
            assert result.exit_code == 2 and f"configs/{name}.yaml" in result.stderr, command
            assert "did you mean" not in result.stderr


def test_a_folder_that_cannot_be_listed_is_not_clean(repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "configs/closed").mkdir()
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    result = lint("configs")
    assert result.exit_code == 2 and "configs/closed: " in result.stderr
