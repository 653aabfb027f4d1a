"""Edits of launch scripts: a real bash runs the script before and after, and its words are compared."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest

from primus_lint.readers import read
from primus_lint.rules.finding import Change
from primus_lint.source.rewrite import Edited
from primus_lint.source.text import SourceText
from primus_lint.tune.rewrite import rewrite

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash on this machine")

LINES = """#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py \\
  --num-layers 32 \\
  --hidden-size 4096 \\
  --num-attention-heads 32 \\
  --tensor-model-parallel-size 4 \\
  --sequence-parallel \\
  --micro-batch-size 2 \\
  --recompute-granularity full \\
  --recompute-method uniform \\
  --recompute-num-layers 1
echo done
"""
ARRAY = """#!/bin/bash
TP=${TP:-4}
MODEL=(
  --num-layers 32
  --hidden-size 4096   # wide
  --num-attention-heads 32
)
PARALLEL=(
  --tensor-model-parallel-size "$TP"  # within a node
  --sequence-parallel                 # with it
  --micro-batch-size=2
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
)
torchrun --nnodes=4 pretrain_gpt.py "${MODEL[@]}" "${PARALLEL[@]}"
"""
STRING = """#!/bin/bash
FLAGS="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --sequence-parallel \\
  --tensor-model-parallel-size 4 --micro-batch-size 2 --recompute-granularity full"
FLAGS="$FLAGS --recompute-method uniform --recompute-num-layers 1"
torchrun pretrain_gpt.py $FLAGS
"""
SCRIPTS = {"lines": LINES, "array": ARRAY, "string": STRING}
EDITS: dict[str, tuple[list[Change], list[list[str]], list[list[str]]]] = {
    # changes, word runs that go, word runs that come
    "value": ([Change("set", "micro_batch_size", 1)], [], []),
    "degree": ([Change("set", "tensor_model_parallel_size", 2)], [], []),
    "switch on": ([Change("set", "overlap_grad_reduce", True)], [], [["--overlap-grad-reduce"]]),
    "switch off": ([Change("set", "sequence_parallel", False)], [["--sequence-parallel"]], []),
    "last away": ([Change("drop", "recompute_num_layers", None)], [["--recompute-num-layers", "1"]], []),
    "new value": (
        [Change("set", "pipeline_model_parallel_size", 2)], [], [["--pipeline-model-parallel-size", "2"]],
    ),
    "all of recomputation": (
        [Change("set", key, None) for key in ("recompute_granularity", "recompute_method", "recompute_num_layers")],
        [["--recompute-granularity", "full"], ["--recompute-method", "uniform"], ["--recompute-num-layers", "1"]],
        [],
    ),
    "a list": (
        [Change("set", "recompute_modules", ["core_attn", "mlp"])], [], [["--recompute-modules", "core_attn", "mlp"]],
    ),
}  # fmt: skip


def words_of(text: str, folder: Any) -> list[str]:
    """What bash hands to torchrun."""
    stub = folder / "torchrun"
    stub.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    stub.chmod(0o755)
    assert BASH is not None
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([BASH, "-c", text], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [word for word in done.stdout.splitlines() if word != "done"]


def edited(text: str, changes: list[Change]) -> Any:
    document = read(SourceText.from_text("run.sh", text))
    return rewrite(changes, document.sections[0], document)


def without(words: list[str], run: list[str]) -> list[str]:
    for at in range(len(words)):
        if words[at : at + len(run)] == run:
            return words[:at] + words[at + len(run) :]
    raise AssertionError(f"{run} is not in {words}")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", EDITS)
def test_bash_passes_what_was_meant_and_the_rest_as_before(name: str, script: str, tmp_path: Any) -> None:
    changes, gone, come = EDITS[name]
    text = SCRIPTS[script]
    result = edited(text, changes)
    assert isinstance(result, Edited), result
    before, after = words_of(text, tmp_path), words_of(result.text, tmp_path)
    for run in gone:
        before = without(before, run)
    for run in come:
        after = without(after, run)
    if name in ("value", "degree"):
        old, new = {"value": ("2", "1"), "degree": ("4", "2")}[name]
        differ = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
        assert differ in ([(old, new)], [(f"--micro-batch-size={old}", f"--micro-batch-size={new}")])
    else:
        assert after == before
    for comment in ("# wide", "# within a node", "# with it"):
        assert text.count(comment) == result.text.count(comment) or name == "switch off"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_layout_reaches_the_program_as_one_word(script: str, tmp_path: Any) -> None:
    layout = "Et|(tt|)*3,L"
    result = edited(SCRIPTS[script], [Change("set", "pipeline_model_parallel_layout", layout)])
    assert isinstance(result, Edited), result
    words = words_of(result.text, tmp_path)
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == layout


def test_a_new_flag_takes_a_line_of_its_own_where_the_others_do() -> None:
    result = edited(LINES, [Change("set", "pipeline_model_parallel_size", 2)])
    assert "  --tensor-model-parallel-size 4 \\\n  --pipeline-model-parallel-size 2 \\\n  --seq" in result.text


def test_a_flag_goes_with_its_line() -> None:
    result = edited(LINES, [Change("set", "sequence_parallel", False)])
    assert "  --tensor-model-parallel-size 4 \\\n  --micro-batch-size 2 \\\n" in result.text


def test_only_the_default_of_a_variable_changes() -> None:
    result = edited(ARRAY, [Change("set", "tensor_model_parallel_size", 8)])
    assert result.text == ARRAY.replace("${TP:-4}", "${TP:-8}")


def test_a_variable_that_two_flags_share_is_left_alone_and_said() -> None:
    text = LINES.replace("--tensor-model-parallel-size 4", "--tensor-model-parallel-size $N").replace(
        "--micro-batch-size 2", "--micro-batch-size $N"
    )
    result = edited(text.replace("torchrun", "N=4\ntorchrun", 1), [Change("set", "micro_batch_size", 1)])
    assert not isinstance(result, Edited)
    assert "--micro-batch-size" in result.message and "$N" in result.message


def test_a_computed_value_is_left_alone_and_said() -> None:
    text = LINES.replace("--micro-batch-size 2", "--micro-batch-size $((1 + 1))")
    result = edited(text, [Change("set", "micro_batch_size", 1)])
    assert not isinstance(result, Edited) and "--micro-batch-size" in result.message


def test_new_flags_that_belong_together_stand_together() -> None:
    changes = [Change("set", "overlap_param_gather", True), Change("set", "overlap_grad_reduce", True)]
    text = LINES.replace("--sequence-parallel", "--use-distributed-optimizer")
    result = edited(text, changes)
    lines = "  --use-distributed-optimizer \\\n  --overlap-grad-reduce \\\n  --overlap-param-gather \\\n"
    assert lines in result.text


EVAL = """#!/bin/bash
TP=${TP:-4}; MBS="${MBS:-2}"; SP=true
NAME="mcore-tp${TP}-mbs${MBS}"
MODEL=(
  --num-layers 32 --hidden-size 4096  # wide
  --num-attention-heads 32
  --tensor-model-parallel-size $TP
  --micro-batch-size $MBS
  --tensorboard-dir "logs/$NAME"
)
if [ $SP = true ] && [ "$TP" -gt 1 ]; then MODEL+=( --sequence-parallel ); fi
command="torchrun pretrain_gpt.py \\
  ${MODEL[@]} \\
  --bf16"
