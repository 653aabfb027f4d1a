"""Inputs that were made to hurt: every reader answers with problems, within bounds, and never raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from primus_lint.readers import read
from primus_lint.readers.document import ResolvedDocument
from primus_lint.source.text import SourceText

HEAD = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\n"
MODULE = "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    model: llama3_8B.yaml\n"
Resolve = Callable[..., ResolvedDocument]


def test_extends_that_doubles_at_every_step(resolve: Resolve, checkout: Path) -> None:
    """2^40 paths lead to the last file; it is read once."""
    for index in range(40):
        (checkout / f"f{index}.yaml").write_text(f"extends: [f{index + 1}.yaml, f{index + 1}.yaml]\nk{index}: 1\n")
    (checkout / "f40.yaml").write_text(HEAD)
    document = resolve("extends: f0.yaml\n" + MODULE)
    assert not document.fatal
    assert document.top_level["k39"].value == 1


def test_a_long_chain_of_extends_stops(resolve: Resolve, checkout: Path) -> None:
    for index in range(200):
        (checkout / f"f{index}.yaml").write_text(f"extends: f{index + 1}.yaml\n")
    (checkout / "f200.yaml").write_text(HEAD)
    document = resolve(HEAD + "extends: f0.yaml\n" + MODULE)
    assert [problem.code for problem in document.problems if problem.fatal] == ["extends-depth"]


def test_a_circle_among_presets(resolve: Resolve, checkout: Path) -> None:
    models = checkout / "primus/configs/models/megatron"
    (models / "shape.yaml").write_text("extends: llama3_8B.yaml\n")
    document = resolve(HEAD + MODULE)
    [problem] = document.problems
    assert problem.code == "extends-cycle" and problem.path.endswith("shape.yaml")


@pytest.mark.parametrize("target", ["/dev/zero", "..", ".", "a\x00b", "x" * 5000, "/proc/self/mem"])
def test_extends_of_what_is_no_file(resolve: Resolve, target: str) -> None:
    document = resolve(HEAD + "extends: " + '"' + target.replace("\x00", "\\0") + '"\n' + MODULE)
    assert document.fatal


def test_a_pipe_as_parent_is_not_opened(resolve: Resolve, checkout: Path) -> None:
    os.mkfifo(checkout / "pipe.yaml")
    assert resolve(HEAD + "extends: pipe.yaml\n" + MODULE).fatal


def test_deep_nesting(resolve: Resolve) -> None:
    assert resolve(HEAD + MODULE + "    overrides: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n").fatal
    document = resolve(HEAD + MODULE + "    overrides: " + "{a: " * 150 + "1" + "}" * 150 + "\n")
    assert document.sections[0].get(".".join("a" * 150)) == 1


def test_alias_bomb(resolve: Resolve) -> None:
    lines = ["x0: &x0 [1, 1]"] + [f"x{i}: &x{i} [*x{i - 1}, *x{i - 1}]" for i in range(1, 40)]
    assert resolve(HEAD + MODULE + "\n".join(lines)).fatal


def test_not_utf8_and_nul(checkout: Path) -> None:
    path = checkout / "exp.yaml"
    for data in (b"\xff\xfe\x00", b"modules:\n trainer: \xff\n", b"\x00", b"modules: {pre_trainer: \x07}\n"):
        path.write_bytes(data)
        read(str(path))


def test_a_shell_variable_that_doubles() -> None:
    text = 'A="--num-layers 2 --hidden-size 4 "\n' + 'A="$A$A"\n' * 60 + "torchrun x.py $A\n"
    assert read(SourceText.from_text("x.sh", text)).is_recipe


def test_nested_defaults_and_brackets_in_shell() -> None:
    for text in (
        "${A:-" * 3000,
        "$((" * 3000 + "1",
        "$(" * 3000,
        "if " * 3000,
        "case x in " * 3000,
        '"' * 3001,
        "((" * 999,
    ):
        read(SourceText.from_text("x.sh", "--num-layers --hidden-size\nX=" + text))


@pytest.mark.parametrize(
    "line",
    ['printf "%s" a b c', 'printf "%d%%\\n" 3 4', "[[ aaa =~ [[:digit:]]+[ ]]", "case x in [[[) ;; [!]) ;; *[) ;; esac", "X=${X/[/]}",
     "X=$(seq 1 99999999)", "X=$((1 << 70))", "X=$((08))", "f() { f; }; f", "while true; do X=$X.; done", "for ((;;)); do :; done",
     "eval eval eval eval", 'X=\'eval "$X"\'; eval "$X"', "source run.sh", "bash $0", "set -- $@ $@ a; set -- $@ $@ $@",
     "X=$(echo $(echo $(echo `echo x`)))", "read A < /dev/zero", "${A[@]:1:${#A[@]}}", "declare -A M; M[a[b]]=1; echo ${M[a[b]]}",
     f"[[ {'a' * 400} =~ (a+)+b ]]", f"[[ {'a' * 400} =~ a*a*a*a*a*b ]]", f"[[ {'a' * 3000} == *a*a*a*a*b ]]",
     f"A={'a' * 3000}; B=${{A%%*a*a*a*a*b}}${{A//*a*a*a*b/x}}", f"case {'a' * 3000} in *a*a*a*a*b) ;; esac", "exec 3>&1 >&-", "{", "}", "((", "))", "[[", "!", "case", "for", "function"],
)  # fmt: skip
def test_lines_that_lead_nowhere(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{line}\ntorchrun x.py --num-layers 2 --hidden-size 4\n")
    read(str(path), env={"X": "1"})


FRAGMENTS = st.sampled_from(
    [
        "modules:", "pre_trainer:", "framework: megatron", "config: pre_trainer.yaml", "model: llama3_8B.yaml",
        "overrides:", "extends:", "- a.yaml", "bases:", "env:", "platform:", "lr: 1e-5", "a.b: 1", "on: 1", "metrics: null",
        "{a: [1, {b: ${C}}]}", "&x", "*x", "<<: *x", "? [1]", "!!set {a}", "!!python/object:x", "${A:${B:c}}", "\t", "  ",
        "\n", ": ", "- ", "'", '"', "|", ">", "#", "---", "work_group: a", "null", "MODEL_ARGS:", "--num-layers: 2",
        "ENV_VARS:", "--bf16: true", "--moe-layer-freq: ([0]*2)", "\u2028", "\ufeff", "[", "]", "{", "}", ",",
    ]
)  # fmt: skip
SHELL = st.sampled_from(
    [
        "torchrun", " pretrain_gpt.py", " --num-layers 2", " --hidden-size $H", "A=", "A+=(", ")", "(", "${A[@]}", "$A", "${B:-1}",
        "${C:=x}", "$((1+", "2))", "$(ls", "`", "'", '"', "\\", "\n", ";", "&&", "if [ ", "$A", " = b ]; then", "fi", "else", "elif",
        "case $A in", "*) ", ";;", "esac", "for i in", "do", "done", "<<EOF", "EOF", "#", " ", "|", "export ", "[[", "]]",
        "--micro-batch-size=", "{", "}", "function f", "!", ":",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAGMENTS, max_size=40))
def test_any_yaml_text_gives_a_document(checkout: Path, parts: list[str]) -> None:
    text = "".join(parts)
    path = str(checkout / "fuzz.yaml")
    document = read(SourceText.from_text(path, text), env={"A": "1"})
    for section in document:
        for value in section.values.values():
            assert (value.origins and value.value == value.origins[0].value) or value.value is None
    for problem in document.problems:
        assert problem.message and problem.code == problem.code.lower()


@settings(max_examples=300, deadline=None)
@given(st.lists(SHELL, max_size=60))
def test_any_shell_text_gives_a_document(parts: list[str]) -> None:
    text = "".join(parts) + "\n# --num-layers --hidden-size\n"
    document = read(SourceText.from_text("fuzz.sh", text))
    for section in document:
        for value in section.values.values():
            for origin in value.origins:
                if origin.span is not None:
                    assert 0 <= origin.span[0] <= origin.span[1] <= len(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_any_text_at_all(text: str) -> None:
    for name in ("x.yaml", "x.sh", "x"):
        read(SourceText.from_text(name, text))
        read(SourceText.from_text(name, "MODEL_ARGS:\n  " + text))
        read(SourceText.from_text(name, "--num-layers --hidden-size\n" + text))
