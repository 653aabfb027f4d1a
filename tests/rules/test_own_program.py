"""A training program with flags of its own: what holds for Megatron-LM's programs only is a warning there."""

from __future__ import annotations

import pytest

from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText

SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --vocab-size 1000 "
BATCH = "--micro-batch-size 1 --train-iters 2 --lr 1e-4 --bf16 "
OWN = "--my-data x --my-schedule y "


def severities(command: str, gpu: str | None = None, version: str | None = None) -> dict[str, str]:
    source = SourceText.from_text("run.sh", f"torchrun --nnodes 1 --nproc_per_node 8 {command}\n")
    checked = check_source(source, Options(gpu=gpu, framework_version=version))
    return {finding.name: finding.severity for finding in checked.findings if finding.severity != "info"}


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "train_mine.py"])
def test_choices_and_layers_of_a_fork(program: str) -> None:
    flags = f"{SIZES}{BATCH}--tokenizer-type MyTokenizer --transformer-impl local --normalization RMSNorm "
    of_its_own = severities(f"{program} {flags}{OWN}")
    assert of_its_own["argument-choice"] == of_its_own["local-norm-plain"] == "warning"
    source = SourceText.from_text("run.sh", f"torchrun --nproc_per_node 8 {program} {flags}{OWN}\n")
    [subject] = check_source(source, Options()).subjects
    assert subject.no_memory == ("the recipe is illegal: local-norm-plain",)
    assert severities(f"{program} {flags}")["argument-choice"] == "error"
    assert severities(f"{program} {flags}")["local-norm-plain"] == "error"


def test_what_no_program_can_do_stays_an_error() -> None:
    found = severities(f"train_mine.py {SIZES}{BATCH}{OWN}--tensor-model-parallel-size 3")
    assert found["world-fills-dense-grid"] == "error"


def test_a_program_that_sets_what_the_command_leaves_out() -> None:
    found = severities(f"train.py {SIZES}{OWN}--use-precision-aware-optimizer --optimizer adam")
    assert found["micro-batch-positive"] == found["training-length-given"] == "warning"
    assert found["precision-aware-optimizer-needs-sharding"] == "warning"
    assert "trains-in-fp32" not in found  # it may set that, too
    assert severities(f"train.py {SIZES}")["micro-batch-positive"] == "error"
    given = severities(f"train.py {SIZES}{BATCH}{OWN}--use-precision-aware-optimizer --optimizer adam")
    assert given["precision-aware-optimizer-needs-sharding"] == "error"


def test_memory_that_a_flag_of_the_program_may_save() -> None:
    large = SIZES.replace("--hidden-size 64", "--hidden-size 32768")
    assert severities(f"train.py {large}{BATCH}--my-data x", gpu="h100")["hbm-overflow"] == "error"
    assert severities(f"train.py {large}{BATCH}--my-data x --swap-weights", gpu="h100")["hbm-overflow"] == "warning"


def test_a_flag_of_an_older_megatron_is_an_error_of_a_stated_version() -> None:
    command = f"pretrain_gpt.py {SIZES}{BATCH}--DDP-impl local"
    assert severities(command) == {"flag-of-an-older-version": "warning"}
    assert severities(command, version="d3528a21") == {"removed-flag": "error"}
    more = command + " --layernorm-epsilon 1e-5 --no-query-key-layer-scaling --my-data x"  # one more of that version?
    assert severities(more) == {"flag-of-an-older-version": "warning", "flag-of-the-program": "warning"}
    assert severities(f"{command} --trian-iters 3")["unknown-flag"] == "error"
    assert severities(f"pretrain_gpt.py {SIZES}{BATCH}--my-data x") == {"unknown-flag": "error"}
    choice = f"pretrain_gpt.py {SIZES}{BATCH}--my-data x --tokenizer-type MineTokenizer"  # two signs of another program
    assert severities(choice) == {"flag-of-the-program": "warning", "argument-choice": "warning"}


def test_the_newer_version_by_its_flags() -> None:
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES}{BATCH}--megatron-fsdp-version 2\n"
    checked = check_source(SourceText.from_text("run.sh", command), Options())
    assert checked.subjects[0].version == "d98e8a64" and not any(f.name == "unknown-argument" for f in checked.findings)
    assert ("framework_version", "d98e8a64") in [item[:2] for item in checked.assumed]
    older = check_source(SourceText.from_text("run.sh", command), Options(framework_version="d3528a21"))
    assert older.subjects[0].version == "d3528a21" and any(f.name == "unknown-argument" for f in older.findings)


def test_flags_that_another_file_runs_with_more() -> None:
    text = f'MODEL="{SIZES}--num-experts 4 --tensor-model-parallel-size 2"\n'
    checked = check_source(SourceText.from_text("model.sh", text), Options())
    assert checked.findings and not any(finding.severity == "error" for finding in checked.findings)
    numbers = check_source(SourceText.from_text("model.sh", f"KINDS=(0 1 2)\nMODEL=({SIZES})\n"), Options())
    assert numbers.findings and not any(finding.severity == "error" for finding in numbers.findings)
    open_value = check_source(
        SourceText.from_text("model.sh", text.replace("local", "x") + 'X="--lr $A --seed $B"\n'), Options()
    )
    assert sorted(f.message.split()[0] for f in open_value.findings if f.name == "unset-variable") == ["$A", "$B"]


def test_megatron_deepspeed_is_not_judged_by_megatrons_conditions() -> None:
    command = f"pretrain_gpt.py {SIZES}{BATCH}--deepspeed --zero-stage 1 --pipeline-model-parallel-size 3"
    assert severities(command) == {"flag-of-the-program": "warning"}


def test_a_program_may_take_over_what_other_programs_of_the_repository_add() -> None:
    def errors(own: str) -> set[str]:
        arguments = "".join(
            f"  {flag}\n" for flag in (*MODEL_ARGS, "--export-default-te-spec: true", *own.split("; ")) if flag
        )
        checked = check_source(SourceText.from_text("model_config.yaml", f"MODEL_ARGS:\n{arguments}"), Options())
        assert checked.is_recipe
        return {finding.name for finding in checked.findings if finding.severity == "error"}

    assert errors("") == {"unknown-argument"}  # Megatron's parser alone has none
    assert errors("--my-data: x; --my-router: y; --my-soft-mask: true") == set()


MODEL_ARGS = (
    "--num-layers: 4", "--hidden-size: 64", "--num-attention-heads: 4", "--seq-length: 64", "--vocab-size: 1000",
    "--max-position-embeddings: 64", "--micro-batch-size: 1", "--train-iters: 2", "--lr: 1e-4", "--bf16: true",
)  # fmt: skip
