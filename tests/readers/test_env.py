"""The edge cases of section 2 of the reference, row by row: what is written, what the run gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from primus_lint.readers.document import ResolvedDocument
from primus_lint.readers.env import EnvUse, expand_shell, has_variable, resolve, substitute, variables

Overrides = Callable[..., ResolvedDocument]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A:8}", 8),
        ('"${A:8}"', 8),
        ("'${A:8}'", 8),
        ("${A:true}", True),
        ("${A:TRUE}", True),
        ("${A:False}", False),
        ("${A:yes}", "yes"),
        ("${A:no}", "no"),
        ("${A:on}", "on"),
        ("${A:off}", "off"),
        ("${A:1e-5}", 1e-05),
        ("1e-5", "1e-5"),
        ("1.0e-5", 1e-05),
        ("163.0e12", "163.0e12"),
        ("163.0e+12", 163.0e12),
        ("${A:163.0e12}", 163.0e12),
        ("${A:08}", 8),
        ("${A:1.}", 1.0),
        ("${A:.5}", 0.5),
        ("${A:+5}", "+5"),
        ("${A:inf}", "inf"),
        ("017", 15),
        ("0o17", "0o17"),
        ("1_000", 1000),
        ("12:30", 750),
        ("yes", True),
        ("on", True),
        ("${A:null}", None),
        ('"null"', None),
        ("${A:None}", "None"),
        ("~", None),
        ("${A:}", ""),
        ('${A:""}', '""'),
        ("${A:-8}", -8),
        ("${A:${B:x}}", "${B:x}"),
        ("${A:[0,1]}", "[0,1]"),
        ("x${A:8}", "x8"),
        ("${A:8}%", "8%"),
        ("$${A:8}", "$8"),
        ("${A:1}${B:2}", 12),
        ("[${A:8}, x]".replace("${A:8}", '"${A:8}"'), [8, "x"]),
    ],
)
def test_value_with_the_variable_unset(overrides: Overrides, written: str, value: Any) -> None:
    document = overrides(f"key: {written}")
    assert [problem for problem in document.problems if problem.fatal] == []
    found = document.sections[0].values["key"].value
    assert found == value
    assert type(found) is type(value)


def test_an_int_stays_an_int_and_a_bool_a_bool(overrides: Overrides) -> None:
    section = overrides("a: ${A:1}\nb: ${B:true}\nc: ${C:1.0}").sections[0]
    assert [type(section.values[key].value) for key in "abc"] == [int, bool, float]


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("1e-3", 1e-3), ("TRUE", True), ("llama", "llama"), ("", ""), ("null", None), ("-2", -2)],
)
def test_the_environment_gives_the_text_and_the_same_typing(overrides: Overrides, text: str, value: Any) -> None:
    document = overrides("key: ${A:9}", env={"A": text})
    assert document.sections[0].values["key"].value == value
    assert document.env_used == {"A": text}


def test_null_text_stays_text_in_lists_and_in_new_sections_only(overrides: Overrides) -> None:
    document = overrides(
        'a: ["null"]\nfresh: {x: "null", y: {z: "null"}}\nmetrics: {log_freq: "null", new: {q: "null"}}'
    )
    values = document.sections[0].values
    assert values["a"].value == ["null"]
    assert values["fresh.x"].value == "null"
    assert values["fresh.y.z"].value == "null"
    assert values["metrics.log_freq"].value is None  # the section exists in the module preset
    assert values["metrics.new.q"].value == "null"  # a new section inside it


def test_keys_are_not_touched(overrides: Overrides) -> None:
    document = overrides('"${A:x}": 1')
    assert "${A:x}" in document.sections[0].values
    assert document.env_used == {}


def test_an_unset_variable_without_default_is_named_at_its_place(overrides: Overrides) -> None:
    document = overrides("lr: 1.0\nname: run-${JOB}-${JOB}")
    [problem] = document.problems
    assert (problem.code, problem.fatal) == ("unset-variable", True)
    assert "JOB" in problem.message and "--env JOB=" in problem.message
    assert document.source is not None and problem.span is not None
    assert document.source.text[slice(*problem.span)] == "run-${JOB}-${JOB}"
    assert document.env_used == {"JOB": None}


def test_raw_text_and_variable_are_kept(overrides: Overrides) -> None:
    origin = overrides('a: "${PRIMUS_TP:8}"').sections[0].values["a"].origin
    assert (origin.raw, origin.variable, origin.value) == ('"${PRIMUS_TP:8}"', "PRIMUS_TP", 8)


def test_several_variables_of_one_text() -> None:
    use = EnvUse()
    assert substitute("${A}/${B:b}/${C}", {"C": "c"}, use) == "${A}/b/c"
    assert use.used == {"A": None, "B": None, "C": "c"}
    assert use.missing == ["A"]
    assert variables("${A}/${B:b}") == ["A", "B"]
    assert has_variable("x${A}") and not has_variable("$A {x} ${}")


def test_a_text_that_does_not_change_is_not_typed() -> None:
    use = EnvUse()
    assert substitute("8", {}, use) == "8"
    assert substitute("${A}", {"A": "${A}"}, use) == "${A}"
    assert resolve({"k": ["${A:1}", {"x": "${A:b}"}]}, {}, use) == {"k": [1, {"x": "b"}]}


def test_a_number_of_ten_thousand_digits_stays_text() -> None:
    digits = "9" * 10_000
    assert substitute("${A}", {"A": digits}, EnvUse()) == digits


def test_env_block_is_raw_and_of_this_file_only(resolve: Callable[..., ResolvedDocument], checkout: Any) -> None:
    head = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\n"
    parent = head + "env: {P: one}\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer\n"
    parent += "    model: llama3_8B\n"
    (checkout / "parent.yaml").write_text(parent)
    own = resolve(
        "extends: parent.yaml\nenv:\n  A: $HOME/x\n  B: ${HOME:y}\n  C: .97\n  D: ${HOME}\n", env={"HOME": "/h"}
    )
    assert {name: value.value for name, value in own.env.items()} == {
        "A": "/h/x", "B": "${HOME:y}", "C": "0.97", "D": "/h",
    }  # fmt: skip
    assert own.env["A"].origin.key_path == ("env", "A")
    inherited = resolve("extends: parent.yaml\n", name="other.yaml")
    assert inherited.env == {}
    assert [problem.code for problem in inherited.problems] == ["env-not-inherited"]


def test_expand_shell() -> None:
    env = {"A": "1"}
    assert expand_shell("$A ${A} $B ${A:2} $", env) == "1 1 $B ${A:2} $"
