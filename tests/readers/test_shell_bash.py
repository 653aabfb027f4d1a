"""Launch scripts as people write them: a real bash runs each, and its words are those that the reader finds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from primus_lint.readers.shell import follow
from primus_lint.source.text import SourceText

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash on this machine")

PRINT = '#!/bin/sh\n{ printf "%s" torchrun; for word in "$@"; do printf "\\037%s" "$word"; done; printf "\\036"; } >> "$WORDS"\n'
SRUN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'


def bash(path: Path, env: dict[str, str], arguments: list[str]) -> list[list[str]]:
    """The words of every call of torchrun."""
    stubs = path.parent / "stubs"
    stubs.mkdir(exist_ok=True)
    for name, text in (("torchrun", PRINT), ("srun", SRUN)):
        (stubs / name).write_text(text)
        (stubs / name).chmod(0o755)
    words = stubs / "words"
    words.write_text("")
    variables = {"PATH": f"{stubs}:{os.environ['PATH']}", "WORDS": str(words), **env}
    assert BASH is not None
    subprocess.run([BASH, str(path), *arguments], env=variables, cwd=path.parent, capture_output=True, timeout=20)
    return [call.split("\x1f") for call in words.read_text().split("\x1e") if call]


def reader(path: Path, env: dict[str, str], arguments: list[str]) -> list[list[str]]:
    given = {**env, **{str(index): word for index, word in enumerate(arguments, 1)}}
    _, _, training = follow(SourceText.from_path(str(path)), given)
    calls = []
    for command, *_ in training:
        fields = [field for field in command if not field.unset]  # a shell puts nothing there
        assert all(field.unknown is None for field in fields)
        words = [field.text for field in fields]
        calls.append(words[words.index("torchrun") :])
    return calls


CORE = "--num-layers 2 --hidden-size 64"
# name: script, environment, arguments
CASES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "array items that hold a flag and its value": (
        f'A=({CORE})\nA+=("--fp8-format hybrid" "--bf16")\ntorchrun pretrain_gpt.py ${{A[@]}}\n', {}, [],
    ),
    "the same in quotes stay one word": (
        f'A=("--fp8-format hybrid")\ntorchrun pretrain_gpt.py {CORE} "${{A[@]}}"\n', {}, [],
    ),
    "comments inside an array": (
        "A=(\n  --num-layers 2  # layers\n  # --hidden-size 1 # no\n  --hidden-size 64\n\n)\ntorchrun x.py ${A[@]}\n", {}, [],
    ),
    "eval of a string over lines": (
        f'G="\n  {CORE} \\\n  --lr 1e-4 \\\n"\nrun="torchrun x.py \\\n $G \\\n"\nrun="$run |& cat"\neval $run\n', {}, [],
    ),
    "eval with quotes inside": (
        f"""run="torchrun x.py {CORE} --moe-layer-freq '([0]*1+[1]*1)' "\neval $run\n""", {}, [],
    ),
    "redirections are no words": (f"torchrun x.py {CORE} --bf16 2>&1 >/dev/null 3<&- | cat\n", {}, []),
    "eval stops at a comment": (f'run="torchrun x.py {CORE} \n # --bf16 \n --fp16"\neval $run\n', {}, []),
    "eval in quotes ends at the line": (f'run="torchrun x.py {CORE}\n--fp16"\neval "$run"\n', {}, []),
    "a comment cuts a continued command": (f"torchrun x.py {CORE} \\\n  # --bf16 \\\n  --fp16\n", {}, []),
    "a blank behind the backslash": (f"torchrun x.py {CORE} \\ \n  --fp16\n", {}, []),
    "NAME=VALUE arguments": (
        'for A in "$@"; do\n  KEY=$(echo $A | cut -f1 -d=)\n  N=${#KEY}\n  VALUE="${A:$N+1}"\n  export "$KEY"="$VALUE"\ndone\n'
        'TP=${TP:-8}\nMBS="${MBS:-2}"\n' f"torchrun x.py {CORE} --tensor-model-parallel-size $TP --micro-batch-size $MBS\n",
        {"MBS": "4"}, ["TP=4", "X=a=b"],
    ),
    "arguments in a loop with patterns": (
        "for p in $*; do\n if [[ $p == --tp=* ]]; then tp=${p#*=}\n elif [[ $p == --mbs* ]]; then mbs=${p#*=}; fi\ndone\n"
        f"torchrun x.py {CORE} --tensor-model-parallel-size ${{tp:-1}} --micro-batch-size ${{mbs:-1}}\n", {}, ["--tp=2", "--mbs=3"],
    ),
    "while and case over arguments": (
        'TP=1; EXTRA=()\nwhile [[ $# -gt 0 ]]; do\n case "$1" in\n  --tp) TP="$2"; shift 2 ;;\n  --bf16|--fp16) EXTRA+=("$1"); shift;;\n'
        '  *) echo "what is $1"; exit 1 ;;\n esac\ndone\n'
        f'torchrun x.py {CORE} --tensor-model-parallel-size "$TP" "${{EXTRA[@]}}"\n', {}, ["--bf16", "--tp", "4"],
    ),
    "the same without arguments": (
        f'while [[ $# -gt 0 ]]; do case "$1" in *) shift ;; esac; done\ntorchrun x.py {CORE} "$@"\n', {}, [],
    ),
    "getopts without arguments": (
        f'TP=2\nwhile getopts "t:" o; do case $o in t) TP=$OPTARG;; esac; done\ntorchrun x.py {CORE} --tensor-model-parallel-size $TP\n',
        {}, [],
    ),
    "getopts with arguments": (
        'TP=2\nwhile getopts "t:bm:" o; do case $o in t) TP=$OPTARG;; b) B=--bf16;; m) M=$OPTARG ;; ?) Q=--fp16 ;; esac; done\nshift $((OPTIND - 1))\n'
        f'torchrun x.py {CORE} --tensor-model-parallel-size $TP --micro-batch-size $M $B $Q "$@"\n',
        {}, ["-bt4", "-m", "8", "-z", "--", "--seed", "1"],
    ),
    "braces": (
        f"for i in {{1..3}} {{08..10}} x{{a,b}}{{2..1}}; do torchrun x.py {CORE} --save $i; done\ntorchrun x.py {CORE} --load '{{1..2}}' {{}} {{a}} \"{{1,2}}\"\n",
        {}, [],
    ),
    "a loop over nothing": (f"for x in $NOTHING a; do torchrun x.py {CORE} --seed $x; done\n", {}, []),
    "an optional variable": (
        f'if [ -z ${{VP}} ]; then V=""; else V="--num-layers-per-virtual-pipeline-stage ${{VP}}"; fi\ntorchrun x.py {CORE} $V\n', {}, [],
    ),
    "the optional variable given": (
        f'if [ -z ${{VP}} ]; then V=""; else V="--num-layers-per-virtual-pipeline-stage ${{VP}}"; fi\ntorchrun x.py {CORE} $V\n',
        {"VP": "1"}, [],
    ),
    "an unset variable in a test without quotes": (
        f'if [ $CKPT != none ]; then L="--load $CKPT"; fi\ntorchrun x.py {CORE} $L --bf16\n', {}, [],
    ),
    "an unset variable in double brackets": (
        f'if [[ $CKPT != none ]]; then L="--fp16"; fi\ntorchrun x.py {CORE} $L\n', {}, [],
    ),
    "tests joined": (
        "SP=true; TP=2\n" f'if [ $SP = true ] && [ "$TP" -gt 1 ]; then S=--sequence-parallel; elif [ $SP = false ]; then S=""; fi\n'
        f'if [[ $TP -eq 2 && ( -z "$X" || $SP != true ) ]]; then B=--bf16; fi\ntorchrun x.py {CORE} $S $B\n', {}, [],
    ),
    "a test without its blank": (f"P=true\nif [$P = true]; then A=--profile; fi\ntorchrun x.py {CORE} $A\n", {}, []),
    "short circuits": (
        f'FP8=1\nA=()\n[ "$FP8" = 1 ] && A+=(--fp8-format e4m3)\n[ -n "${{CLIP:-}}" ] && A+=(--clip-grad "$CLIP")\n'
        f'[ "${{#A[@]}}" -gt 2 ] || A+=(--bf16)\ntorchrun x.py {CORE} "${{A[@]}}"\n', {}, [],
    ),
    "arithmetic": (
        f"G=8; N=4; TP=2\nW=$(($G*$N)); O=$(( ($TP > 1) ? 1 : 0 )); S=$((W / TP % 5 << 1))\n(( O == 1 )) && A=--sequence-parallel\n"
        f"let L=O+3\ntorchrun x.py {CORE} --global-batch-size $W --seq-length $S $A --lr-warmup-iters $((L++)) --eval-iters $L\n", {}, [],
    ),
    "an array read as a scalar": (
        f"F=([0]*1+[1]*1)\nmoe=\" --moe-layer-freq '${{F}}' \"\neval torchrun x.py {CORE} $moe\n", {}, [],
    ),
    "functions with locals": (
        "LR=1\nadd() { local LR=$1; shift; ARGS+=(--lr $LR \"$@\"); }\nfunction run_case {\n  local name=$1; shift\n"
        f'  torchrun x.py {CORE} "${{ARGS[@]}}" --tensorboard-dir "out/$name" "$@" | cat\n}}\nadd 2 --bf16\n'
        "run_case a --seq-length 8\nrun_case b --min-lr $LR\n", {}, [],
    ),
    "a function whose output is taken": (
        'layers() { case $1 in 7B) echo 32 ;; 70*) echo 80 ;; *) echo 1 ;; esac; }\n'
        "torchrun x.py --num-layers $(layers 70B) --hidden-size `layers 7B`\n", {}, [],
    ),
    "an associative array": (
        'declare -A H=([7B]=4096 [70B]=8192)\nH[1B]=2048\nM=70B\nI=(10 20 30)\n'
        'torchrun x.py --num-layers 2 --hidden-size ${H[$M]} --ffn-hidden-size ${H[1B]} --seq-length ${I[1]} --lr ${I[-1]} ${!H[@]}\n'
        .replace(" ${!H[@]}", ""), {}, [],
    ),
    "operators of variables": (
        'P=/a/b/model_7B.v2; D="0,1,2,3"\nM=${P##*/}; M=${M%.v*}; S=${M#*_}\nN=${D//[^0-9]/}\nX=TP\nTP=4\n'
        f'torchrun x.py {CORE} --tokenizer-model "$M" --exit-interval ${{#N}} --save ${{S^^}}${{S,,}} --load ${{P/model/x}} '
        "--tensor-model-parallel-size ${!X} --seed ${N:1:2} ${Z:+--bf16} ${TP:+--fp16}\n", {}, [],
    ),
    "words for another shell": (
        f'A=({CORE} --moe-layer-freq "([0]*1+[1]*1)")\nS="${{A[*]@Q}}"\nsrun -l bash -c "export R=\\$RANK; cd . && torchrun x.py $S"\n', {}, [],
    ),
    "only exported variables reach another shell": (
        f"A=1; export B=2\nbash -c 'torchrun x.py {CORE} --seq-length ${{A:-7}} --seed $B $1' sh --bf16\n", {}, [],
    ),
    "set -a": (f"set -a\nA=1\nset +a\nB=2\nbash -c 'torchrun x.py {CORE} --seed ${{A:-8}}${{B:-9}}'\n", {}, []),
    "a here-document as script": (
        f"TP=2\nexport MBS=3\nbash <<EOF\ntorchrun x.py {CORE} --tensor-model-parallel-size $TP --micro-batch-size \\$MBS\nEOF\n", {}, [],
    ),
    "flags in a file that the script writes": (
        f"TP=2\ncat <<EOF > args.txt\n{CORE}\n--tensor-model-parallel-size $TP\nEOF\necho '--bf16' >> args.txt\n"
        "echo --fp16 2> args.txt.err\ntorchrun x.py $(cat args.txt)\nA=($(<./args.txt)); torchrun y.py ${A[@]}\n", {}, [],
    ),
    "a script that the script writes, renames and runs": (
        f"N=3\nmkdir -p out\n{{ mkdir -p out; echo '#!/bin/bash'; echo \"torchrun x.py {CORE} --seed $N \\$1\"; }} > tmp.sh\n"
        "mv tmp.sh out/job.sh\ncp -f out/job.sh out/other.sh\nbash out/other.sh --bf16\nbash tmp.sh --fp16\n", {}, [],
    ),
    "a here-document through tee, read back": (
        f"cat <<'EOF' | tee run.inc >/dev/null\nOPT='{CORE}'\nSEED=4\nEOF\nSEED=5\n. ./run.inc\ntorchrun x.py $OPT --seed $SEED\n", {}, [],
    ),
    "files with names of their own": (
        f"a=$(mktemp); b=$(mktemp)\necho 'torchrun x.py {CORE} --seed 1' > $a\necho 'torchrun x.py {CORE} --seed 2' >$b\n"
        "bash $b; bash $a; printf '%s\\n' --bf16 > $$.t\n"
        f"torchrun y.py {CORE} `cat $$.t`; rm $$.t $a $b\n", {}, [],
    ),
    "mapfile from a file": (
        f"printf '%s\\n' {CORE} > args\nmapfile -t A < args\ntorchrun x.py \"${{A[@]}}\"\n", {}, [],
    ),
    "comments between continued lines": (
        f"torchrun x.py {CORE} \\\n  `# a word on it` --bf16 \\\n  $(: another) --seed 3 \\\n\n--fp16\n", {}, [],
    ),
    "a here-document behind flags": (
        f"torchrun x.py {CORE} <<EOF --bf16 \\\n  --seed 3\n--fp16 \\\nEOF\ntorchrun y.py {CORE} <<-'E' >log 2>&1\n\t$X\n\tE\n", {}, [],
    ),
    "a here-document read into a variable": (
        f"read -r -d '' CMD <<- EOM\n\ttorchrun x.py {CORE}\n\t\t--bf16\nEOM\nsrun $CMD\n", {}, [],
    ),
    "read from a string": (
        f'read -r -a S <<< "${{SIZES:-3 4}}"\nIFS=, read -r A B <<< "5,6,7"\ntorchrun x.py {CORE} --seq-length ${{S[1]}} --save $A --load $B\n', {}, [],
    ),
    "loops": (
        f"for TP in 1 2; do\n for ((i = 0; i < 2; i++)); do\n  torchrun x.py {CORE} --tensor-model-parallel-size $TP --seed $i\n done\ndone\n"
        f"n=0; until [ $n -ge 2 ]; do n=$((n + 1)); [ $n = 1 ] && continue; torchrun x.py {CORE} --seed 9$n; done\n", {}, [],
    ),
    "prefix assignments and exec": (f"X=3 exec torchrun x.py {CORE} --seed ${{X:-1}}\ntorchrun x.py {CORE} --fp16\n", {}, []),
    "an exit before": (f"if [ 8 -lt 4 ]; then echo small; exit 1; fi\ntorchrun x.py {CORE}\nexit 0\ntorchrun x.py {CORE} --fp16\n", {}, []),
    "declare -p asks for an array": (
        f"B=(--bf16)\nfor n in A B; do :; done\ndeclare -p A >/dev/null 2>&1 || A=(--swiglu)\ndeclare -p B >/dev/null 2>&1 || B=()\n"
        f'torchrun x.py {CORE} "${{A[@]}}" "${{B[@]}}"\n', {}, [],
    ),
    "small commands": (
        'H=1024\nS=$(awk "BEGIN{printf \\"%.6g\\", 1.0/sqrt($H)}")\nN=$(expr $H / 8); B=$(echo "$H * 2" | bc 2>/dev/null || echo 2048)\n'
        'T=$(echo "Llama-3_8B" | tr "[:upper:]" "[:lower:]" | sed "s/_/-/g"); D=$(dirname /a/b/c.sh); L=$(seq -s, 0 3); W=$(echo a b c | wc -w)\n'
        f'torchrun x.py {CORE} --init-method-std $S --seq-length $N --save $T --load $D --split $L --seed $W\n', {}, [],
    ),
    "quotes beside variables": (
        f"""M=a; torchrun x.py {CORE} --save pre"$M"'$M'\\$post --load "x\\"y" --split "99,1,0" --seed '' "" $EMPTY\n""", {}, [],
    ),
    "positional defaults": (
        'CKPT=${1:-"ck/pt"}; TOK=${2:-"MOCK"}\nif [[ "$TOK" == "MOCK" ]] || [[ -z "$TOK" ]]; then D=("--mock-data"); else D=("--data-path $TOK"); fi\n'
        f'torchrun x.py {CORE} --save "$CKPT" ${{D[@]}}\n', {}, ["here"],
    ),
    "case with fall-through patterns": (
        f'case "${{SIZE:-8B}}" in\n  (7b|7B) H=1 ;;\n  [0-9]B) H=2 ;;\n  *) H=3 ;;\nesac\ntorchrun x.py {CORE} --seed $H\n', {}, [],
    ),
    "words of their own in an alternative": (
        f'A=("--save" "a b"); B="x y"\ntorchrun x.py {CORE} ${{A[@]+"${{A[@]}}"}} ${{Z[@]+"${{Z[@]}}"}} ${{B:+--load "$B" $B}}\n', {}, [],
    ),
    "a module": (f'M=pretrain_hybrid\nexec torchrun --module "$M" {CORE} "$@"\n', {}, ["--bf16"]),
    "a carriage return": (f"A=({CORE})\r\ntorchrun x.py ${{A[@]}} \\\r\n".replace("\r", ""), {}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_words_are_those_of_bash(name: str, tmp_path: Path) -> None:
    script, env, arguments = CASES[name]
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/bash\n" + script)
    expected = bash(path, env, arguments)
    assert expected, "bash does not train: the case is wrong"
    assert reader(path, env, arguments) == expected


def test_files_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "conf.sh").write_text(
        'TP=${TP:-2}\nMODEL=(--num-layers 2)\n[ -n "$X" ] && return 0\nMODEL+=(--hidden-size 64)\n'
    )
    (tmp_path / "inner.sh").write_text('torchrun x.py "$@" --seed ${LOCAL:-none} --lr $GLOBAL\n')
    path = tmp_path / "run.sh"
    path.write_text(
        'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nLOCAL=1; export GLOBAL=3\nsource "$HERE/conf.sh"\n. ./missing.sh\n'
        'exec bash "${HERE}/inner.sh" "${MODEL[@]}" --tensor-model-parallel-size $TP "$@"\n'
    )
    expected = bash(path, {"TP": "4"}, ["--bf16"])
    assert len(expected) == 1 and reader(path, {"TP": "4"}, ["--bf16"]) == expected