command="$command 2>&1 | cat"
eval $command
"""


def changed_words(text: str, changes: list[Change], folder: Any) -> list[tuple[str, str]]:
    result = edited(text, changes)
    assert isinstance(result, Edited), result
    assert text.count("#") == result.text.count("#")
    return [
        pair for pair in zip(words_of(text, folder), words_of(result.text, folder), strict=True) if pair[0] != pair[1]
    ]


def test_a_value_behind_eval_and_in_the_name_of_a_folder(tmp_path: Any) -> None:
    assert changed_words(EVAL, [Change("set", "micro_batch_size", 1)], tmp_path) == [
        ("2", "1"), ("logs/mcore-tp4-mbs2", "logs/mcore-tp4-mbs1"),
    ]  # fmt: skip
    assert changed_words(EVAL, [Change("set", "num_layers", 30)], tmp_path) == [("32", "30")]


def test_what_the_script_itself_follows_is_no_hindrance(tmp_path: Any) -> None:
    for changes in (
        [Change("set", "tensor_model_parallel_size", 1)],
        [Change("set", "tensor_model_parallel_size", 1), Change("set", "sequence_parallel", False)],
    ):
        result = edited(EVAL, changes)
        assert isinstance(result, Edited), result
        words = words_of(result.text, tmp_path)
        assert words[words.index("--tensor-model-parallel-size") + 1] == "1" and "--sequence-parallel" not in words


def test_a_layout_behind_eval_reaches_the_program_as_one_word(tmp_path: Any) -> None:
    result = edited(EVAL, [Change("set", "pipeline_model_parallel_layout", "Et|(tt|)*3,L")])
    assert isinstance(result, Edited), result
    words = words_of(result.text, tmp_path)
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et|(tt|)*3,L"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("--bf16", "--bf16 --global-batch-size $((MBS * 8))", "would also change global_batch_size"),
        ("--bf16", "--bf16 --load ck/$NAME", "would also change load"),
        ("SP=true", "[ $MBS = 2 ] || exit 1; SP=true", "with --micro-batch-size 1 the script leaves before it trains"),
    ],
)
def test_an_edit_that_would_do_more_is_not_made_and_said(old: str, new: str, said: str) -> None:
    result = edited(EVAL.replace(old, new), [Change("set", "micro_batch_size", 1)])
    assert not isinstance(result, Edited) and said in result.message


def test_a_switch_that_stands_is_left_where_it_is() -> None:
    result = edited(EVAL, [Change("set", "bf16", True), Change("set", "sequence_parallel", True)])
    assert not isinstance(result, Edited) or result.text == EVAL
