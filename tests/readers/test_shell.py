"""Launch scripts: variables, arrays, defaults, conditions and arithmetic followed; places kept."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from primus_lint.readers import read
from primus_lint.readers.document import ResolvedDocument
from primus_lint.readers.shell_compute import Unknown, compute
from primus_lint.source.text import SourceText
from primus_lint.target import resolve_target

BASH = shutil.which("bash")
CORE = "--num-layers 2 --hidden-size 64 "


def parse(text: str, **more: Any) -> ResolvedDocument:
    return read(SourceText.from_text("run.sh", text), **more)


def values(text: str, **more: Any) -> dict[str, Any]:
    document = parse(text, **more)
    assert document.is_recipe, document.problems
    found = {key: value.value for key, value in document.sections[0].values.items()}
    assert (found.pop("num_layers"), found.pop("hidden_size")) == (2, 64)
    return found


SCRIPT = """\
#!/bin/bash
# --num-layers 99 in a comment
export CUDA_DEVICE_MAX_CONNECTIONS=1
NODES=${NNODES:-2}
WORLD=$((8 * $NODES))
TP=${1:-4}
GPT_ARGS=(
    --num-layers 96   # layers
    --hidden-size 12288
    --disable-bias-linear
    --moe-layer-freq "([0]*1+[1]*95)"
)
TRAIN="--micro-batch-size 2 \\
   --global-batch-size $WORLD --lr 6.0e-5"
cat <<END
--num-layers 3 --hidden-size 4 --micro-batch-size 5
END
OMP_NUM_THREADS=4 torchrun --nproc_per_node 8 --nnodes=$NODES pretrain_gpt.py "${GPT_ARGS[@]}" \\
    ${TRAIN} --tensor-model-parallel-size ${TP} --recompute-modules mlp moe --bf16 --lr=1e-4 > log 2>&1 &