def test_a_submitted_file(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(
        f"torchrun --nnodes $SLURM_NNODES x.py {CORE} --seed $SEED --lr ${{LR:-1}} $1\n"
    )
    path = tmp_path / "submit.sh"
    path.write_text('LR=2; N=4\nsbatch --nodes="$N" --job-name=x --export="ALL,SEED=3,A=b" ./train.sbatch --bf16\n')
    slurm = {"SLURM_NNODES": "4", "SEED": "3"}
    assert reader(path, {}, []) == bash(tmp_path / "train.sbatch", slurm, ["--bf16"])


def test_a_script_gets_what_stands_before_it(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(
        f"torchrun --nnodes $N x.py {CORE} --seed ${{SEED:-1}} --lr ${{LR:-1}} --seq-length ${{L:-1}}\n"
    )
    path = tmp_path / "run.sh"
    path.write_text("#SBATCH -N 2\nL=9\nN=$SLURM_NNODES SEED=4 bash train.sh\nenv N=1 LR=3 bash ./train.sh\n")
    slurm = {"SLURM_NNODES": "2"}
    assert reader(path, {}, []) == bash(path, slurm, []) != []


def test_slurm_fills_what_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=2\n#SBATCH --ntasks-per-node 1\n"
        f"srun torchrun --nnodes $SLURM_NNODES --nproc_per_node ${{SLURM_GPUS_PER_NODE}} x.py {CORE}\n"
    )
    slurm = {"SLURM_NNODES": "4", "SLURM_GPUS_PER_NODE": "2"}
    assert reader(path, {}, []) == bash(path, slurm, [])