"""


def test_a_script_like_upstreams() -> None:
    document = parse(SCRIPT)
    [repeated] = document.problems
    assert (repeated.code, repeated.fatal) == ("repeated-flag", False)
    assert repeated.message == "--lr 6e-05 is lost: --lr 0.0001 follows, and the last one holds"
    [section] = document.sections
    assert section.name == "pretrain_gpt.py" and section.framework == "megatron"
    assert {key: value.value for key, value in section.values.items()} == {
        "num_layers": 96, "hidden_size": 12288, "add_bias_linear": False, "moe_layer_freq": "([0]*1+[1]*95)",
        "micro_batch_size": 2, "global_batch_size": 16, "lr": 1e-4, "tensor_model_parallel_size": 4,
        "recompute_modules": ["mlp", "moe"], "bf16": True,
    }  # fmt: skip
    assert [o.value for o in section.values["lr"].origins] == [1e-4, 6.0e-5]
    assert {key: value.value for key, value in document.top_level.items()} == {
        "launcher.gpus_per_node": 8, "launcher.nodes": 2,
    }  # fmt: skip
    assert document.env["CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"
    assert document.env_used == {"NNODES": None, "1": None}


def test_places_are_where_the_value_is_written() -> None:
    document = parse(SCRIPT)
    source = document.source
    assert source is not None
    for key, flag, text, line in [
        ("num_layers", "--num-layers", "96", 8),
        ("moe_layer_freq", "--moe-layer-freq", "([0]*1+[1]*95)", 11),
        ("micro_batch_size", "--micro-batch-size", "2", 13),
        ("tensor_model_parallel_size", "--tensor-model-parallel-size", "4", 6),
        ("recompute_modules", "--recompute-modules", "mlp moe", 19),
        ("lr", "--lr", "1e-4", 19),
    ]:
        origin = document.sections[0].values[key].origin
        assert origin.span is not None and origin.key_span is not None, key
        assert source.text[slice(*origin.span)] == origin.raw == text
        assert source.text[slice(*origin.key_span)] == flag
        assert source.position(origin.span[0]) == (origin.line, origin.column)
        assert origin.line == line
    computed = document.sections[0].values["global_batch_size"].origin
    assert computed.span is None and computed.line == 14  # 8 * nodes stands nowhere as a number


def test_env_takes_the_place_of_defaults() -> None:
    document = parse(SCRIPT, env={"NNODES": "4", "1": "8"})
    assert document.sections[0].get("global_batch_size") == 32
    assert document.sections[0].get("tensor_model_parallel_size") == 8


@pytest.mark.parametrize(
    ("lines", "arguments", "expected"),
    [
        ("A=4", "--seq-length $A", {"seq_length": 4}),
        ("A=4", "--seq-length ${A}", {"seq_length": 4}),
        ('A="4"', '--seq-length "$A"', {"seq_length": 4}),
        ("A='4'", "--seq-length '8'", {"seq_length": 8}),
        ("export A=4", "--seq-length $A", {"seq_length": 4}),
        ("A=1; B=2", "--seq-length $A$B", {"seq_length": 12}),
        (': "${A:=5}"', "--seq-length $A", {"seq_length": 5}),
        ("A=\n: ${A:=5}", "--seq-length $A", {"seq_length": 5}),
        ("A=", "--seq-length ${A:-6}", {"seq_length": 6}),
        ("B=7", "--seq-length ${A:-$B}", {"seq_length": 7}),
        ("B=7", "--seq-length ${A:-${C-9}}", {"seq_length": 9}),
        ("A=3", "--seq-length $((A*1024+1))", {"seq_length": 3073}),
        ("A=7", "--seq-length $(($A/2))", {"seq_length": 3}),
        ("X=(--bf16)\nX+=(--seq-length 8)", "${X[@]}", {"bf16": True, "seq_length": 8}),
        ('X="--bf16"\nX+=" --seq-length 8"', "$X", {"bf16": True, "seq_length": 8}),
        ('X="--bf16"\nX="$X --swiglu"', "$X", {"bf16": True, "swiglu": True}),
        ("A=1\nA=2", "--seq-length $A", {"seq_length": 2}),
        ('A=x\nif [ "$A" = "x" ]; then B=1; else B=2; fi', "--seq-length $B", {"seq_length": 1}),
        ("A=3\nif [[ $A -gt 2 ]]; then B=1\nelse B=2\nfi", "--seq-length $B", {"seq_length": 1}),
        (
            "A=y\nif [ $A == x ]; then B=1\nelif [ $A == y ]; then B=2\nelse B=3\nfi",
            "--seq-length $B",
            {"seq_length": 2},
        ),
        ("A=70B\ncase $A in\n 7B|8B) B=1 ;;\n 70*) B=2 ;;\n *) B=3 ;;\nesac", "--seq-length $B", {"seq_length": 2}),
        ('if [ -z "" ]; then B=1; fi', "--seq-length $B", {"seq_length": 1}),
        ("A=1 # --seq-length 9", "--seq-length 2 # --seq-length 3", {"seq_length": 2}),
        ("", "--seq-length 2 | tee --seq-length 9", {"seq_length": 2}),
        ("", "--seq-length \\\n  2", {"seq_length": 2}),
    ],
)
def test_what_the_shell_does(lines: str, arguments: str, expected: dict[str, Any]) -> None:
    assert values(f"{lines}\ntorchrun pretrain_gpt.py {CORE}{arguments}\n") == expected


@pytest.mark.parametrize(
    ("lines", "arguments"),
    [
        ("", "--seq-length $SEQ"),
        ("", "--seq-length $1"),
        ("A=$(nvidia-smi)", "--seq-length $A"),
        ("A=`date`", "--seq-length $A"),
        ("if [ $(hostname) = y ]; then A=1; else A=2; fi", "--seq-length $A"),
        ("for A in $(ls); do B=$A; done", "--seq-length $B"),
        ("", "--seq-length ${A//x/y}"),
        ("", "--seq-length $((UNKNOWN * 2))"),
    ],
)
def test_what_only_a_shell_can_know_is_named(lines: str, arguments: str) -> None:
    document = parse(f"{lines}\ntorchrun pretrain_gpt.py {CORE}{arguments}\n")
    assert "seq_length" not in document.sections[0].values
    [problem] = document.problems
    assert (problem.code, problem.fatal) == ("unset-variable", True)


def test_a_variable_under_a_condition_can_be_given() -> None:
    text = f"if [ $X = y ]; then A=1; else A=2; fi\ntorchrun pretrain_gpt.py {CORE}--seq-length $A\n"
    unknown = text.replace("$X", "$(hostname)")
    assert values(unknown, env={"A": "5"}) == {"seq_length": 5}
    assert values(text, env={"X": "y"}) == {"seq_length": 1}


def test_words_that_belong_to_no_flag() -> None:
    document = parse(f"torchrun pretrain_gpt.py {CORE}$EXTRA --bf16\n")
    [problem] = document.problems
    assert (problem.code, problem.fatal) == ("unset-variable-as-empty", False) and "$EXTRA" in problem.message


def test_flags_in_quotes_are_one_word() -> None:
    flags = "--num-layers 2 --hidden-size 64 --bf16"
    for call, codes in (('"$A"', ["stray-word"]), ("$A", [])):
        document = parse(f'A="{flags}"\ntorchrun pretrain_gpt.py {call}\n')
        assert [problem.code for problem in document.problems] == codes
        assert "num_layers" in document.sections[0].values  # the recipe that was meant
    assert parse(f'A="{flags}"\nwrap "torchrun pretrain_gpt.py $A"\n').problems == []


@pytest.mark.parametrize("text", [f'A="{CORE}\ntorchrun pretrain_gpt.py $A\n', f"A='{CORE}\ntorchrun x.py $A\n"])
def test_a_quote_that_nothing_closes(text: str) -> None:
    document = parse(text)
    assert document.is_recipe
    assert [(problem.code, problem.line, problem.column) for problem in document.problems] == [("unclosed-quote", 1, 3)]
    assert document.fatal
    if BASH is not None:
        assert subprocess.run([BASH, "-n"], input=text, text=True, capture_output=True).returncode != 0


@pytest.mark.parametrize(
    "text", ["# it's\n", "cat <<E\nit's\nE\n", "A=$'it\\'s'\n", "echo \"it's\" 'a \"b' \\' \n", "A=${B:-'}'}\n"]
)
def test_quotes_that_need_no_other(text: str) -> None:
    text += f"torchrun pretrain_gpt.py {CORE}\n"
    assert parse(text).problems == []
    if BASH is not None:
        assert subprocess.run([BASH, "-n"], input=text, text=True, capture_output=True).returncode == 0


def test_windows_line_ends_are_part_of_the_words() -> None:
    document = parse(f"# a\r\ntorchrun pretrain_gpt.py {CORE}--bf16\r\n")
    assert [(problem.code, problem.line) for problem in document.problems] == [("windows-line-ends", 2)]
    assert parse(f"# a\r\ntorchrun pretrain_gpt.py {CORE}--bf16\n").problems == []


def test_eval_srun_and_several_commands() -> None:
    text = (
        f'ARGS="{CORE}"\nrun="torchrun a.py ${{ARGS}} --bf16"\neval $run\n'
        f'srun bash -c "torchrun b.py {CORE}--fp16"\necho torchrun c.py {CORE}\n'
    )
    document = parse(text)
    assert [section.name for section in document] == ["a.py", "b.py#2"]
    assert [section.get("bf16") for section in document] == [True, None]
    assert [section.get("num_layers") for section in document] == [2, 2]


def test_flags_that_another_file_runs() -> None:
    assert values(f"MODEL_ARGS=({CORE}--bf16)\nOTHER='--seq-length 8'\nsource ./run.sh\n") == {
        "bf16": True,
        "seq_length": 8,
    }


@pytest.mark.parametrize(
    "text",
    ["echo hello\n", "python tools/preprocess_data.py --input x --vocab-file y --workers 8\n", "#!/bin/bash\n",
     "echo --num-layers 2 --hidden-size 4\n"],
)  # fmt: skip
def test_other_scripts_are_no_recipe(text: str) -> None:
    assert not parse(text).is_recipe


def test_a_shebang_tells_a_script_without_suffix() -> None:
    source = SourceText.from_text("launch", f"#!/usr/bin/env bash\ntorchrun pretrain_gpt.py {CORE}\n")
    assert read(source).format == "shell"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1+2*3", 7), ("(1+2)*3", 9), ("7/2", 3), ("-7/2", -3), ("-7%3", -1), ("8-2-1", 5), ("2*-3", -6), ("1+", None),
     ("", 0), ("1/0", None), ("2**3", 8), ("-2**2", 4), ("2**3**2", 512), ("1 ? 2 : 3", 2), ("0 || 3 && 0", 0), ("010", 8),
     ("0x10", 16), ("1 << 3 | 1", 9), ("!0 + ~0", 0), ("3 > 2 == 1", 1), ("5, 6", 6), ("2**-1", None), ("08", None)],
)  # fmt: skip
def test_arithmetic(text: str, value: int | None) -> None:
    assert compute(text) == value
    if BASH is not None:
        done = subprocess.run([BASH, "-c", f"echo $(({text}))"], capture_output=True, text=True)
        assert done.stdout == ("" if value is None else f"{value}\n")


@pytest.mark.parametrize("text", ["a", "9" * 30, "(" * 2000 + "1", "2**63"])
def test_arithmetic_that_is_not_followed(text: str) -> None:
    with pytest.raises(Unknown):
        compute(text)


@pytest.mark.parametrize(
    ("flags", "given", "world"),
    [("--nnodes 4 --nproc_per_node 8", {}, 32), ("--nnodes=2 --nproc-per-node=4", {}, 8), ("--nnodes 4", {}, 32),
     ("--nproc_per_node 8", {}, 8), ("--nnodes 1:4 --nproc_per_node 8", {}, None),
     ("--nnodes 4 --nproc_per_node 8", {"nodes": 16}, 128), ("--nnodes ${NNODES:-3} --nproc_per_node gpu", {}, 24)],
)  # fmt: skip
def test_the_launch_command_is_a_target_that_the_command_line_hides(
    flags: str, given: dict[str, int], world: int | None
) -> None:
    source = SourceText.from_text("run.sh", f"torchrun {flags} pretrain_gpt.py {CORE}\n")
    target, assumed = resolve_target("run.sh", source, None, document=read(source), **given)
    assert target.world_size == world
    assert world is None or given or "the launch command in the file" in [item.source for item in assumed]


def problems(text: str, **more: Any) -> dict[str, str]:
    return {problem.code: problem.message for problem in parse(text, **more).problems}


def test_what_waits_for_one_variable_is_said_once() -> None:
    text = f"SIZE=$2\nif [ $SIZE = 7B ]; then H=32; S=4096; fi\ntorchrun x.py {CORE}--num-attention-heads $H --seq-length $S\n"
    found = problems(text)
    assert found["unset-variable"].startswith("$2 is not set here: --num-attention-heads, --seq-length wait for it")
    assert "--env 2=VALUE" in found["unset-variable"]
    document = parse(text, env={"1": "dsw", "2": "7B"})
    assert not document.problems and document.sections[0].get("seq_length") == 4096


def test_what_only_a_run_knows_says_what_to_give() -> None:
    text = (
        f"GPUS=$(nvidia-smi -L | wc -l)\ntorchrun x.py {CORE}--global-batch-size $((GPUS * 4)) --seq-length $(cat n)\n"
    )
    found = [problem.message for problem in parse(text).problems]
    assert any(
        "$(nvidia-smi -L | wc -l)" in message and "--set global_batch_size=VALUE" in message for message in found
    )
    document = parse(text, env={"GPUS": "8"}, set_values=(("seq_length", "64"),))
    assert not document.problems
    assert (document.sections[0].get("global_batch_size"), document.sections[0].get("seq_length")) == (32, 64)


def test_an_undecided_condition_leaves_the_sure_flags() -> None:
    text = f'A=({CORE})\nA+=(--bf16)\nif grep -q x /proc/cpuinfo; then A+=(--swiglu); fi\nB="--fp16"\nif [ -f f ]; then B="$B --lr 1"; fi\n'
    document = parse(text + 'torchrun x.py "${A[@]}" $B\n')
    section = document.sections[0]
    assert (section.get("bf16"), section.get("fp16"), section.get("num_layers")) == (True, True, 2)
    assert [problem.code for problem in document.problems] == ["unset-variable-as-empty"] * 2
    assert all("condition" in problem.message for problem in document.problems)


def test_a_guard_that_leaves_is_taken_as_passed() -> None:
    text = "if [ ! -f pretrain_gpt.py ]; then exit 1; fi\n[ -d /data ] || exit 2\nif [ $# -lt 3 ]; then echo usage; exit 1; fi\n"
    assert values(text + f"torchrun pretrain_gpt.py {CORE}--seq-length 8\n") == {"seq_length": 8}


def test_a_script_that_leaves_says_where_and_why() -> None:
    text = f"SIZE=${{SIZE:-13B}}\ncase $SIZE in 7B) L=2 ;; *) exit 1 ;; esac\ntorchrun x.py {CORE}\n"
    document = parse(text)
    [problem] = document.problems
    assert (problem.code, problem.fatal, problem.line) == (
        "no-training-command",
        True,
        2,
    ) and "$SIZE" in problem.message
    assert not parse(text, env={"SIZE": "7B"}).problems
    assert not parse("exit 1\n# --num-layers\n").is_recipe


def test_a_condition_on_an_unset_variable_is_said_when_it_matters() -> None:
    text = f'if [ "$P" = fp16 ]; then A=--fp16; else A=--bf16; fi\nif [ "$Q" = 1 ]; then LOG=x; fi\ntorchrun x.py {CORE}$A\n'
    document = parse(text)
    [problem] = document.problems
    assert (problem.code, problem.line) == ("unset-variable-as-empty", 1) and "$P " in problem.message
    assert document.sections[0].get("bf16") is True


def test_flags_of_another_program_are_one_warning() -> None:
    command = f"torchrun {{}} {CORE}--extra-vocab-size 3 --patch-tokenizer-type X --num-layerz 3\n"
    found = problems(command.format("pretrain_mine.py"))
    assert (
        list(found) == ["flag-of-the-program"] and "--num-layerz is near --num-layers" in found["flag-of-the-program"]
    )
    assert parse(command.format("pretrain_mine.py")).sections[0].own_flags[0] == "--extra-vocab-size"


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        ("--extra-vocab-size 3 --train-mode X --num-layerz 3", ["flag-of-the-program"]),  # no typing gives these
        ("--train-mode X", ["unknown-flag"]),
        ("--num-layerz 3 --tensor-parallel-size 2", ["unknown-flag"] * 2),  # a letter, a word left out
    ],
)
def test_a_fork_under_the_name_of_megatrons_program(flags: str, codes: list[str]) -> None:
    document = parse(f"torchrun pretrain_gpt.py {CORE}{flags}\n")
    assert [problem.code for problem in document.problems] == codes
    assert bool(document.sections[0].own_flags) == (codes == ["flag-of-the-program"])


def test_flags_of_an_older_megatron() -> None:
    text = f"torchrun pretrain_gpt.py {CORE}--DDP-impl local --use-custom-fsdp\n"
    [problem] = parse(text).problems
    assert problem.code == "flag-of-an-older-version"
    assert "--DDP-impl (2023), --use-custom-fsdp (2025; now use --use-megatron-fsdp)" in problem.message
    assert [problem.code for problem in parse(text, version="d3528a21").problems] == ["removed-flag"] * 2


def test_deepspeed_is_another_framework() -> None:
    assert (
        parse(f"deepspeed pretrain_gpt.py {CORE}--deepspeed --zero-stage 1\n").sections[0].framework
        == "megatron_deepspeed"
    )


def test_a_checkout_around_the_script_knows_its_flags(tmp_path: Any) -> None:
    for folder in ("megatron/training", "examples/llama"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "megatron/training/arguments.py").write_text("group.add_argument('--moe-mine', type=int)\n")
    (tmp_path / "pretrain_gpt.py").write_text('parser.add_argument("--mine-too")\n')
    path = tmp_path / "examples/llama/run.sh"
    path.write_text(f"torchrun pretrain_gpt.py {CORE}--moe-mine 3 --mine-too x --not-mine\n")
    [problem] = read(str(path)).problems
    assert problem.code == "unknown-flag" and "--not-mine" in problem.message


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [("\\\n  # --bf16 \\\n  --fp16", "lost-flags", "--fp16"), ("bf16", "stray-word", "bf16"), ("--bf16 \\ \n  --fp16", "lost-flags", "--fp16")],
)  # fmt: skip
def test_words_that_do_not_arrive(words: str, code: str, said: str) -> None:
    assert said in problems(f"torchrun pretrain_gpt.py {CORE}{words}\n")[code]


def test_the_batch_header_is_a_launcher() -> None:
    text = f"#SBATCH -N 4\n#SBATCH --gres=gpu:a100:2 # two\n#SBATCH --ntasks-per-node=2\nsrun python x.py {CORE}--global-batch-size $((SLURM_NNODES * 8))\n"
    document = parse("#!/bin/bash\n" + text)
    assert document.sections[0].get("global_batch_size") == 32
    assert {key: value.value for key, value in document.top_level.items()} == {
        "launcher.nodes": 4,
        "launcher.gpus_per_node": 2,
    }


@pytest.mark.parametrize(
    ("launcher", "world", "per_node"),
    [
        ("torchrun --nproc_per_node 4", 4, 4),  # --nnodes is 1 unless told
        ("#SBATCH --nodes=9\n\ntorchrun --nproc_per_node 4", 4, 4),  # on the job's first node
        ("python -m torch.distributed.launch --nproc_per_node=4", 4, 4),
        ("torchrun --nproc_per_node 4 --nnodes $NNODES", None, 4),
        ("mpirun -np 32 --npernode 4 -x A=1 python", 32, 4),
        ("srun -n 16 --ntasks-per-node=4 python -u", 16, 4),
        ("#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n\nsrun -N2 --ntasks-per-node 4 python", 8, 4),
        ("srun -N 2 -n 2 torchrun --nproc_per_node 4", 8, 4),
        ("mpirun -np 2 torchrun --nnodes 2 --nproc_per_node 4", 8, 4),
    ],
)  # fmt: skip
def test_how_many_processes_a_launcher_starts(launcher: str, world: int | None, per_node: int) -> None:
    document = parse(f"{launcher} x.py {CORE}-n 3\n")
    target, _ = resolve_target("run.sh", document.source, None, gpu="h100", document=document)
    assert (target.world_size, target.gpus_per_node) == (world, per_node)


@pytest.mark.parametrize(
    ("starter", "inner", "world"),
    [("srun -N8 --ntasks-per-node 8 -l", "python x.py", 64), ("mpirun -np 32 --npernode 4", "python x.py", 32),
     ("srun -N 4 -n 4", "torchrun --nnodes 4 --nproc_per_node 2 x.py", 8),
     ("srun --nodes=4 -n 4", "python x.py", None),  # one shell a node: more processes may start in it
     ("srun -N 4 --ntasks-per-node=1", "mine.py --nproc_per_node 2 x.py", 8)],
)  # fmt: skip
def test_what_starts_the_shell_of_a_command(starter: str, inner: str, world: int | None) -> None:
    document = parse(f'CMD="{inner} {CORE}-n 3"\n{starter} bash -c "$CMD"\n')
    assert len(document.sections) == 1 and document.sections[0].get("hidden_size") is not None
    launched = {key.rpartition(".")[2]: value.value for key, value in document.top_level.items()}
    product = launched.get("world_size", launched.get("nodes", 0) * launched.get("gpus_per_node", 0))
    assert product == (world or 0)


def test_a_file_that_is_not_here(tmp_path: Any) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f'source ./model.sh\ntorchrun x.py {CORE}"${{MODEL_ARGS[@]}}"\n')
    [problem] = read(str(path)).problems
    assert problem.fatal and "./model.sh" in problem.message and "MODEL_ARGS" in problem.message
    (tmp_path / "model.sh").write_text("MODEL_ARGS=(--bf16)\n")
    document = read(str(path))
    assert not document.problems and document.sections[0].get("bf16") is True
    assert document.sections[0].values["bf16"].origin.line == 2  # where the script takes it


def test_missing_flags_behind_an_unknown_flag(tmp_path: Any) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"source ./model.sh\npython3 train.py {CORE}--colocate ${{MODEL_ARGS[@]}} --bf16\n")
    problem = next(problem for problem in read(str(path)).problems if problem.fatal)
    assert "./model.sh" in problem.message and "MODEL_ARGS" in problem.message


def test_a_script_that_is_run_from_the_root_of_its_repository(tmp_path: Any) -> None:
    (tmp_path / "examples/a").mkdir(parents=True)
    (tmp_path / "examples/a/train.sh").write_text(f"torchrun x.py {CORE}--seq-length ${{SEQ:-8}}\n")
    path = tmp_path / "examples/a/job.sh"
    path.write_text("SEQ=16\nsrun bash -c 'docker exec -e SEQ='\"$SEQ\"' image bash -c \"bash examples/a/train.sh\"'\n")
    assert read(str(path)).sections[0].get("seq_length") == 16


def test_a_file_in_a_folder_that_is_not_known(tmp_path: Any) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/model.sh").write_text("ARGS='--bf16'\n")
    path = tmp_path / "run.sh"
    path.write_text(f". `pwd`/conf/model.sh\ntorchrun pretrain_gpt.py {CORE}$ARGS\n")
    assert read(str(path)).sections[0].get("bf16") is True


def test_serving_a_model_is_no_training() -> None:
    serve = f"torchrun tools/run_text_generation_server.py {CORE}--load x --micro-batch-size 1\n"
    assert not parse(serve).is_recipe and parse(serve.replace("--load", "--lr 1 --load")).is_recipe
    assert [section.name for section in parse(serve + f"torchrun pretrain_gpt.py {CORE}\n")] == ["pretrain_gpt.py"]


def test_a_command_that_a_loop_starts_once_for_every_node() -> None:
    loop = "for i in 0 1; do ssh node$i; torchrun --nnodes 2 --node_rank $i x.py"
    assert len(parse(f"{loop} {CORE}; done\n").sections) == 1
    assert len(parse(f"{loop} --seed $i {CORE}; done\n").sections) == 2


def test_a_launcher_that_is_a_script_and_tries_again() -> None:
    document = parse(
        f"run() {{\n  python3 mine.py --nnodes 2 --nproc-per-node 4 -- python3 pretrain_gpt.py {CORE}--bf16\n}}\nwhile true; do run; done\n"
    )
    [section] = document.sections
    assert section.name == "pretrain_gpt.py" and not document.problems
    assert [value.value for value in document.top_level.values()] == [2, 4]


def test_flags_that_hang_on_a_file() -> None:
    text = f'LOAD=(--load first --no-load-rng); if [ -f last ]; then LOAD=(--load last); fi\ntorchrun pretrain_gpt.py {CORE}--data-path a "${{LOAD[@]}}" --bf16\n'
    document = parse(text)
    [problem] = document.problems
    assert (
        problem.code == "unset-variable-as-empty" and "${LOAD[@]} hangs on the condition [ -f last ]" in problem.message
    )
    [section] = document.sections
    assert (section.get("data_path"), section.get("load"), section.get("no_load_rng")) == (["a"], "first", True)
    assert section.values["load"].origin.line == 1
    empty = parse(
        text.replace("LOAD=(--load first --no-load-rng)", 'LOAD=""')
        .replace("=(--load last)", '="--load last"')
        .replace("{LOAD[@]}", "LOAD")
    )
    assert [problem.code for problem in empty.problems] == ["unset-variable-as-empty"] and empty.sections[0].get(
        "load"
    ) is None
    number = parse(
        f"TP=2; if nvidia-smi; then TP=4; fi\ntorchrun pretrain_gpt.py {CORE}--tensor-model-parallel-size $TP\n"
    )
    assert [problem.code for problem in number.problems] == ["unset-variable"]  # no side is more likely


def test_a_loop_that_may_end_early() -> None:
    text = f'HOST=""\nfor ip in $(hostname -I); do\n  if ping $ip; then HOST=$ip; break; fi\ndone\nif [ -z "$HOST" ]; then exit 1; fi\ntorchrun x.py {CORE}\n'
    assert not parse(text).problems


def test_a_flag_of_one_program_is_none_of_another() -> None:
    command = f"torchrun examples/multimodal/train.py {CORE}--pixel-shuffle --bf16\n"
    document = parse(command)
    assert not document.problems and "pixel_shuffle" not in document.sections[0].values
    assert document.sections[0].meta["program"].value == "multimodal"
    [problem] = parse(command.replace("examples/multimodal/train.py", "pretrain_gpt.py")).problems
    assert problem.code == "unknown-flag" and "examples/multimodal" in problem.message


def test_what_no_flag_sets_is_told_at_the_command_that_trains() -> None:
    """Not at the first line, which is `#!/bin/bash`: so a comment above the command can suppress it."""
    from primus_lint.pipeline import Options, check_source

    flags = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --lr 1e-4"
    text = f"#!/bin/bash\n\nfor i in 1 2; do\n  torchrun --nproc-per-node 8 pretrain_gpt.py {flags}\ndone\n"
    for above, suppressed in (("", None), ("# primus-lint: ignore[training-length-given] elsewhere\n", "elsewhere")):
        source = SourceText.from_text("run.sh", text.replace("  torchrun", above + "  torchrun"))
        findings = [f for f in check_source(source, Options()).findings if f.name == "training-length-given"]
        assert findings
        for finding in findings:
            assert finding.place is not None and source.line_text(finding.place.line).startswith("  torchrun")
            assert finding.suppressed == suppressed
